"""Files that a study names: where they lie, and the settings that their content gives.

Relative paths mean the folder of the study file that contains them. A job may read the resolved study
elsewhere, so their absolute paths are kept beside what the file says, in `Study.places`; those are not
published. Checksums of contents are settings of the study, and so part of fingerprints: a file that changes
reruns what depends on it.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stapo.methods import METHODS
from stapo.study import model_folder
from stapo.study.code import (
    NOT_FOUND,
    Arguments,
    arguments_of,
    function_name,
    is_file,
    path_of,
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
    ("methods", "*", "selection"),
    ("training", "reward"),
)
"""Settings that name a file, `*` for any name; the last two with a function in it, after a colon."""
TEMPLATE: Place = ("models", "*", "chat_template")


def place_files(document: Document, folder: Path) -> Document:
    """Return a study file with the absolute paths of the files that it names, before it is merged.

    Chat templates are replaced by their text.

    Raises:
        StudyError: it contains `places` of its own.
    """
    if "places" in document.content:
        line = document.line_of(("places",))
        raise StudyError([f"places: unknown key; remove it{line}"])
    content, problems = deepcopy(document.content), list(document.problems)
    for place, name in matching(document.content, TEMPLATE):
        if isinstance(name, str) and name.endswith(".jinja"):
            try:
                text = read_text(folder / os.path.expanduser(name))
                content["models"][place[1]]["chat_template"] = text
            except StudyError as error:
                problems.append((place, error.errors[0]))
    places = {
        ".".join(map(str, place)): os.path.abspath(folder / os.path.expanduser(name))
        for place, name in named_files(content)
    }
    if places:
        content["places"] = places
    return Document(content, document.lines, problems)


def named_files(raw: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Yield the place in a study and the text of each setting that names a file."""
    for path in PATHS:
        for place, value in matching(raw, path):
            if not isinstance(value, str) or not value or "\0" in value:
                continue
            if path not in PATHS[-2:]:
                yield place, value
            elif is_file(value):
                yield place, value.rpartition(":")[0]


def matching(value: Any, path: Place, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield each place in nested mappings that matches a path with `*`, and its value."""
    if not path:
        yield place, value
    elif isinstance(value, Mapping):
        for key in list(value) if path[0] == "*" else [path[0]]:
            if key in value:
                yield from matching(value[key], path[1:], (*place, key))


class _Used(NamedTuple):
    """A file that a study uses."""

    place: Place
    """Place of the setting that names it."""
    named: str
    stated: dict[str, Any]
    """What its content gives -> what the study says of it, None if nothing."""
    read: Callable[[Path | None], dict[str, Any]]
    """Function of the file, None for a module, that returns the settings which its content gives."""


def contents(study: Study, is_read: bool) -> tuple[dict[str, Any], list[Problem]]:
    """Return the settings that the files of a study give, as nested mappings, and problems.

    Args:
        study: the study, or a draft of it.
        is_read: whether its files are read; otherwise, as in a published study, it must contain the settings.
    """
    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for one in _used(study):
        if not is_read:
            if absent := [key for key, value in one.stated.items() if value is None]:
                about = f"{one.named} was not read; {' and '.join(absent)} missing"
                problems.append((one.place, about))
            continue
        name = study.places.get(".".join(map(str, one.place)))
        try:
            given = one.read(Path(name) if name else None)
            _require_stated(one.stated, given)
        except StudyError as error:
            problems += [(one.place, line) for line in error.errors]
            continue
        section = found
        for key in one.place[:-1]:
            section = section.setdefault(str(key), {})
        section |= given
    if is_read:
        problems += _inherited_arguments(study, found.get("methods", {}))
    return found, problems


def _require_stated(stated: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    wrong = [
        f"{key}: expected {value}, found {given[key]}; if this is intended, write the found value"
        for key, value in stated.items()
        if key in given and value not in (None, given[key])
    ]
    if wrong:
        raise StudyError(wrong)


def _used(study: Study) -> Iterator[_Used]:
    """Yield each file that a study uses; of a draft, those whose settings are valid."""
    for name in dict.fromkeys(study.evaluated()):
        own = study.benchmarks.get(name)
        if own and own.file and own.question and own.answer:
            read = partial(_rows, own.question, own.answer, True)
            stated = {"rows": own.rows, "sha256": own.sha256}
            yield _Used(("benchmarks", name, "file"), own.file, stated, read)
    data = study.data
    if isinstance(data, FileData) and data.file and data.question and data.answer:
        read = partial(_rows, data.question, data.answer, False)
        stated = {"rows": data.rows, "sha256": data.sha256}
        yield _Used(("data", "file"), data.file, stated, read)
    for size in dict.fromkeys(study.run.sizes):
        model = study.models.get(size)
        if isinstance(model, FolderModel) and model.path:
            yield _Used(("models", size, "path"), model.path, {"sha256": model.sha256}, _model)
    for name in _trained(study):
        given = study.methods.get(name)
        if given and given.selection and name not in METHODS:
            read = partial(_selection, given.selection, given.selection_args or {})
            stated = {"selection_sha256": given.selection_sha256}
            yield _Used(("methods", name, "selection"), given.selection, stated, read)
    reward, sha256 = study.training.reward, study.training.reward_sha256
    if reward and ":" in reward:
        stated = {"reward_sha256": sha256}
        yield _Used(("training", "reward"), reward, stated, partial(_reward, reward, sha256))


def _trained(study: Study) -> list[str]:
    """Return the methods that a study uses, and their bases."""
    methods = [*study.run.methods, study.interventions.method]
    return list(dict.fromkeys(one for name in methods for one in study.lineage(name)))


def _rows(question: str, answer: str, is_unique: bool, path: Path | None) -> dict[str, Any]:
    assert path is not None  # Every `file` has a place.
    rows = placed_rows(path, question, answer, is_unique).values()
    return {"rows": len(rows), "sha256": checksum(rows)}


def _model(path: Path | None) -> dict[str, Any]:
    assert path is not None
    if errors := model_folder.faults(path):
        raise StudyError(errors)
    return {"sha256": model_folder.checksum(path)}


def _selection(reference: str, args: Arguments, path: Path | None) -> dict[str, Any]:
    """Return the checksum of a token selection, and its arguments with the defaults of those not given."""
    file = path_of(reference, path)
    if file is None:
        raise StudyError([f"{reference}: {NOT_FOUND}"])
    taken = with_settings(arguments_of(file, function_name(reference)), args, reference)
    return {"selection_args": taken, "selection_sha256": sha256_of(file)}


def _inherited_arguments(study: Study, found: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of arguments for a selection of one's own that a method has from its base."""
    for name in _trained(study):
        given = study.methods.get(name)
        if given and given.selection_args and not given.selection:
            own = next((found[one] for one in study.lineage(name) if one in found), None)
            try:
                if own:
                    with_settings(own["selection_args"], given.selection_args, "its selection")
            except StudyError as error:
                yield from ((("methods", name), line) for line in error.errors)


def _reward(reference: str, sha256: str | None, path: Path | None) -> dict[str, Any]:
    file = path_of(reference, path)
    if file is None and sha256 is None:
        about = "or give what sha256sum prints as reward_sha256"
        raise StudyError([f"{reference}: not found; install its package, {about}"])
    # `check`, `doctor` and the training compare the checksum of a module.
    if file is None or (path is None and sha256 is not None):
        return {}
    return {"reward_sha256": sha256_of(file)}
