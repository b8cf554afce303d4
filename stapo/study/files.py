"""Files that a study names: their absolute paths, and the settings that their content gives.

Relative paths mean the folder of the study file that contains them; a study that was read has absolute ones,
and a published one names alone. Checksums of contents are settings of the study, and so part of fingerprints:
a file that changes reruns what depends on it.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from stapo.methods import METHODS
from stapo.study import model_folder
from stapo.study.code import (
    Arguments,
    arguments_of,
    found_path,
    function_name,
    sha256_of,
    with_settings,
)
from stapo.study.loader import Document, Place, Problem, StudyError, read_text
from stapo.study.rows import checksum, placed_rows
from stapo.study.sources import FileData, FolderModel
from stapo.study.study import Study

PATHS: tuple[Place, ...] = (
    ("benchmarks", "*", "file"),
    ("data", "file"),
    ("models", "*", "path"),
)
"""Settings that name a file, `*` for any name."""
CODE: tuple[Place, ...] = (("methods", "*", "selection"), ("training", "reward"))
"""Settings that name a function in a file."""
TEMPLATE: Place = ("models", "*", "chat_template")

Used = tuple[Place, dict[str, Any], Callable[[], dict[str, Any]]]
"""A file that a study uses: place of the setting that names it; what its content gives -> what the study says
of it, None if nothing; function that reads it and returns what its content gives."""


def place_files(document: Document, folder: Path) -> Document:
    """Return a study file with absolute paths, and chat templates replaced by their text.

    Raises:
        StudyError: a chat template cannot be read.
    """

    def absolute(name: str) -> str:
        return os.path.abspath(folder / os.path.expanduser(name))

    content = with_files(document.content, absolute)
    for section, place in _matching(content, TEMPLATE):
        name = section[place[-1]]
        if isinstance(name, str) and name.endswith(".jinja"):
            try:
                section[place[-1]] = read_text(Path(absolute(name)))
            except StudyError as error:
                raise StudyError(document.errors([(place, error.errors[0])])) from error
    return Document(content, document.lines)


def with_files(raw: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return a study with the paths changed in all settings that name a file."""
    found = deepcopy(raw)
    for path in (*PATHS, *CODE):
        for section, place in _matching(found, path):
            value = section[place[-1]]
            if not isinstance(value, str) or not value:
                continue
            if path in PATHS:
                section[place[-1]] = change(value)
            elif ":" in value:
                file, _, function = value.rpartition(":")
                section[place[-1]] = f"{change(file)}:{function}"
    return found


def _matching(section: Any, path: Place, above: Place = ()) -> Iterator[tuple[Any, Place]]:
    """Yield each mapping with a setting whose place matches a path with `*`, and that place."""
    if isinstance(section, dict):
        for key in [*section] if path[0] == "*" else [path[0]] if path[0] in section else []:
            if len(path) == 1:
                yield section, (*above, key)
            else:
                yield from _matching(section[key], path[1:], (*above, key))


def contents(study: Study, is_read: bool) -> tuple[dict[str, Any], list[Problem]]:
    """Return the settings that the files of a study give, as nested mappings, and problems.

    Args:
        study: the study, or a draft of it.
        is_read: whether its files are read; otherwise, as in a published study, it must contain the settings.
    """
    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for place, stated, read in _used(study):
        try:
            given = read() if is_read else {}
            _require_stated(stated, given, is_read)
        except StudyError as error:
            problems += [(place, line) for line in error.errors]
            continue
        section = found
        for key in place[:-1]:
            section = section.setdefault(str(key), {})
        section |= given
    return found, problems


def _require_stated(stated: Mapping[str, Any], given: Mapping[str, Any], is_read: bool) -> None:
    absent = [key for key, value in stated.items() if value is None]
    if absent and not is_read:
        raise StudyError([f"the file was not read; {' and '.join(absent)} missing"])
    wrong = [
        f"{key}: expected {value}, found {given[key]}; if this is intended, write the found value"
        for key, value in stated.items()
        if key in given and value not in (None, given[key])
    ]
    if wrong:
        raise StudyError(wrong)


def _used(study: Study) -> Iterator[Used]:
    """Yield each file that a study uses; of a draft, those whose settings are valid."""
    data, training = study.data, study.training
    for name in dict.fromkeys(study.evaluated()):
        own = study.benchmarks.get(name)
        if own and own.file:
            stated = {"rows": own.rows, "sha256": own.sha256}
            yield ("benchmarks", name, "file"), stated, partial(_rows, own.file, is_unique=True)
    if isinstance(data, FileData) and data.file:
        stated = {"rows": data.rows, "sha256": data.sha256}
        yield ("data", "file"), stated, partial(_rows, data.file)
    for size in dict.fromkeys(study.run.sizes):
        model = study.models.get(size)
        if isinstance(model, FolderModel) and model.path:
            yield ("models", size, "path"), {"sha256": model.sha256}, partial(_model, model.path)
    for name in _trained(study):
        given = study.methods.get(name)
        if given and given.selection and name not in METHODS:
            read = partial(_selection, given.selection, given.selection_args or {})
            stated = {"selection_sha256": given.selection_sha256}
            yield ("methods", name, "selection"), stated, read
    if training.reward and ":" in training.reward:
        sha256 = training.reward_sha256
        yield ("training", "reward"), {"reward_sha256": sha256}, partial(_reward, training.reward)


def _trained(study: Study) -> list[str]:
    """Return the methods that a study uses, and their bases."""
    methods = [*study.run.methods, study.interventions.method]
    return list(dict.fromkeys(one for name in methods for one in study.lineage(name)))


def _rows(file: str, is_unique: bool = False) -> dict[str, Any]:
    rows = placed_rows(Path(file), is_unique).values()
    return {"rows": len(rows), "sha256": checksum(rows)}


def _model(folder: str) -> dict[str, Any]:
    if errors := model_folder.faults(Path(folder)):
        raise StudyError(errors)
    return {"sha256": model_folder.checksum(Path(folder))}


def _selection(reference: str, args: Arguments) -> dict[str, Any]:
    """Return the checksum of a token selection, and its arguments with the defaults of those not given."""
    file = found_path(reference)
    taken = with_settings(arguments_of(file, function_name(reference)), args, reference)
    return {"selection_args": taken, "selection_sha256": sha256_of(file)}


def _reward(reference: str) -> dict[str, Any]:
    return {"reward_sha256": sha256_of(found_path(reference))}
