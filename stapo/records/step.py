"""The record of one optimiser step: a line of `metrics.jsonl`, whoever writes or reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import nan
from typing import Any

VERSION = 1
"""Of the fields below and their meaning. A line does not name it: what wrote it is in the provenance."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Levels of `entropy_quantiles`."""

ROLLOUT, UPDATE = "rollout", "update"
"""Phases of a step in `seconds`; further ones are parts of the rollout."""


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


OPTIONAL = ("mask_scope",)
"""Fields that a line may lack."""


def as_line(record: StepRecord) -> dict[str, Any]:
    """Return a record as the object of its line."""
    line = {one.name: getattr(record, one.name) for one in fields(record)}
    return {name: value for name, value in line.items() if value is not None}


def from_line(line: Mapping[str, Any]) -> StepRecord:
    """Return the record of a line that this suite wrote.

    Raises:
        ValueError: other fields than those of a step; values are not looked at.
    """
    expected = {one.name for one in fields(StepRecord)}
    if not expected - set(OPTIONAL) <= line.keys() <= expected:
        found = ", ".join(sorted(expected.symmetric_difference(line.keys()))[:5])
        raise ValueError(f"not the record of a step: other fields: {found}")
    return StepRecord(**line)
