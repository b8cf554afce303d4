"""The record of one optimiser step: a line of `metrics.jsonl`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import nan
from typing import Any

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.8, 0.95)
"""Levels of `entropy_quantiles`."""

ROLLOUT, UPDATE = PHASES = ("rollout", "update")
"""Phases of a step in `seconds`; the other times there are parts of the rollout."""


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """Record of a step; fractions are of its response tokens, what only a training knows has defaults."""

    step: int = 0
    """Optimiser step, from 1."""
    reward: float = nan
    """Mean reward over responses."""
    zero_advantage_fraction: float
    """Share of the responses whose advantage is 0."""
    entropy: float
    """Mean entropy of the behaviour policy, nats per token; 0 without tokens."""
    entropy_quantiles: dict[str, float]
    """Level (of `QUANTILES`) -> quantile of the same entropies, nats."""
    num_tokens: int
    """Number of response tokens."""
    num_candidates: int
    """Tokens with positive advantage and probability below tau_p, the method's or that of S2T."""
    num_silenced: int
    """Candidates removed by a selection that silences candidates or is user-defined; 0 for others."""
    candidate_fraction: float
    """Share of the tokens that are candidates."""
    silenced_fraction: float
    """Share of the tokens that are such candidates; other tokens that are not kept are not in it."""
    kept_fraction: float
    """Share of the tokens that contribute to the loss."""
    response_length: float
    """Mean number of tokens of a response."""
    truncated_fraction: float = nan
    """Share of the responses without an end token."""
    clip_low_fraction: float
    """Share of the tokens with A < 0 and a ratio below the clip, also if the surrogate has none."""
    clip_high_fraction: float
    """Share of the tokens with A > 0 and a ratio above the clip, also if the surrogate has none."""
    touched_fraction: float
    """Share of the tokens whose weight in the gradient, the divisor apart, differs from that of the clipped
    surrogate with nothing silenced; responses of which no token is kept are not computed and not counted."""
    touched_weight: float
    """Sum of the changes of these weights, divided by the sum of all weights."""
    loss: float
    """Loss of the whole mini-batch; not comparable between surrogates, whose gradients are."""
    kl: float
    """Mean k3 estimate of the divergence from the reference, nats per token; 0 without a KL term."""
    rollout_mismatch: float | None = None
    """Only for rollouts by vLLM or in bfloat16: mean |log p(rollout) - log p(trainer)|, nats per token."""
    rollout_mismatch_max: float | None = None
    """The largest of these differences, nats."""
    rollout_changed_fraction: float | None = None
    """Share of the candidates, by the rollout's or the trainer's probabilities, that are not such by both."""
    gradient_norm: float = nan
    """Norm of the gradient before clipping."""
    learning_rate: float = nan
    """Learning rate of the step."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Phase -> duration in seconds."""


def as_line(record: StepRecord) -> dict[str, Any]:
    """Return a record as the JSON object of its line."""
    line = {entry.name: getattr(record, entry.name) for entry in fields(record)}
    return {name: value for name, value in line.items() if value is not None}


def step_seconds(record: Mapping[str, Any]) -> float:
    """Return the seconds of all phases of a step, from its line in `metrics.jsonl`."""
    seconds: dict[str, float] = record["seconds"]
    return sum(seconds.get(phase, 0.0) for phase in PHASES)


def gpu_seconds(metrics: Sequence[Mapping[str, Any]], tried: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds of all steps, each times the ranks of the last attempt that could have made it.

    Steps of a shorter training, before the first attempt, count with the ranks of that one.
    """
    total = 0.0
    for record in metrics:
        makers = [attempt for attempt in tried if attempt["after_step"] < record["step"]]
        total += step_seconds(record) * (makers or tried[:1])[-1]["processes"]
    return total
