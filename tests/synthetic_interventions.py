"""Synthetic interventions in the real formats, with effects that the tests choose."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stapo.core.files import write_json
from stapo.suite import paths
from stapo.suite.analysis.evidence.updates import predicted_change
from stapo.suite.jobs import jobs_of
from stapo.suite.records.arms import CONTROLS, NOTHING, SILENCED
from stapo.suite.records.interventions import SCHEMA, ArmRecord, Intervention, Repetition
from stapo.suite.study import Checkpoint, Study

MOVED = {NOTHING: -0.010, SILENCED: -0.002, "random_candidates": -0.009, "random_positive": -0.010}
"""Arm -> its change of entropy: S2T keeps the entropy where it was, better than all others."""
POSITIVE, OTHERS, CANDIDATES, COUNT = 40, 45, 4, 3
RARE = 0.001


def repetition(
    number: int,
    moved: Mapping[str, float],
    noise: float = 0.0,
    arms: Sequence[str] = (NOTHING, SILENCED, *CONTROLS),
) -> Repetition:
    """Return a repetition whose arms change the entropy by known amounts; the noise is of the pairs."""
    rng = np.random.default_rng(number)
    made = {
        arm: ArmRecord(
            silenced=0 if arm == NOTHING else COUNT, gradient_norm=0.2, cosine=1.0,
            entropy=0.5 + moved.get(arm, -0.01) + noise * float(rng.normal()),
            entropy_resampled=0.5, entropy_rollout=0.4, reward=0.25, kl=0.001,
        )
        for arm in arms
    }  # fmt: skip
    return Repetition(
        repetition=number, tokens=POSITIVE + OTHERS, positive=POSITIVE, candidates=CANDIDATES,
        rollout_reward=0.5, entropy_rollout=0.4, held_out_tokens=900, reward=0.25, entropy=0.5, arms=made,
    )  # fmt: skip


def tokens(number: int, sign: float = 1.0) -> dict[str, Any]:
    """Return the columns of tokens whose entropies move as the lemma says, times `sign`."""
    rng = np.random.default_rng(100 + number)
    total = POSITIVE + OTHERS
    logps = np.log(rng.uniform(0.01, 1, total)).astype(np.float32)
    logps[:CANDIDATES] = np.log(RARE)
    entropies = rng.uniform(0, 2, total).astype(np.float32)
    advantages = np.repeat([1.0, -1.0], [POSITIVE, OTHERS]).astype(np.float32)
    change = predicted_change(logps, entropies, advantages)
    index = np.arange(total)
    return {
        "repetition": np.full(total, number),
        "response": (index >= POSITIVE).astype(int),
        "position": index % POSITIVE,
        "token_id": index,
        "logp": logps,
        "advantage": advantages,
        "candidate": index < CANDIDATES,
        "silenced": index < COUNT,
        "entropy": entropies,
        "entropy_after": (entropies + 0.01 * sign * change).astype(np.float32),
    }


def write_intervention(
    root: Path,
    study: Study,
    checkpoint: Checkpoint,
    moved: Mapping[str, float] = MOVED,
    noise: float = 1e-4,
    sign: float = 1.0,
) -> None:
    settings = study.interventions
    numbers = range(settings.repetitions)
    method = study.training_of(settings.method)
    found = Intervention(
        str(checkpoint),
        jobs_of(study).job("intervene", checkpoint).fingerprint,
        settings.method,
        settings.prompts * method.group_size,
        tuple(repetition(number, moved, noise, settings.arms) for number in numbers),
    )
    at = {"study": study.name, "checkpoint": checkpoint}
    json, parquet = (root / paths.INTERVENTION.format(**at, suffix=s) for s in ("json", "parquet"))
    write_json(json, asdict(found))
    columns = [tokens(number, sign) for number in numbers]
    arrays = [pa.array(np.concatenate([c[f.name] for c in columns]), f.type) for f in SCHEMA]
    pq.write_table(pa.table(arrays, schema=SCHEMA), parquet)
