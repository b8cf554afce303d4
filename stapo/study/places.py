"""Files that a study names: relative paths mean the folder of the study file that contains them.

A job may read the resolved study elsewhere, so their absolute paths are kept beside what the file says, in
`Study.places`. They are not published, and determine no result: the content of a file does.
"""

import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from stapo.study.code import is_file
from stapo.study.loader import Document, Place, StudyError, line_of, require_regular, shown_path

PATHS: tuple[Place, ...] = (
    ("benchmarks", "*", "file"),
    ("data", "file"),
    ("models", "*", "path"),
    ("methods", "*", "selection"),
    ("training", "reward"),
)
"""Settings that name a file, `*` for any name."""
CODE = PATHS[-2:]
"""Those that name a function in it, after a colon."""


def place_files(document: Document, folder: Path) -> Document:
    """Return a document with the absolute paths of the files that it names.

    Args:
        document: a study file, before it is merged with others.
        folder: folder that relative paths mean.

    Raises:
        StudyError: it contains `places` of its own.
    """
    if "places" in document.content:
        line = line_of(("places",), document.lines)
        raise StudyError([f"places: unknown key; remove it{line}"])
    content, problems = _with_templates(document, folder)
    found = {
        ".".join(map(str, place)): os.path.abspath(folder / os.path.expanduser(name))
        for place, name in named_files(content)
    }
    if found:
        content = {**content, "places": found}
    return Document(content, document.lines, document.problems + problems)


def _with_templates(
    document: Document, folder: Path
) -> tuple[dict[str, Any], list[tuple[Place, str]]]:
    """Return the content with the text of chat templates in place of their files, and problems."""
    content, problems = deepcopy(document.content), []
    for place, name in list(_matching(content, ("models", "*", "chat_template"), ())):
        if not (isinstance(name, str) and name.endswith(".jinja")):
            continue
        path = folder / os.path.expanduser(name)
        try:
            require_regular(path)
            content["models"][place[1]]["chat_template"] = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            line = f"{shown_path(path)}: {reason}{line_of(place, document.lines)}"
            problems.append((place, line))
    return content, problems


def named_files(raw: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Yield the place in a study and the text of each setting that names a file."""
    for path in PATHS:
        for place, value in _matching(raw, path, ()):
            if not isinstance(value, str) or not value or "\0" in value:
                continue
            if path not in CODE:
                yield place, value
            elif is_file(value):
                yield place, value.rpartition(":")[0]


def _matching(value: Any, path: Place, place: Place) -> Iterator[tuple[Place, Any]]:
    if not path:
        yield place, value
    elif isinstance(value, Mapping):
        for key in value if path[0] == "*" else [path[0]]:
            if key in value:
                yield from _matching(value[key], path[1:], (*place, key))
