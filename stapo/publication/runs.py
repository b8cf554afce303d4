"""Check of what the trainings and the interventions recorded against the study, the files and each other.

An attempt of a training records its command and the whole study as it was when the training started. What it
lists and the folder does not show was removed later, when results were known: this may be a selection of
results. A training may come from another study that has the same training.
"""

import json
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from stapo.files import canonical, fingerprint
from stapo.publication.folder import Results, published_study
from stapo.publication.manifest import WEIGHTS, named_by, place_of
from stapo.records.step import PHASES
from stapo.stages import Job, jobs_of
from stapo.stages.train import recorded_intervention
from stapo.study import Study, TrainingRun

ROUNDING = 1e-6
"""Relative tolerance of sums."""
LISTS = ("sizes", "methods", "seeds", "decodings", "benchmarks")


def training_errors(results: Results) -> Iterator[str]:
    """Yield a line for each training of other settings, and each file that is not the one that it published.

    Of a file that was left out, the checksum in `SHA256SUMS` is compared.
    """
    jobs = jobs_of(results.study)
    for run, record in results.runs.items():
        for fault in _setting_faults(results, jobs.one("train", run), run, record):
            yield f"runs/{run}/provenance.json: {fault}"
    yield from _file_errors(results)


def _setting_faults(
    results: Results, job: Job, run: TrainingRun, record: dict[str, Any]
) -> Iterator[str]:
    """Yield what the record of a training contradicts in the study, the prompts and itself."""
    if record["fingerprint"] != fingerprint(record["config"]):
        yield "its config is not the one of its fingerprint"
    elif record["fingerprint"] != job.fingerprint and not is_earlier(record, job):
        yield "of a training with other settings"
    if record["prompts"] != results.digest_of("data/prompts.jsonl"):
        yield "trained on other prompts than data/prompts.jsonl"
    for attempt in record["attempts"]:
        last = attempt is record["attempts"][-1]
        for fault in command_faults(results.study, run, attempt, last):
            yield f"its command {fault}"


def is_earlier(record: dict[str, Any], job: Job) -> bool:
    """Return whether a training is of an earlier version: of the same settings, without some of today's."""

    def is_part(of: Any, whole: Any) -> bool:
        if isinstance(of, dict) and isinstance(whole, dict):
            return of.keys() <= whole.keys() and all(is_part(of[key], whole[key]) for key in of)
        return canonical(of) == canonical(whole)

    return record["fingerprint"] != job.fingerprint and is_part(record["config"], job.config)


def earlier(results: Results) -> list[TrainingRun]:
    """Return the trainings of an earlier version of the code."""
    jobs = jobs_of(results.study)
    return [
        run for run, record in results.runs.items() if is_earlier(record, jobs.one("train", run))
    ]


def command_faults(
    study: Study, run: TrainingRun, attempt: dict[str, Any], last: bool
) -> Iterator[str]:
    """Yield how the command of an attempt contradicts the published study.

    Args:
        study: the published study.
        run: the training of the attempt.
        attempt: the training's record of it, without a study if it was started by hand.
        last: whether the training finished in this attempt. What was removed from the study before its
            last attempt was removed before there were results.
    """
    options = dict(pairwise(attempt["command"]))
    stated = {"train": str(run)}
    if "--method" in options:  # How trainings were named before.
        stated = {"--size": run.size, "--method": run.method, "--seed": str(run.seed)}
    for option, value in stated.items():
        if options.get(option, value) not in (value, "--study"):
            yield f"trains {option} {options[option]}"
    if attempt.get("study") is None:
        return
    recorded = _parsed(canonical(attempt["study"]))
    try:
        started = jobs_of(recorded).one("train", run).fingerprint
    except KeyError:
        yield "is of a study without this training"
        return
    if started != jobs_of(study).one("train", run).fingerprint:
        yield "trains with other settings"
    elif last and recorded.name == study.name:
        yield from _dropped(study, recorded)


@cache
def _parsed(text: str) -> Study:
    """Return a recorded study; all trainings of a run of Snakemake have the same."""
    return published_study(json.loads(text))


def _dropped(study: Study, recorded: Study) -> Iterator[str]:
    """Yield the entries that a study had when a training started and no longer shows."""
    for key in LISTS:
        dropped = [n for n in getattr(recorded.run, key) if n not in getattr(study.run, key)]
        if dropped:
            yield f"lists {key} that are not shown: {', '.join(map(str, dropped))}"
    for name in {*study.run.benchmarks} & {*recorded.run.benchmarks}:
        asked, shown = (one.benchmarks[name].samples for one in (recorded, study))
        if asked > shown:
            yield f"requests {asked} samples of {name}, {shown} are shown"


def _file_errors(results: Results) -> Iterator[str]:
    """Yield each published file that is not as the trainings name it, and each that none names."""
    belongs = results.layout
    named: dict[str, str] = {}
    for run, record in results.runs.items():
        for path, stated in named_by(run, record).items():
            # Not the weights of a step that the study no longer evaluates.
            if belongs.of_training(path) and named.setdefault(path, stated) != stated:
                yield f"{path}: trainings name different ones"
    for path, stated in named.items():
        if (found := results.digest_of(path)) != stated:
            yield f"{path}: {'not what its training names' if found else 'missing, its training names it'}"
    published = {path for path in results.files.keys() | results.sums if belongs.of_training(path)}
    yield from (f"{path}: no training names it" for path in sorted(published - named.keys()))
    for checkpoint in results.study.checkpoints():
        inside = place_of(results.study, checkpoint)
        if not any(path.startswith(f"{inside}/") and path.endswith(WEIGHTS) for path in named):
            yield f"{inside}: its training names no weights"


def record_errors(results: Results) -> Iterator[str]:
    """Yield a line for each training whose metrics contradict it, and each intervention of other settings."""
    for run, record in results.runs.items():
        for fault in _step_faults(record, list(results.metrics(run)), results.study.training.steps):
            yield f"runs/{run}/metrics.jsonl: {fault}"
    for job in jobs_of(results.study).all("intervene"):
        if recorded_intervention(job, results.root) != job.fingerprint:
            yield f"{job.outputs[0]}: made with other settings"


def _step_faults(record: dict[str, Any], steps: list[Any], expected: int) -> Iterator[str]:
    """Yield what the metrics of a training contradict in its provenance."""
    if [step["step"] for step in steps] != [*range(1, expected + 1)] or record["steps"] != expected:
        yield f"not the steps 1 to {expected} in order, each once"
        return
    taken = sum(step["seconds"].get(phase, 0.0) for step in steps for phase in PHASES)
    on_gpus = taken * record["attempts"][-1]["processes"] if record["environment"]["gpus"] else 0.0
    for name, found in (("seconds", taken), ("gpu_seconds", on_gpus)):
        if abs(record[name] - found) > ROUNDING * max(found, 1.0):
            yield f"gives {name} {found}, its provenance says {record[name]}"
