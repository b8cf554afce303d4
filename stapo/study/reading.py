"""From files to a study: what it extends, the catalogue, and every error at once.

A study says what to compare; `workflows/catalogue.yaml` says what can be chosen. Both are merged as
Snakemake merges configuration files: mappings deeply, lists replaced.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, reduce
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stapo.files import json_text
from stapo.methods import METHODS
from stapo.repository import CATALOGUE, STUDIES
from stapo.study.checks import cross_problems
from stapo.study.contents import with_contents
from stapo.study.interventions import intervention_problems
from stapo.study.loader import (
    MAX_BYTES,
    Document,
    StudyError,
    document_of,
    line_of,
    load_yaml,
    shown_path,
)
from stapo.study.own_checks import own_problems
from stapo.study.places import place_files
from stapo.study.raw import section_of
from stapo.study.study import Study
from stapo.study.validation import KINDS, Problem, field_problems, lines, shown
from stapo.tasks import benchmark_definitions

BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""Name of a bound in pydantic -> in JSON schemas."""


def merge(base: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Merge as Snakemake merges configuration files: mappings deeply, everything else replaced.

    So is a mapping whose kind changes: what comes from the Hub has nothing of what a builder makes.
    """
    kinds, others = (set(KINDS) & one.keys() for one in (base, update))
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
    documents = [_loaded(path) for path in paths]
    documents.append(place_files(document_of(changes or {}, "--config"), Path.cwd()))
    return _study(with_contents(_extended(reduce(_over, documents, Document()))))


def parse_study(raw: Mapping[str, Any]) -> Study:
    """Return a study, merged over what it extends and over the catalogue.

    Raises:
        StudyError: with every error, one line each, that begins with the place in the study.
    """
    if not isinstance(raw, Mapping):
        raise StudyError(["expected a mapping with name, training, run, ..."])
    return _study(_extended(document_of(raw)))


def _loaded(path: Path) -> Document:
    return place_files(load_yaml(path), path.parent)


def _over(base: Document, update: Document) -> Document:
    """Return a document merged over another, with the lines and the problems of both."""
    merged = merge(base.content, update.content)
    lines = {**base.lines, **update.lines}
    for place in base.lines.keys() & update.lines.keys():
        below, above = (section_of(one, *place) for one in (base.content, update.content))
        if below and above and below.keys() <= section_of(merged, *place).keys():
            # Of a section that both have: what is missing in it may be missing in either file.
            lines[place] = f"{base.lines[place]}, {update.lines[place]}"
    return Document(merged, lines, base.problems + update.problems)


def _extended(document: Document) -> Document:
    """Return a study merged over the one that it extends, and so on, down to the catalogue.

    Raises:
        StudyError: no such study, or one that extends itself.
    """
    if "extends" in document.content and "name" not in document.content:
        # Its results would land among those of the study that it extends.
        line = line_of(("extends",), document.lines)
        raise StudyError([f"name: missing; a study that extends another has one of its own{line}"])
    chain, seen = [document], []
    while "extends" in chain[-1].content:
        name = chain[-1].content["extends"]
        known = sorted(found.stem for found in STUDIES.glob("*.yaml"))
        if not isinstance(name, str):
            name = shown(name)
        if name in seen or name not in known:
            about = "extends itself; choose another" if name in seen else _unknown(name, known)
            line = line_of(("extends",), chain[-1].lines)
            raise StudyError([f"extends: {name!r}: {about}{line}"])
        seen.append(name)
        chain.append(_loaded(STUDIES / f"{name}.yaml"))
    merged = reduce(_over, reversed(chain), load_yaml(CATALOGUE))
    merged.content.pop("extends", None)
    return merged


def _unknown(name: str, known: list[str]) -> str:
    """Return what to do about a name of no study."""
    # Somebody may have written the file instead of the name.
    close = get_close_matches(Path(name[:100]).stem, known, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"no such study; {meant}ls {shown_path(STUDIES)} lists them, without .yaml"


def _study(document: Document) -> Study:
    raw, study = document.content, None
    problems: list[Problem] = []
    try:
        study = Study.model_validate(raw)
    except ValidationError as error:
        problems = field_problems(error, raw, _schema())
    # What could not be read is not judged a second time.
    unread = {place for place, _ in document.problems}
    problems += [
        *cross_problems(raw, benchmark_definitions()),
        *own_problems(raw, benchmark_definitions()),
        *intervention_problems(raw),
    ]
    errors = lines(document.problems) + [
        line + line_of(place, document.lines)
        for (place, _), line in zip(problems, lines(problems), strict=True)
        if not any(place[: len(one)] == one for one in unread)
    ]
    if study is not None and not errors:
        errors = _too_long(study)
    if errors or study is None:
        raise StudyError(errors)
    return study


def resolved_content(study: Study) -> dict[str, Any]:
    """Return a study as JSON has it, from which it can be read again."""
    return {**published_content(study), **study.model_dump(include={"places"})}


def published_content(study: Study) -> dict[str, Any]:
    """Return a study as it is published: without where files lie on this machine."""
    found = study.model_dump(mode="json", exclude_none=True, exclude={"places"})
    # Left out, it would be read again as the default, the comparison of STAPO.
    return {**found, "compare": None} if study.compare is None else found


def _too_long(study: Study) -> list[str]:
    """Refuse a study whose resolved file the commands would refuse: it is longer than the study's own."""
    characters = len(json_text(resolved_content(study)))
    if characters <= MAX_BYTES:
        return []
    return [f"too long: {characters} characters as JSON; at most {MAX_BYTES}"]


@cache
def _schema() -> dict[str, Any]:
    return Study.model_json_schema()


def study_schema() -> dict[str, Any]:
    """Return the JSON schema of study files, for editors."""
    schema = Study.model_json_schema()
    schema["$defs"]["Run"]["properties"]["methods"]["items"]["examples"] = list(METHODS)
    # What a file leaves out may stand in the study that it extends, or in the catalogue.
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Study of workflows/studies, without .yaml, that this one changes; default: none",
    }
    for part in (schema, *schema["$defs"].values()):
        part.pop("required", None)
    found: dict[str, Any] = _with_bounds(schema)
    return found


def _with_bounds(schema: Any) -> Any:
    """Return a JSON schema with the bounds of numbers as editors read them.

    Pydantic writes the bounds of a type that has a validator before them under its own names.
    """
    if isinstance(schema, list):
        return [_with_bounds(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {BOUNDS.get(key, key): _with_bounds(value) for key, value in schema.items()}
