"""Check of the records of trainings against the study, against each other, and between trainings."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from stapo.canonical import canonical
from stapo.paths import TOKENS_FILE
from stapo.publication import untrusted
from stapo.publication.commands import command_faults
from stapo.publication.folder import Results
from stapo.publication.metrics_check import Step, metrics_faults
from stapo.publication.tokens_check import token_faults
from stapo.publication.vocabulary import token_texts
from stapo.records.step import PHASES, from_line
from stapo.records.tokens import METADATA_KEY
from stapo.study import Checkpoint, Study, TrainingRun, identity
from stapo.study.titles import title_faults

SECONDS = 1.0
"""Tolerance between the durations of an attempt and of its steps."""


def training_errors(results: Results) -> Iterator[str]:
    """Yield a line for each contradiction in the records of the trainings."""
    study = results.study
    yield from title_faults(study)
    steps: dict[TrainingRun, list[Step]] = {}
    for run, record in results.runs.items():
        place = f"runs/{run}"
        if canonical(record["config"]) != canonical(identity.train_config(study, run)):
            yield f"{place}/provenance.json: its config is not the study's"
        steps[run], seconds, faults = _metrics_faults(results, run)
        yield from (f"{place}/metrics.jsonl: {fault}" for fault in faults)
        if not faults:  # Otherwise there is nothing to compare with.
            yield from (f"{place}/{TOKENS_FILE}: {f}" for f in _token_faults(results, run, record))
        taken = sum(seconds.get(phase, 0.0) for phase in PHASES)
        yield from (
            f"{place}/provenance.json: {f}" for f in _sum_faults(record, taken, len(steps[run]))
        )
        for attempt in record["attempts"]:
            last = attempt is record["attempts"][-1]
            faults = list(command_faults(study, run, attempt, last))
            yield from (f"{place}/provenance.json: its command {fault}" for fault in faults)
    yield from _copied_metrics(study, steps)


def acts_alike(
    study: Study, one: TrainingRun, other: TrainingRun, steps: dict[TrainingRun, list[Step]]
) -> bool:
    """Return whether two trainings may have the same weights, since all their updates were the same.

    For example, a method whose selection never removed a token equals the method from which it is derived.
    """
    same = one.size == other.size and one.seed == other.seed and steps[one] == steps[other]
    return bool(steps[one]) and same and _objective(study, one) == _objective(study, other)


def recorded_steps(results: Results) -> dict[TrainingRun, list[Step]]:
    """Return the recorded steps of the trainings, up to the first one with an error."""
    return {run: _metrics_faults(results, run)[0] for run in results.study.runs()}


def _metrics_faults(
    results: Results, run: TrainingRun
) -> tuple[list[Step], dict[str, float], list[str]]:
    """Return the result of `metrics_faults` for one training."""
    training, method = results.study.training_of(run.method), results.study.method(run.method)
    return metrics_faults(results.metrics(run), training, method)


def _token_faults(results: Results, run: TrainingRun, record: dict[str, Any]) -> Iterator[str]:
    """Yield what is impossible in the token records of a training."""
    training, method = results.study.training_of(run.method), results.study.method(run.method)
    table = results.tokens(run)
    rows, too_long = table.to_pandas(), record["prompts_too_long"]
    steps = [from_line(line) for line in results.metrics(run)]
    try:
        about = untrusted.parse_json((table.schema.metadata or {}).get(METADATA_KEY, b"{}"))
        yield from token_faults(
            rows,
            about if isinstance(about, dict) else {},
            steps,
            training,
            method,
            results.num_prompts,
            too_long,
            token_texts(results, Checkpoint(run.size)),
        )
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        yield f"impossible content: {error!r}"


def _objective(study: Study, run: TrainingRun) -> tuple[str, float]:
    method, aggregation = study.method(run.method), study.method(run.method).aggregation
    # If there is only one group, its tokens are those of the mini-batch.
    if (
        aggregation == "group_token_mean"
        and study.training_of(run.method).prompts_per_mini_batch == 1
    ):
        aggregation = "token_mean"
    # Without the clip, which has no effect while the policy is the behaviour policy.
    return aggregation, method.kl_coefficient


def _sum_faults(record: dict[str, Any], taken: float, steps: int) -> Iterator[str]:
    """Yield the sums in a training's provenance that contradict its metrics or attempts."""
    if record["steps"] != steps:
        yield f"says {record['steps']} steps, its metrics {steps}"
    if abs(record["seconds"] - taken) > 1e-6 * max(taken, 1.0):
        yield f"says {record['seconds']} seconds, its metrics {taken}"
    attempts = record["attempts"]
    if not attempts:
        yield "names no attempt"
        return
    processes = attempts[-1]["processes"]
    expected = record["seconds"] * processes if record["environment"]["gpus"] else 0.0
    if abs(record["gpu_seconds"] - expected) > 1e-6 * max(expected, 1.0):
        yield f"says {record['gpu_seconds']} GPU seconds, its metrics {expected}"
    known = [attempt.get("joules") for attempt in attempts]
    joules = None if None in known else sum(known)
    if record["joules"] != joules:
        yield f"says {record['joules']} joules, its attempts {joules}"
    if attempts[0]["after_step"] != 0:
        yield "its first attempt does not start at step 0"
    if any(not 0 <= attempt["after_step"] <= steps for attempt in attempts):
        yield "has attempts that start after its last step"
    whole = [attempt.get("seconds") for attempt in attempts]
    if None not in whole and sum(whole) + SECONDS < taken:
        yield f"says that its attempts took {sum(whole)} seconds, its metrics {taken}"


def _copied_metrics(study: Study, steps: dict[TrainingRun, list[Step]]) -> Iterator[str]:
    """Yield trainings with a repeated step record, and pairs of trainings with the same one."""
    for run, own in steps.items():
        learnt = [step for step in own if step.gradient_norm > 0]
        if len(set(learnt)) < len(learnt):
            yield f"runs {run}: the same record of a step occurs twice"
    for one, other in combinations(steps, 2):
        if one.size != other.size:
            continue
        (ours, kl), (theirs, other_kl) = _objective(study, one), _objective(study, other)
        # Before the weights change, in a warm-up at its second step, the KL term and its gradient are 0.
        unchanged = 1 + (study.training_of(one.method).warmup_steps > 0)
        for number, (a, b) in enumerate(zip(steps[one], steps[other], strict=False), 1):
            if a.gradient_norm == 0 or a.entropy != b.entropy:
                continue
            # Runs with the same seed start with the same responses; then their updates differ.
            updated = (a.loss, a.gradient_norm) == (b.loss, b.gradient_norm)
            alike = ours == theirs and (kl == other_kl or number <= unchanged)
            if one.seed != other.seed or (
                updated and not (alike and a.kept_fraction == b.kept_fraction)
            ):
                yield f"runs {one} and {other}: both have the same record of step {number}"
                break
