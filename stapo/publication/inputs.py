"""Check of training prompts, their overlap with benchmarks, and the models against the study."""

import json
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from stapo.evaluation.task import rows_of
from stapo.files import read_json, read_jsonl
from stapo.publication.folder import Results
from stapo.stages import jobs_of
from stapo.stages.prepare import recorded_base
from stapo.study import StudyError
from stapo.study.files import rows_checksum
from stapo.study.sources import FileData, HubData, HubModel, TinyData
from stapo.training.prompts import check_overlap, checksum, read_prompts, tiny_prompts

ABOUT, PROMPTS, OVERLAP = "data/prompts.json", "data/prompts.jsonl", "data/overlap.json"


def input_errors(results: Results) -> Iterator[str]:
    """Yield a line for each input of the trainings that contradicts the study."""
    about = read_json(results.folder / ABOUT)
    for name, expected in _wanted(results).items():
        if expected is not None and about[name] != expected:
            yield f"{ABOUT}: {name} {about[name]}, by the study {expected}"
    yield from model_errors(results)
    if not results.is_summary:
        yield from _prompt_errors(results, about) or _overlap_errors(results)


def _wanted(results: Results) -> dict[str, int | str | None]:
    """Return what the study says of its prompts, None for what it leaves open."""
    data = results.study.data
    if isinstance(data, HubData):
        return {"unique": data.unique_prompts, "sha256": data.sha256}
    if isinstance(data, FileData):
        return {"rows": data.rows}
    return {"rows": data.prompts, "unique": data.prompts}


def _prompt_errors(results: Results, about: Any) -> list[str]:
    """Return what is wrong with the prompts: their content, or what `data/prompts.json` says of them."""
    path, data = results.folder / PROMPTS, results.study.data
    if isinstance(data, TinyData):
        records = read_jsonl(path)
        for number, (found, made) in enumerate(zip_longest(records, tiny_prompts(data)), 1):
            if found != made:
                return [f"{PROMPTS}: line {number}: not the prompt that the study's data give"]
    prompts = read_prompts(path)
    if (about["prompts"], about["sha256"]) != (len(prompts), checksum(prompts)):
        return [f"{ABOUT}: does not belong to {PROMPTS}"]
    if not about["rows"] >= about["unique"] == about["conflicting"] + len(prompts):
        return [f"{ABOUT}: its numbers are inconsistent"]
    # Of a file with repeated questions, some rows are no prompts.
    whole = isinstance(data, FileData) and about["rows"] == len(prompts)
    if whole and rows_checksum(prompts) != getattr(data, "sha256", None):
        return [f"{PROMPTS}: not the rows of the study's file, by their checksum"]
    return []


def _overlap_errors(results: Results) -> list[str]:
    """Return what is wrong with the recorded overlap of prompts and benchmarks."""
    study = results.study
    decoding, checkpoint = study.run.decodings[0], next(study.checkpoints())
    questions = {}
    for benchmark in study.run.benchmarks:
        rows = rows_of(study.task(benchmark), results.responses(checkpoint, decoding, benchmark))
        questions[benchmark] = [row["question"] for row in rows]
    published = isinstance(study.data, HubData)
    try:
        found = check_overlap(results.folder / PROMPTS, questions, published)
    except StudyError as error:
        return [line.rpartition("/")[2] for line in error.errors]
    if read_json(results.folder / OVERLAP) != found:
        common = json.dumps(found)[:200]
        return [f"{OVERLAP}: not what prompts and benchmarks have in common: {common}"]
    return []


def model_errors(results: Results) -> Iterator[str]:
    """Yield the models whose recorded source differs from the study's."""
    study = results.study
    for job in jobs_of(study).all("base"):
        if recorded_base(job, results.root) != job.fingerprint:
            yield f"{job.outputs[0]}: not the study's model"
    asked: dict[str, Any] = {size: study.models[size] for size in study.run.sizes}
    asked["verifier"] = study.evaluation.verifier
    stated = read_json(results.folder / "provenance.json")["models"]
    for name, model in asked.items():
        source = stated.get(name, {})
        found = (source.get("hub"), source.get("revision"))
        is_of_hub = isinstance(model, HubModel) or (name == "verifier" and model is not None)
        if found != ((model.hub, model.revision) if is_of_hub else (None, None)):
            yield f"models/{name}: comes from {found[0]} at {found[1]}, which the study does not say"
        elif is_of_hub and model.revision not in ("main", source.get("commit")):
            yield f"models/{name}: is of commit {source.get('commit')}, the study pins {model.revision}"
