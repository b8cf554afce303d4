"""Records of interventions: updates of one checkpoint that silence different tokens, and what they change.

For each repetition, one rollout is generated, and each arm does one update with it from the same weights. The
numbers of all repetitions are in a JSON file. A parquet file holds a sample of the tokens of the rollouts,
with their entropies before and after the update in which nothing is silenced. Entropies and log-probs are in
nats.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from sys import float_info
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stapo.files import AGAIN, DamagedFileError, read_json
from stapo.records.arms import ARMS

VERSION = 1
"""Version of the fields below. A new version also increases `RECIPES["intervene"]`."""

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
    arms: Mapping[str, ArmRecord]
    """Name in `stapo.records.arms.ARMS` -> its update."""

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON mapping."""
        return asdict(self)


NUMBERS = tuple(f.name for f in fields(Repetition) if f.name != "arms")
COUNTS = ("repetition", "tokens", "positive", "candidates", "held_out_tokens", "silenced")


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

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON mapping."""
        return {"version": VERSION, **asdict(self), "repetitions": [*map(asdict, self.repetitions)]}


def repetition_of(found: Any) -> Repetition:
    """Return the repetition in a JSON value.

    Raises:
        ValueError: other fields, or values that are not finite numbers.
    """
    if not isinstance(found, dict) or found.keys() != {*NUMBERS, "arms"}:
        raise ValueError("other fields than those of a repetition")
    arms = found["arms"]
    if not isinstance(arms, dict) or {*arms} != {*ARMS}:
        raise ValueError(f"other arms than {', '.join(ARMS)}")
    expected = {f.name for f in fields(ArmRecord)}
    if not all(isinstance(arm, dict) and arm.keys() == expected for arm in arms.values()):
        raise ValueError("other fields than those of an arm")
    plain = {name: found[name] for name in NUMBERS}
    for part in (plain, *arms.values()):
        for name, value in part.items():
            kinds = (int,) if name in COUNTS else (int, float)
            if type(value) not in kinds or not abs(value) <= float_info.max:
                raise ValueError(f"{name} is not a finite number")
    return Repetition(**plain, arms={name: ArmRecord(**arms[name]) for name in ARMS})


def intervention_of(found: Any) -> Intervention:
    """Return the content of a JSON file.

    Raises:
        ValueError: other fields or another version, or values of the wrong type.
    """
    expected = {"version", *(f.name for f in fields(Intervention))}
    if not isinstance(found, dict) or found.keys() != expected or found["version"] != VERSION:
        raise ValueError(f"not the fields of interventions of version {VERSION}")
    checkpoint, made_by, method = (found[name] for name in ("checkpoint", "fingerprint", "method"))
    if not all(isinstance(text, str) for text in (checkpoint, made_by, method)):
        raise ValueError("checkpoint, fingerprint and method are not all texts")
    responses, repetitions = found["responses"], found["repetitions"]
    if type(responses) is not int or responses < 1 or not isinstance(repetitions, list):
        raise ValueError("responses is not a number, or repetitions not a list")
    done = tuple(map(repetition_of, repetitions))
    if [one.repetition for one in done] != list(range(len(done))) or not done:
        raise ValueError("not the repetitions 0, 1, 2 and so on")
    return Intervention(checkpoint, made_by, method, responses, done)


def read_intervention(path: Path) -> Intervention:
    """Return the numbers of the interventions at a checkpoint.

    Raises:
        DamagedFileError: the file is truncated or corrupt, or has other fields.
        OSError: it cannot be read.
    """
    try:
        return intervention_of(read_json(path))
    except DamagedFileError:
        raise
    except ValueError as error:
        raise DamagedFileError(f"{path}: {error}; {AGAIN}") from error


def read_intervention_tokens(path: Path) -> pa.Table:
    """Return the tokens of the interventions at a checkpoint.

    Raises:
        DamagedFileError: the file is truncated or corrupt, or has other columns.
        OSError: it cannot be read.
    """
    try:
        # Not a data set: directories such as seed0 in the path are no columns.
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise DamagedFileError(f"{path}: truncated or corrupt, no tokens; {AGAIN}") from error
    if not table.schema.equals(SCHEMA):
        raise DamagedFileError(f"{path}: not the columns of version {VERSION}; {AGAIN}")
    return table
