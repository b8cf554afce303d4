"""Contents of the files that a study names: read when the study is read, and checked.

Their checksums become settings of the study, and so part of fingerprints: a file that changes reruns what
depends on it. A published study has the checksums, not the files.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from stapo.study import model_folder
from stapo.study.code import (
    arguments_of,
    entry_point,
    function_name,
    path_of,
    sha256_of,
    with_settings,
)
from stapo.study.fields import REWARDS, Value
from stapo.study.loader import Document, Place, StudyError, line_of
from stapo.study.places import named_files
from stapo.study.raw import lineage
from stapo.study.rows import checksum, placed_rows, read_rows

Contents = Callable[[dict[str, Any], Path | None], dict[str, Any]]
"""From a section and the path of its file, None for a module, to the settings that its content gives."""
ENTRY_POINTS = {"selection": "stapo.selections", "reward": "stapo.rewards"}
"""Setting that names a function -> group of entry points in which packages declare theirs by name."""
ARGUMENTS: TypeAdapter[dict[str, int | float | str]] = TypeAdapter(dict[str, Value])


def with_contents(document: Document) -> Document:
    """Return a merged study with the settings that its files give; of files that it uses alone."""
    places = document.content.get("places", {})
    named = {".".join(map(str, place)) for place, _ in named_files(document.content)}
    content, problems = deepcopy(document.content), list(document.problems)
    # A file that another study file replaced is named no longer.
    content["places"] = {key: path for key, path in places.items() if key in named}
    _resolve_entry_points(content)
    for place, key, contents in _used(content):
        path = content["places"].get(".".join((*place, key)))
        section = _section(content, place)
        if section is None:
            continue
        try:
            found = contents(section, Path(path) if path else None)
            section |= _as_stated(section, found)
        except StudyError as error:
            at: Place = (*place, key)
            where = line_of(at, document.lines)
            problems += [(at, f"{line}{where}") for line in error.errors]
    if not content["places"]:
        del content["places"]
    return Document(content, document.lines, problems)


def _used(raw: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str, Contents]]:
    """Yield the section, the key of the file, and the reader of each file that a study uses."""
    run, evaluation = _section(raw, ("run",)) or {}, _section(raw, ("evaluation",)) or {}
    for name in [*_texts(run.get("benchmarks")), *_texts(evaluation.get("development"))]:
        yield ("benchmarks", name), "file", _benchmark
    yield ("data",), "file", _prompts
    for size in _texts(run.get("sizes")):
        yield ("models", size), "path", _model
    seen: set[str] = set()
    methods = _texts(run.get("methods"))
    intervened = (_section(raw, ("interventions",)) or {}).get("method")
    if isinstance(intervened, str):
        methods.append(intervened)
    for method in methods:
        # A base first, so that its arguments are known.
        line = [one for one in lineage(raw, method) if isinstance(one, str)]
        for name in dict.fromkeys(reversed(line)):
            if name not in seen:
                yield ("methods", name), "selection", partial(_selection, _above(raw, line, name))
            seen.add(name)
    yield ("training",), "reward", _reward


def _above(raw: Mapping[str, Any], line: list[str], name: str) -> dict[str, Any]:
    """Return the section of the nearest base of a method that has a selection of its own."""
    sections = [_section(raw, ("methods", one)) or {} for one in line[line.index(name) + 1 :]]
    return next((one for one in sections if one.get("selection")), {})


def _resolve_entry_points(raw: dict[str, Any]) -> None:
    """Replace names that installed packages declare by the functions that they stand for."""
    methods = _section(raw, ("methods",)) or {}
    for section in [*methods.values(), _section(raw, ("training",))]:
        for key, group in ENTRY_POINTS.items():
            name = section.get(key) if isinstance(section, dict) else None
            if isinstance(name, str) and re.fullmatch(r"[\w.-]+", name) and name not in REWARDS:
                section[key] = entry_point(group, name) or name


def _section(raw: Mapping[str, Any], place: tuple[str, ...]) -> dict[str, Any] | None:
    found: Any = raw
    for key in place:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, dict) else None


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _as_stated(section: Mapping[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that a content gives.

    Raises:
        StudyError: the study states other ones.
    """
    errors = [
        f"{key}: expected {section[key]}, found {value}; if this is intended, write the found value"
        for key, value in found.items()
        if section.get(key) not in (None, value)
    ]
    if errors:
        raise StudyError(errors)
    return found


def _benchmark(section: dict[str, Any], path: Path | None) -> dict[str, Any]:
    columns = section.get("question"), section.get("answer")
    if path is None or not all(isinstance(one, str) for one in columns):
        return {}  # Reported with the other settings.
    question, answer = map(str, columns)
    rows = placed_rows(path, question, answer, unique=True).values()
    return {"rows": len(rows), "sha256": checksum(rows)}


def _prompts(section: dict[str, Any], path: Path | None) -> dict[str, Any]:
    columns = section.get("question", "question"), section.get("answer", "answer")
    if path is None or not all(isinstance(one, str) for one in columns):
        return {}
    rows = read_rows(path, *map(str, columns))
    return {"rows": len(rows), "sha256": checksum(rows)}


def _model(section: dict[str, Any], path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    if errors := model_folder.faults(path):
        raise StudyError(errors)
    return {"sha256": model_folder.checksum(path)}


def _selection(above: dict[str, Any], section: dict[str, Any], path: Path | None) -> dict[str, Any]:
    """Return the checksum of a token selection; its arguments are completed with their defaults.

    Args:
        above: section of the base with a selection of its own, for a method that inherits one.
        section: section of the method.
        path: file of its selection, None for a module.
    """
    reference, stated = section.get("selection"), section.get("selection_args") or {}
    try:
        given = ARGUMENTS.validate_python(stated)
    except ValidationError:
        return {}  # Reported with the other settings.
    if reference is None and above:
        with_settings(above.get("selection_args") or {}, given, str(above["selection"]))
    if not isinstance(reference, str) or ":" not in reference:
        return {}
    file = path_of(reference, path)
    if file is None:
        about = "not found; install its package, or add its folder to PYTHONPATH"
        raise StudyError([f"{reference}: {about}"])
    defaults = arguments_of(file, function_name(reference))
    section["selection_args"] = with_settings(defaults, given, reference)
    return {"selection_sha256": sha256_of(file)}


def _reward(section: dict[str, Any], path: Path | None) -> dict[str, Any]:
    reference = section.get("reward")
    if not isinstance(reference, str) or ":" not in reference:
        return {}
    file = path_of(reference, path)
    # `check`, `doctor` and the training compare the checksum of a module.
    if file is None or (path is None and section.get("reward_sha256") is not None):
        return {}
    return {"reward_sha256": sha256_of(file)}
