"""Check of training prompts, their overlap with benchmarks, and the sources of models against the study."""

import json
from collections.abc import Iterator

from stapo.evaluation.task import rows_of
from stapo.publication import untrusted
from stapo.publication.folder import MAX_PROMPTS, PROMPT_BYTES, Results
from stapo.publication.manifest import about_study
from stapo.study import StudyError, identity
from stapo.study.rows import checksum as rows_checksum
from stapo.study.sources import Data, FileData, HubData, HubModel, TinyData
from stapo.training.prompts import check_overlap, checksum, read_prompts, tiny_prompts

COUNTS = ("conflicting", "prompts", "rows", "unique")
"""Keys of `data/prompts.json`, besides the checksum."""


def input_errors(results: Results) -> Iterator[str]:
    """Yield a line for each input of the trainings that contradicts the study."""
    prompts = list(_prompt_errors(results))
    yield from prompts or _count_errors(results)
    yield from _overlap_errors(results)
    yield from origin_errors(results)


def _prompt_errors(results: Results) -> Iterator[str]:
    path, data = results.folder / "data/prompts.jsonl", results.study.data
    records = untrusted.json_lines(path, PROMPT_BYTES, MAX_PROMPTS)
    if not isinstance(data, TinyData):
        seen: set[str] = set()
        for number, record in enumerate(records, 1):
            texts = record.values() if isinstance(record, dict) else ()
            if list(record) != ["question", "answer"] or not all(isinstance(t, str) for t in texts):
                yield f"data/prompts.jsonl: line {number}: no question and answer"
                return
            if record["question"] in seen:
                yield f"data/prompts.jsonl: line {number}: the question occurs twice"
                return
            seen.add(record["question"])
        return
    lines = sum(1 for _ in untrusted.raw_lines(path, PROMPT_BYTES, MAX_PROMPTS))
    if lines != data.prompts:
        yield f"data/prompts.jsonl: {lines} prompts, the study has {data.prompts}"
        return
    for number, (found, made) in enumerate(zip(records, tiny_prompts(data), strict=True), 1):
        if found != made:
            yield f"data/prompts.jsonl: line {number}: differs from the prompt that the study's data give"
            return


def _count_errors(results: Results) -> Iterator[str]:
    """Yield the entries of `data/prompts.json` that contradict the prompts or the study."""
    name, data = "data/prompts.json", results.study.data
    about = untrusted.read_json(results.folder / name)
    if not isinstance(about, dict) or about.keys() != {*COUNTS, "sha256"}:
        yield f"{name}: expected {', '.join(COUNTS)} and sha256"
        return
    if not all(type(about[key]) is int and about[key] >= 0 for key in COUNTS):
        yield f"{name}: a value is not a number of prompts"
        return
    try:
        found = read_prompts(results.folder / "data/prompts.jsonl")
    except StudyError:
        return  # There are no prompts, which the check of the overlap reports.
    if (about["prompts"], about["sha256"]) != (len(found), checksum(found)):
        yield f"{name}: does not belong to data/prompts.jsonl"
    if not about["rows"] >= about["unique"] == about["conflicting"] + about["prompts"]:
        yield f"{name}: its numbers are inconsistent"
    # Of a file with repeated questions, some rows are no prompts.
    whole = isinstance(data, FileData) and about["rows"] == len(found)
    if whole and rows_checksum(found) != getattr(data, "sha256", None):
        yield f"{name}: not the rows of the study's file, by their checksum"
    for key, value in _wanted(data).items():
        if value is not None and value != about[key]:
            yield f"{name}: {key} {about[key]}, by the study {value}"


def _wanted(data: Data) -> dict[str, int | str | None]:
    """Return what a study says of its prompts, None for what it leaves open."""
    if isinstance(data, HubData):
        return {"unique": data.unique_prompts, "sha256": data.sha256}
    if isinstance(data, FileData):
        return {"rows": data.rows}
    return {"rows": data.prompts, "unique": data.prompts}


def _overlap_errors(results: Results) -> Iterator[str]:
    study, name = results.study, "data/overlap.json"
    decoding, checkpoint = study.run.decodings[0], next(study.checkpoints())
    questions = {}
    for benchmark in study.evaluated():
        rows = rows_of(study.task(benchmark), results.responses(checkpoint, decoding, benchmark))
        questions[benchmark] = [row["question"] for row in rows]
    published = isinstance(study.data, HubData)
    try:
        found = check_overlap(results.folder / "data/prompts.jsonl", questions, published)
    except StudyError as error:
        yield from (line.rpartition("/")[2] for line in error.errors)
        return
    if untrusted.read_json(results.folder / name) != found:
        yield f"{name}: not what prompts and benchmarks have in common: {json.dumps(found)[:200]}"


def origin_errors(results: Results) -> Iterator[str]:
    """Yield the models whose recorded source differs from the study's."""
    study = results.study
    made_from = {
        f"models/{size}/base.json": identity.model_settings(study.models[size])
        for size in study.run.sizes
    }
    if study.evaluation.verifier:
        made_from["models/verifier.json"] = identity.verifier_config(study)
    for path, expected in made_from.items():
        if untrusted.read_json(results.folder / path) != expected:
            yield f"{path}: not the study's model"
    sources = about_study(study, results.root)["models"]
    models = {size: study.models[size] for size in study.run.sizes}
    asked = {name: model for name, model in models.items() if isinstance(model, HubModel)}
    for name in sources.keys() | asked.keys():
        model, source = asked.get(name) or study.evaluation.verifier, sources.get(name)
        if name in models and name not in asked:
            yield f"models/{name}: says that it comes from the Hub, the study builds it"
        elif source is None or model is None:
            yield f"models/{name}: does not say where it comes from"
        elif (source.get("hub"), source.get("revision")) != (model.hub, model.revision):
            yield f"models/{name}: comes from {source.get('hub')}, the study names {model.hub}"
        elif model.revision not in ("main", source.get("commit")):
            yield f"models/{name}: is of commit {source.get('commit')}, the study pins {model.revision}"
