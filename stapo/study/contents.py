"""Contents of the files that a study names: read when the study is read, and checked.

Their checksums become settings of the study, and so part of fingerprints: a file that changes reruns what
depends on it. A published study has the checksums, not the files.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from stapo.study import model_folder
from stapo.study.loader import Document, Place, StudyError, line_of
from stapo.study.places import named_files
from stapo.study.rows import checksum, read_rows, repeated

Contents = Callable[[dict[str, Any], Path], dict[str, Any]]
"""From a section and the path of its file to the settings that its content gives."""


def with_contents(document: Document) -> Document:
    """Return a merged study with the settings that its files give; of files that it uses alone."""
    places = document.content.get("places", {})
    named = {".".join(map(str, place)) for place, _ in named_files(document.content)}
    content, problems = deepcopy(document.content), list(document.problems)
    # A file that another study file replaced is named no longer.
    content["places"] = {key: path for key, path in places.items() if key in named}
    for place, key, contents in _used(content):
        path = content["places"].get(".".join((*place, key)))
        section = _section(content, place)
        if path is None or section is None:
            continue
        try:
            found = contents(section, Path(path))
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


def _benchmark(section: dict[str, Any], path: Path) -> dict[str, Any]:
    columns = section.get("question"), section.get("answer")
    if not all(isinstance(one, str) for one in columns):
        return {}  # Reported with the other settings.
    rows = read_rows(path, *map(str, columns))
    if errors := repeated(rows, path):
        raise StudyError(errors)
    return {"rows": len(rows), "sha256": checksum(rows)}


def _prompts(section: dict[str, Any], path: Path) -> dict[str, Any]:
    columns = section.get("question", "question"), section.get("answer", "answer")
    if not all(isinstance(one, str) for one in columns):
        return {}
    rows = read_rows(path, *map(str, columns))
    return {"rows": len(rows), "sha256": checksum(rows)}


def _model(section: dict[str, Any], path: Path) -> dict[str, Any]:
    if errors := model_folder.faults(path):
        raise StudyError(errors)
    return {"sha256": model_folder.checksum(path)}
