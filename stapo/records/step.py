"""The record of one optimiser step: a line of `metrics.jsonl`, whoever writes or reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import nan
from typing import Any

VERSION = 1
"""Of the fields below; no line states it. Another one is another `RECIPES["train"]`, too."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Levels of `entropy_quantiles`."""

ROLLOUT, UPDATE = PHASES = ("rollout", "update")
"""Of a step, in `seconds`; the other times there are parts of the rollout."""


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One optimiser step, its fields in the order of the line; shares are of its response tokens.

    What only a training knows has a default: an update by itself leaves it at that.
    """

    step: int = 0
    """Optimiser step, from 1."""
    reward: float = nan
    """Mean over responses."""
    zero_advantage_fraction: float
    """Share of the responses whose advantage is 0."""
    entropy: float
    """Mean entropy of the behaviour policy, nats per token; 0 where there is no token."""
    entropy_quantiles: dict[str, float]
    """Level to quantile of the same entropies, nats; levels are `QUANTILES`."""
    num_tokens: int
    """Response tokens."""
    num_candidates: int
    """Tokens of positive advantage and probability below tau_p: the method's, otherwise the paper's."""
    num_silenced: int
    """Candidates left out by a selection that silences candidates; 0 with any other."""
    candidate_fraction: float
    silenced_fraction: float
    kept_fraction: float
    """Share of the tokens that contribute to the loss."""
    response_length: float
    """Mean tokens of a response."""
    truncated_fraction: float = nan
    """Share of the responses without an end token."""
    mask_scope: dict[str, dict[str, int]] | None = None
    """With a threshold: what it would leave out, had it a smaller scope; the line lacks it otherwise."""
    clip_low_fraction: float
    """Share of the tokens with A < 0 and a ratio below the clip."""
    clip_high_fraction: float
    """Share of the tokens with A > 0 and a ratio above the clip."""
    loss: float
    """Of the whole mini-batch."""
    kl: float
    """Mean k3 estimate of the divergence from the reference, nats per token; 0 without a KL term."""
    gradient_norm: float = nan
    """Before it is clipped."""
    learning_rate: float = nan
    seconds: dict[str, float] = field(default_factory=dict)
    """Phase to its duration."""


NUMBERS = tuple(one.name for one in fields(StepRecord) if one.type is float)
COUNTS = tuple(one.name for one in fields(StepRecord) if one.type is int)
NESTED = tuple(one.name for one in fields(StepRecord) if one.type == dict[str, float])
"""Fields by their type; a line has all of them, and `mask_scope` besides with a threshold."""


def as_line(record: StepRecord) -> dict[str, Any]:
    """Return a record as the object of its line."""
    line = {one.name: getattr(record, one.name) for one in fields(record)}
    return {name: value for name, value in line.items() if value is not None}


def from_line(line: Mapping[str, Any]) -> StepRecord:
    """Return what a line says of a step, of a training that still runs or of any other origin.

    What it lacks, or does not say in the type of the field, is unknown: nan, 0 or nothing.
    """

    def known(names: tuple[str, ...], kinds: tuple[type, ...], otherwise: Any) -> dict[str, Any]:
        found = {name: line.get(name) for name in names}
        return {k: v if type(v) in kinds else otherwise for k, v in found.items()}

    numbers, counts = known(NUMBERS, (float, int), nan), known(COUNTS, (int,), 0)
    nested = known(NESTED, (dict,), {})
    return StepRecord(**numbers, **counts, **nested, **known(("mask_scope",), (dict,), None))
