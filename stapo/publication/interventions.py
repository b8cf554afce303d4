"""Check that the interventions of a study are possible with its settings.

Many numbers follow from others: controls silence as many tokens as S2T, rewards have few possible means, and
what is a candidate follows from its columns. The updates are not done again.
"""

from collections.abc import Iterator
from math import exp, isfinite

import pyarrow.parquet as pq

from stapo import paths
from stapo.methods import TAU_P, Method
from stapo.publication import untrusted
from stapo.publication.folder import Results
from stapo.publication.metrics_check import reward_faults, silenced_of
from stapo.records.arms import ARMS, NOTHING, SILENCED
from stapo.records.interventions import (
    SCHEMA,
    TOKENS,
    ArmRecord,
    Intervention,
    Repetition,
    intervention_of,
)
from stapo.study import Checkpoint, Study, identity
from stapo.study.schema import TrainingSettings

ROUNDING = 1e-5
"""Tolerance for entropies in single precision, which may be slightly negative."""

Tokens = list[dict[str, float]]
"""Rows of the parquet file, of one repetition."""


def intervention_errors(results: Results) -> Iterator[str]:
    """Yield a line for each contradiction in the interventions of a study."""
    study = results.study
    for checkpoint in study.intervened():
        at = {"study": study.name, "checkpoint": checkpoint}
        numbers, tokens = (
            paths.INTERVENTION.format(**at, suffix=suffix) for suffix in paths.INTERVENTION_SUFFIXES
        )
        try:
            found = intervention_of(untrusted.read_json(results.root / numbers))
        except ValueError as error:
            yield f"{numbers}: {error}"
            continue
        faults = [*_faults(study, checkpoint, found)]
        yield from (f"{numbers}: {fault}" for fault in faults)
        if not faults:
            rows = pq.ParquetFile(results.root / tokens).read().to_pylist()
            for one in found.repetitions:
                own = [row for row in rows if row["repetition"] == one.repetition]
                yield from (f"{tokens}: {f}" for f in token_faults(study, one, own))
            if {row["repetition"] for row in rows} - {one.repetition for one in found.repetitions}:
                yield f"{tokens}: tokens of other repetitions"


def _faults(study: Study, checkpoint: Checkpoint, found: Intervention) -> Iterator[str]:
    """Yield what the numbers of a checkpoint contradict."""
    settings = study.interventions
    training, method = study.training_of(settings.method), study.method(settings.method)
    if found.fingerprint != identity.intervention_fingerprint(study, checkpoint):
        yield "made with other settings"
    if (found.checkpoint, found.method) != (str(checkpoint), settings.method):
        yield "of another checkpoint or method"
    responses = settings.prompts * training.group_size
    if len(found.repetitions) != settings.repetitions or found.responses != responses:
        yield f"not {settings.repetitions} repetitions of {responses} held-out responses"
    for one in found.repetitions:
        for fault in repetition_faults(one, responses, training, method):
            yield f"repetition {one.repetition}: {fault}"


def repetition_faults(
    one: Repetition, responses: int, training: TrainingSettings, method: Method
) -> Iterator[str]:
    """Yield the values of a repetition that its settings do not allow."""
    own = training.prompts_per_mini_batch * training.group_size
    longest, arms = training.max_response_tokens, one.arms
    if not 1 <= one.tokens <= own * longest or not 1 <= one.held_out_tokens <= responses * longest:
        yield f"{one.tokens} and {one.held_out_tokens} tokens of at most {longest} in each response"
    if not one.candidates <= one.positive <= one.tokens:
        yield f"{one.candidates} candidates of {one.positive} tokens with A > 0 of {one.tokens}"
    yield from reward_faults(one.rollout_reward, own, training)
    rewards = [one.reward, *(arm.reward for arm in arms.values())]
    for reward in rewards:
        yield from reward_faults(reward, responses, training)
    silenced = arms[SILENCED].silenced
    least, most, _ = silenced_of(one.candidates, method)
    if not least <= silenced <= most:
        yield f"S2T silences {silenced} of {one.candidates} candidates, by the method {least} to {most}"
    for name in ARMS:
        expected = 0 if name == NOTHING else silenced
        if arms[name].silenced != expected:
            yield f"{name} silences {arms[name].silenced} tokens instead of {expected}"
        yield from (f"{name}: {fault}" for fault in _arm_faults(arms[name]))
    if arms[NOTHING].cosine != 1:
        yield "the cosine of a gradient with itself is not 1"
    if silenced == 0 and len({*arms.values()}) > 1:
        yield "nothing is silenced, but the arms differ"


def _arm_faults(arm: ArmRecord) -> Iterator[str]:
    entropies = arm.entropy, arm.entropy_resampled, arm.entropy_rollout
    if min(*entropies, arm.kl) < -ROUNDING or arm.gradient_norm < 0:
        yield "a negative entropy, divergence or gradient norm"
    if not -1 <= arm.cosine <= 1:
        yield f"a cosine of {arm.cosine}"


def token_faults(study: Study, one: Repetition, rows: Tokens) -> Iterator[str]:
    """Yield what the tokens of a repetition contradict."""
    method = study.method(study.interventions.method)
    training = study.training_of(study.interventions.method)
    tau_p = float(method.arguments.get("tau_p", TAU_P.default))
    own = training.prompts_per_mini_batch * training.group_size
    advantages: dict[float, float] = {}
    for row in rows:
        place = (
            f"repetition {one.repetition}, response {row['response']}, position {row['position']}"
        )
        known = all(row[name] is not None and isfinite(row[name]) for name in SCHEMA.names)
        inside = known and (
            0 <= row["response"] < own and 0 <= row["position"] < training.max_response_tokens
        )
        if not inside or row["logp"] > ROUNDING or row["advantage"] == 0:
            yield f"{place}: impossible values"
            return
        candidate = row["advantage"] > 0 and exp(row["logp"]) < tau_p
        if row["candidate"] != candidate or (row["silenced"] and not candidate):
            yield f"{place}: not a candidate or not silenced, by its own columns"
        if advantages.setdefault(row["response"], row["advantage"]) != row["advantage"]:
            yield f"{place}: another advantage than the rest of its response"
    places = {(row["response"], row["position"]) for row in rows}
    if len(places) < len(rows) or len(rows) > TOKENS:
        yield f"repetition {one.repetition}: a token twice, or more than {TOKENS}"
    # With fewer tokens than the sample may have, every token with A != 0 is there.
    if len(rows) < TOKENS:
        counts = {
            "positive": (one.positive, sum(row["advantage"] > 0 for row in rows)),
            "candidates": (one.candidates, sum(row["candidate"] for row in rows)),
            "silenced": (one.arms[SILENCED].silenced, sum(row["silenced"] for row in rows)),
        }
        for name, (stated, found) in counts.items():
            if stated != found:
                yield f"repetition {one.repetition}: {name} {stated}, its tokens give {found}"
