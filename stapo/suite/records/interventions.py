"""Records of interventions: updates of one checkpoint that silence different tokens, and what they change.

For each repetition, one rollout is generated, and each arm does one update with it from the same weights. The
numbers of all repetitions are in a JSON file. A parquet file holds a sample of the tokens of the rollouts,
with their entropies before and after the update in which nothing is silenced. Entropies and log-probs are in
nats.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import with_config

from stapo.core.files import AGAIN, DamagedFileError, content_of
from stapo.suite.records.arms import ARMS, NOTHING, SILENCED
from stapo.suite.records.reading import record_of

VERSION: Literal[1] = 1
"""Version of the fields below. A new version also increases the recipe of the stage."""

TOKENS = 2000
"""Largest number of tokens of a repetition in the parquet file."""

SCHEMA = pa.schema(
    [
        pa.field("repetition", pa.int32(), nullable=False),  # from 0
        pa.field("response", pa.int32(), nullable=False),  # row of the rollout, from 0
        pa.field("position", pa.int32(), nullable=False),  # position in the response, from 0
        pa.field("token_id", pa.int32(), nullable=False),  # in the vocabulary of the tokenizer
        pa.field("logp", pa.float32(), nullable=False),  # log-prob before the update
        pa.field("advantage", pa.float32(), nullable=False),  # not 0
        pa.field("candidate", pa.bool_(), nullable=False),  # A > 0 and probability below tau_p
        pa.field("silenced", pa.bool_(), nullable=False),  # by S2T
        pa.field("entropy", pa.float32(), nullable=False),  # at the token, before the update
        pa.field("entropy_after", pa.float32(), nullable=False),  # at the token, after the update
    ]
)


Quadrant = Literal["rare, sure", "rare, unsure", "likely, sure", "likely, unsure"]
"""Class of a token with A > 0: rare is a probability below tau_p, sure an entropy below tau_h."""

READ_STRICTLY = with_config(extra="forbid", allow_inf_nan=False)


@READ_STRICTLY
@dataclass(frozen=True, kw_only=True)
class ArmRecord:
    """One update, and what it changed."""

    silenced: int
    """Number of tokens."""
    gradient_norm: float
    """Before clipping."""
    cosine: float
    """Of its gradient with that of the arm without silencing."""
    entropy: float
    """Mean over the tokens of the held-out responses that were sampled before the update."""
    entropy_resampled: float
    """Mean over the tokens of held-out responses that were sampled after the update, with the same seeds."""
    entropy_rollout: float
    """Mean over the tokens of the rollout that was used for the update."""
    reward: float
    """Mean over the held-out responses that were sampled after the update."""
    kl: float
    """k3 estimate of KL(before || after), mean over the tokens of `entropy`."""
    tail_mass: float | None = None
    """Probability of all words below tau_p, mean over the tokens of `entropy`; None if there are too many."""


@READ_STRICTLY
@dataclass(frozen=True, kw_only=True)
class TokenGradient:
    """Norms of the gradient of the log-prob of a sampled token."""

    quadrant: Quadrant
    weight: float
    """Tokens of the quadrant in the rollout / sampled ones."""
    logp: float
    """Of the token."""
    at_logits: float
    """Norm with respect to the logits of the token."""
    at_weights: float
    """Norm with respect to all trained weights."""


@READ_STRICTLY
@dataclass(frozen=True, kw_only=True)
class Repetition:
    """One rollout, its held-out responses before any update, and all arms."""

    repetition: int
    """Index, from 0."""
    tokens: int
    """Response tokens of the rollout."""
    positive: int
    """Those with A > 0."""
    candidates: int
    """Those with A > 0 and a probability below tau_p."""
    rollout_reward: float
    """Mean over the responses of the rollout."""
    entropy_rollout: float
    """Mean over the tokens of the rollout."""
    held_out_tokens: int
    """Tokens of the held-out responses."""
    reward: float
    """Mean over the held-out responses."""
    entropy: float
    """Mean over the tokens of the held-out responses."""
    tail_mass: float | None = None
    """As of an arm, before the update."""
    arms: Mapping[str, ArmRecord]
    """Name in `stapo.suite.records.arms.ARMS` -> its update."""
    methods: Mapping[str, ArmRecord] = field(default_factory=dict)
    """Method -> what its updates with the whole rollout changed. Their number of tokens is that of touched
    ones in all updates; norm, and cosine with the first method's, are those of the change of weights."""
    gradients: tuple[TokenGradient, ...] = ()
    """Of single tokens, before any update."""

    def __post_init__(self) -> None:
        if not {NOTHING, SILENCED} <= self.arms.keys() <= ARMS.keys():
            raise ValueError(f"arms: expected none, s2t and others of {', '.join(ARMS)}")


@READ_STRICTLY
@dataclass(frozen=True)
class Intervention:
    """The content of the JSON file of a checkpoint."""

    checkpoint: str
    """Name of the checkpoint."""
    fingerprint: str
    """Fingerprint of everything that determines the numbers."""
    method: str
    """Name of the method whose selection is S2T here."""
    responses: int
    """Held-out responses of a repetition."""
    repetitions: tuple[Repetition, ...]
    """One for each rollout."""
    version: Literal[1] = VERSION
    """Version of these fields."""

    def __post_init__(self) -> None:
        if [repetition.repetition for repetition in self.repetitions] != [
            *range(len(self.repetitions))
        ]:
            raise ValueError("not the repetitions 0, 1, 2 and so on")


def as_json(record: Repetition | Intervention) -> dict[str, Any]:
    """Return a record as it is written: without gradients of tokens where a study asks for none."""
    return asdict(
        record, dict_factory=lambda pairs: {k: v for k, v in pairs if (k, v) != ("gradients", ())}
    )


def read_intervention(path: Path) -> Intervention:
    """Return the numbers of the interventions at a checkpoint.

    Raises:
        DamagedFileError: the file is truncated or corrupt, or has other fields.
        OSError: it cannot be read.
    """
    try:
        return record_of(Intervention, content_of(path))
    except ValueError as error:
        raise DamagedFileError(f"{path}: {error}; {AGAIN}") from error
