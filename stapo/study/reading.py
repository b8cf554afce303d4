"""From files to a study: what it extends, the catalogue, and every error at once.

A study says what to compare; `workflows/catalogue.yaml` says what can be chosen. Both are merged as
Snakemake merges configuration files: mappings deeply, lists replaced.
"""

import os
from collections.abc import Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stapo.canonical import leaves
from stapo.methods import METHODS
from stapo.repository import CATALOGUE, STUDIES
from stapo.study.checks import cross_problems, size_problem
from stapo.study.fields import DRAFT
from stapo.study.files import contents, place_files, with_files
from stapo.study.loader import Document, StudyError, load_yaml, shown_path
from stapo.study.study import Study
from stapo.study.validation import close_name, field_problems, shown
from stapo.tasks import benchmark_definitions

KINDS = {"hub", "path", "file", "builder"}
"""Settings of a model or of data that say where it comes from; it has one of them."""

NOTHING_TRAINED: dict[str, Any] = {
    "data": {"builder": "tiny-arithmetic", "prompts": 1},
    "training": {
        "steps": 1, "prompts_per_batch": 1, "prompts_per_mini_batch": 1, "group_size": 2,
        "micro_batch_tokens": 1, "learning_rate": 1.0, "max_prompt_tokens": 1024, "max_response_tokens": 1,
    },
    "compare": None,
}  # fmt: skip
"""What a study without methods need not say, since nothing reads it."""


def merge(base: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Merge as Snakemake merges configuration files: mappings deeply, everything else replaced.

    So is a mapping whose kind changes: what comes from the Hub has nothing of what a builder makes.
    """
    kinds, others = (KINDS & one.keys() for one in (base, update))
    if kinds and others and kinds.isdisjoint(others):
        return dict(update)
    merged = dict(base)
    for key, value in update.items():
        old = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        merged[key] = merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def read_study(*paths: Path, changes: Mapping[str, Any] | None = None) -> Study:
    """Return the study of a file, merged over what it extends and over the catalogue.

    Args:
        *paths: study files; each is merged over those before it.
        changes: merged over all of them, as Snakemake's --config.

    Raises:
        StudyError: with every error, one line each, with place and line.
    """
    given = dict(changes or {})
    config = Document(given, dict.fromkeys(leaves(given) if given else (), "--config"))
    documents = [*map(_loaded, paths), place_files(config, Path.cwd())]
    return _study(_extended(reduce(_over, documents, Document())), is_read=True)


def parse_study(raw: Mapping[str, Any]) -> Study:
    """Return a study, merged over what it extends and over the catalogue; its files are not read.

    Raises:
        StudyError: with every error, one line each, that begins with the place in the study.
    """
    if not isinstance(raw, Mapping):
        raise StudyError(["expected a mapping with name, training, run, ..."])
    return _study(_extended(Document(dict(raw))), is_read=False)


def _loaded(path: Path) -> Document:
    return place_files(load_yaml(path), path.parent)


def _over(base: Document, update: Document) -> Document:
    """Return a document merged over another, with the lines of both."""
    return Document(merge(base.content, update.content), base.lines | update.lines)


def _extended(document: Document) -> Document:
    """Return a study merged over the one that it extends, and so on, down to the catalogue.

    Raises:
        StudyError: no such study, or one that extends itself.
    """
    if "extends" in document.content and "name" not in document.content:
        # Its results would be written among those of the study that it extends.
        about = "name missing; a study that extends another has one of its own"
        raise StudyError(document.errors([(("extends",), about)]))
    chain, seen = [document], []
    while "extends" in chain[-1].content:
        name = chain[-1].content["extends"]
        known = sorted(found.stem for found in STUDIES.glob("*.yaml"))
        if name in seen or name not in known:
            # Somebody may have written the file instead of the name.
            stem = Path(str(name)[:100]).stem
            meant = stem if stem in known else close_name(stem, known)
            hint = f"did you mean {meant}? " if meant else ""
            about = f"no such study; {hint}ls {shown_path(STUDIES)} lists them, without .yaml"
            about = "extends itself; choose another" if name in seen else about
            problem = (("extends",), f"{shown(name)}: {about}")
            raise StudyError(chain[-1].errors([problem]))
        seen.append(name)
        chain.append(_loaded(STUDIES / f"{name}.yaml"))
    merged = reduce(_over, reversed(chain), load_yaml(CATALOGUE))
    merged.content.pop("extends", None)
    return merged


def _study(document: Document, is_read: bool) -> Study:
    """Return the study of a merged document.

    Raises:
        StudyError: with every error, one line each.
    """
    raw, fields = document.content, []
    if isinstance(raw.get("run"), dict) and raw["run"].get("methods") == []:
        raw = merge(NOTHING_TRAINED, raw)
    try:
        study = Study.model_validate(raw)
    except ValidationError as error:
        fields = list(field_problems(error, raw, _schema()))
        study = Study.model_validate(raw, context=DRAFT)
    found, files = contents(study, is_read)
    # A section that contains a bad value is not judged again.
    wrong = {at for place, _ in fields for at in (place, place[:2])}
    others = [*cross_problems(study, benchmark_definitions()), *files]
    problems = [*fields, *(one for one in others if one[0] not in wrong)]
    if problems:
        raise StudyError(document.errors(problems))
    study = Study.model_validate(merge(raw, found)) if found else study
    if too_many := size_problem(study):
        raise StudyError(document.errors([too_many]))
    return study


def resolved_content(study: Study) -> dict[str, Any]:
    """Return a study as JSON has it, from which it can be read again."""
    found = study.model_dump(mode="json", exclude_none=True)
    # Left out, it would be read again as the default, the comparison of STAPO.
    return {**found, "compare": None} if study.compare is None else found


def published_content(study: Study) -> dict[str, Any]:
    """Return a study as it is published: without where files lie on this machine."""
    return with_files(resolved_content(study), os.path.basename)


@cache
def _schema() -> dict[str, Any]:
    return Study.model_json_schema()


def study_schema() -> dict[str, Any]:
    """Return the JSON schema of study files, for editors."""
    schema: dict[str, Any] = Study.model_json_schema()
    schema["$defs"]["Run"]["properties"]["methods"]["items"]["examples"] = list(METHODS)
    # What a file leaves out may stand in the study that it extends, or in the catalogue.
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Study of workflows/studies, without .yaml, that this one changes; default: none",
    }
    for part in (schema, *schema["$defs"].values()):
        part.pop("required", None)
    return schema
