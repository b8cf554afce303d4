"""Functions of one's own that a study names: found and checked as text, run only by the jobs that need them.

A reference is `FILE.py:function`. Its checksum covers that one file, not what it imports.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from stapo.study.loader import StudyError, read_file, shown_path

Arguments = dict[str, float | str]
TABLES = 4
"""Arguments of a token selection before its settings: logps, entropies, advantages, mask."""
SEED = "seed"
"""Argument of a token selection that draws random numbers; it is no setting."""


def function_name(reference: str) -> str:
    """Return the name of the function of a reference."""
    return reference.rpartition(":")[2]


def named(reference: str) -> str:
    """Return a reference without the folder of its file, as results name it."""
    return reference.rpartition("/")[2]


def found_path(reference: str) -> Path:
    """Return the file of a reference."""
    return Path(reference.rpartition(":")[0])


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file with code.

    Raises:
        StudyError: it cannot be read.
    """
    return hashlib.sha256(read_file(path)).hexdigest()


def arguments_of(path: Path, function: str) -> Arguments:
    """Return the settings of a token selection with their defaults, read from its source; nothing is run.

    Raises:
        StudyError: there is no such function, or an argument has no default that is a number or a text.
    """
    name, content = shown_path(path), read_file(path)
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise StudyError([f"{name}: not Python ({error})"]) from error
    found = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == function]
    if not found:
        raise StudyError([f"{name}: no function {function} at its top level"])
    taken = found[-1].args
    positional = [one.arg for one in (*taken.posonlyargs, *taken.args)]
    without = len(positional) - len(taken.defaults)
    if without < TABLES:
        about = "begins with the arguments logps, entropies, advantages and mask"
        raise StudyError([f"{name}: {function} is no token selection, which {about}"])
    settings: dict[str, ast.expr | None] = dict.fromkeys(positional[TABLES:])
    settings |= zip(positional[without:], taken.defaults, strict=True)
    settings |= zip((one.arg for one in taken.kwonlyargs), taken.kw_defaults, strict=True)
    settings.pop(SEED, None)
    values = {key: _literal(default) for key, default in settings.items()}
    if wrong := [key for key, value in values.items() if value is None]:
        about = "needs a default that is a number or a text"
        raise StudyError([f"{name}: argument {key} of {function} {about}" for key in wrong])
    return {key: value for key, value in values.items() if value is not None}


def with_settings(defaults: Arguments, given: Arguments, reference: str) -> Arguments:
    """Return the settings of a token selection: the given ones, and the defaults of all others.

    Raises:
        StudyError: a given one is unknown, or is text where a number is expected, or the reverse.
    """
    errors = []
    for key, value in given.items():
        if key not in defaults:
            takes = ", ".join(defaults) or "none"
            errors.append(f"{key}: {named(reference)} has no such argument; it takes {takes}")
        elif isinstance(value, str) != isinstance(defaults[key], str):
            kind = "a text" if isinstance(defaults[key], str) else "a number"
            errors.append(f"{key}: expected {kind}, found {value!r}")
    if errors:
        raise StudyError([f"selection_args.{line}" for line in errors])
    return {**defaults, **given}


def load(reference: str, sha256: str) -> Callable[..., Any]:
    """Return the function of a reference; its module is executed.

    Raises:
        StudyError: it is missing, it raises an error, or its file has another checksum.
    """
    path = found_path(reference)
    content = read_file(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        about = f"its SHA-256 is not the study's ({sha256[:12]}…)"
        about = f"{path}: changed since the study was read, {about}; run snakemake again"
        raise StudyError([about])
    try:
        found = getattr(_executed(path, content), function_name(reference))
    except (Exception, SystemExit) as error:  # A module may raise anything on import.
        about = f"{reference}: {type(error).__name__}: {error}"
        raise StudyError([f"{about}; fix the module"]) from error
    if not callable(found):
        raise StudyError([f"{reference} is not a function, its type is {type(found).__name__}"])
    function: Callable[..., Any] = found
    return function


@contextmanager
def own_code(reference: str) -> Iterator[None]:
    """Call a function of a study's own; an error names it, and ends with a traceback."""
    try:
        yield
    except Exception as error:
        # `contextmanager` would take a RuntimeError whose cause is a StopIteration for that StopIteration.
        raise TypeError(f"{named(reference)}: {error!r}; fix the function") from error


@cache
def _executed(path: Path, content: bytes) -> ModuleType:
    """Return a file as a module."""
    sha256 = hashlib.sha256(content).hexdigest()
    name = "stapo_own_" + re.sub(r"\W", "_", path.stem) + "_" + sha256[:8]
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # Dataclasses and pickle look their module up.
    exec(compile(content, str(path), "exec"), module.__dict__)
    return module


def _literal(default: ast.expr | None) -> float | str | None:
    """Return the value of a default that is a number or a text, None for any other."""
    try:
        value = ast.literal_eval(default) if default is not None else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None
