"""Check of what the trainings and the interventions recorded against the study, the files and each other."""

import json
from collections.abc import Iterator
from typing import Any

from stapo import paths
from stapo.canonical import canonical
from stapo.paths import TOKENS_FILE
from stapo.publication import untrusted
from stapo.publication.commands import command_faults
from stapo.publication.folder import Results
from stapo.publication.manifest import WEIGHTS, named_by, place_of
from stapo.records.interventions import Intervention
from stapo.records.reading import record_of
from stapo.records.step import PHASES
from stapo.records.tokens import rows_per_step
from stapo.study import TrainingRun, identity
from stapo.study.titles import title_faults

ROUNDING = 1e-6
"""Relative tolerance of sums."""


def training_errors(results: Results) -> Iterator[str]:
    """Yield a line for each training of other settings, and each file that is not the one that it published.

    Of a file that was left out, the checksum in `SHA256SUMS` is compared.
    """
    yield from title_faults(results.study)
    for run, record in results.runs.items():
        faults = _setting_faults(results, run, record)
        yield from (f"runs/{run}/provenance.json: {fault}" for fault in faults)
    yield from _file_errors(results)


def _setting_faults(results: Results, run: TrainingRun, record: dict[str, Any]) -> Iterator[str]:
    """Yield what the record of a training contradicts in the study, the prompts and itself."""
    if record["fingerprint"] != identity.train_fingerprint(results.study, run):
        yield "of a training with other settings"
    elif canonical(record["config"]) != canonical(identity.train_config(results.study, run)):
        yield "its config is not the one of its fingerprint"
    if record["prompts"] != results.digest_of("data/prompts.jsonl"):
        yield "trained on other prompts than data/prompts.jsonl"
    for attempt in record["attempts"]:
        last = attempt is record["attempts"][-1]
        faults = command_faults(results.study, run, attempt, last)
        yield from (f"its command {fault}" for fault in faults)


def _file_errors(results: Results) -> Iterator[str]:
    """Yield each published file that is not as the trainings name it, and each that none names."""
    belongs = results.layout()
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
    """Yield a line for each contradiction between the records of a training, or of an intervention."""
    for run, record in results.runs.items():
        steps = list(results.metrics(run))
        faults = [*_step_faults(record, steps, results.study.training.steps)]
        yield from (f"runs/{run}/metrics.jsonl: {fault}" for fault in faults)
        if not faults:
            yield from (
                f"runs/{run}/{TOKENS_FILE}: {f}" for f in _token_faults(results, run, steps)
            )
    yield from _intervention_errors(results)


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


def _token_faults(results: Results, run: TrainingRun, steps: list[Any]) -> Iterator[str]:
    """Yield steps whose sampled tokens do not stand for the tokens that the metrics count."""
    training = results.study.training
    rows = results.tokens(run).to_pandas()
    if rows_per_step(training.token_records_mb, training.steps) < 4:
        return  # Not every kind of token is sampled.
    rows["candidate"] = rows["kind"] != "other"
    found = rows.groupby(["step", "candidate"])["weight"].sum().to_dict()
    for step in steps:
        candidates = step["num_candidates"]
        for kind, count in ((True, candidates), (False, step["num_tokens"] - candidates)):
            weight = found.pop((step["step"], kind), 0.0)
            if abs(weight - count) > ROUNDING * max(count, 1):
                what = "candidates" if kind else "other tokens"
                yield f"step {step['step']}: stands for {weight:g} {what}, its metrics count {count}"
                return
    if found:
        yield f"has tokens of step {next(iter(found))[0]}, which is none of the training's"


def _intervention_errors(results: Results) -> Iterator[str]:
    """Yield a line for each intervention that was made with other settings, or is incomplete."""
    study = results.study
    for checkpoint in study.intervened():
        at = {"study": study.name, "checkpoint": checkpoint, "suffix": "json"}
        path = paths.INTERVENTION.format(**at)
        found = record_of(Intervention, json.dumps(untrusted.read_json(results.root / path)))
        settings = study.interventions
        responses = settings.prompts * study.training_of(settings.method).group_size
        stated = (found.checkpoint, found.method, found.responses, len(found.repetitions))
        expected = (str(checkpoint), settings.method, responses, settings.repetitions)
        if found.fingerprint != identity.intervention_fingerprint(study, checkpoint):
            yield f"{path}: made with other settings"
        elif stated != expected:
            yield f"{path}: of {stated}, expected {expected}"
