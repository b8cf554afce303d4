"""Settings that name a file, and what the files give: checksums, numbers of rows, arguments of functions."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stapo.suite.study.files import (
    SOLUTION_COLUMNS,
    gguf_checksum,
    model_checksum,
    model_faults,
    read_rows,
    rows_checksum,
    sha256_of,
)
from stapo.suite.study.functions import module_path, require_name, selection_arguments
from stapo.suite.study.loader import Place, StudyError

CODE: tuple[Place, ...] = (
    ("methods", "*", "selection"),
    ("training", "reward"),
    ("benchmarks", "*", "answer"),
)
"""Settings that name a function in a file, `*` for any name."""
Reader = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Returns what the file that a section names gives."""


def _rows(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return number and checksum of rows; of a benchmark, no question may be repeated."""
    rows = read_rows(Path(section["file"]), is_unique="samples" in section)
    return {"rows": len(rows), "sha256": rows_checksum(rows)}


def _model(section: Mapping[str, Any]) -> dict[str, Any]:
    folder = Path(section["path"])
    if errors := model_faults(folder):
        raise StudyError(errors)
    return {"sha256": model_checksum(folder)}


def _solutions(section: Mapping[str, Any]) -> dict[str, Any]:
    read_rows(Path(section["file"]), columns=SOLUTION_COLUMNS)
    return {"sha256": sha256_of(Path(section["file"]))}


def _selection(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checksum of a token selection, and its arguments with the defaults of those not given."""
    reference = section["selection"]
    taken = selection_arguments(reference, section.get("selection_args", {}))
    return {"selection_args": taken, "selection_sha256": sha256_of(module_path(reference))}


def _code(key: str) -> Reader:
    """Return what gives the checksum of the file of a function."""

    def read(section: Mapping[str, Any]) -> dict[str, Any]:
        require_name(section[key])
        return {f"{key}_sha256": sha256_of(module_path(section[key]))}

    return read


NAMED: dict[Place, tuple[tuple[str, ...], Reader]] = {
    ("benchmarks", "*", "file"): (("rows", "sha256"), _rows),
    ("data", "file"): (("rows", "sha256"), _rows),
    ("models", "*", "path"): (("sha256",), _model),
    ("models", "*", "gguf"): (
        ("sha256",),
        lambda section: {"sha256": gguf_checksum(Path(section["gguf"]))},
    ),
    ("models", "*", "supervised", "file"): (("sha256",), _solutions),
    ("methods", "*", "selection"): (("selection_sha256",), _selection),
    ("training", "reward"): (("reward_sha256",), _code("reward")),
    ("benchmarks", "*", "answer"): (("answer_sha256",), _code("answer")),
}
"""Setting that names a file -> settings that its content gives and a study may state, and their reader."""
