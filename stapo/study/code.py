"""Functions of one's own that a study names: found and checked as text, run only by the jobs that need them.

A reference is `FILE.py:function`, a file beside the study, `package.module:function` of an installed package,
or the name of an entry point of one. Its checksum covers that one file: neither what it imports nor the
versions of packages.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from stapo.study.loader import StudyError, read_file, shown_path

Arguments = dict[str, float | str]
TABLES = 4
"""Arguments of a token selection before its settings: logps, entropies, advantages, mask."""
SEED = "seed"
"""Argument of a token selection that draws random numbers; it is no setting."""
NOT_FOUND = "not found; install its package, or add its folder to PYTHONPATH"
ENTRY_POINTS = {"selection": "stapo.selections", "reward": "stapo.rewards"}
"""Setting that names a function -> group of entry points in which packages declare theirs by name."""


def is_file(reference: str) -> bool:
    """Return whether a reference names a file, not a module."""
    return reference.rpartition(":")[0].endswith(".py")


def function_name(reference: str) -> str:
    """Return the name of the function of a reference."""
    return reference.rpartition(":")[2]


def declared(group: str, name: Any) -> Any:
    """Return the reference that an installed package declares by a name, any other value unchanged."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
        return name
    found = metadata.entry_points(group=group, name=name)
    return next((one.value for one in found), name)


def path_of(reference: str, place: Path | None) -> Path | None:
    """Return the file of a reference: its absolute path in a study, or that of its module.

    Unlike `importlib.util.find_spec`, this does not run the parent packages of a module.
    """
    if is_file(reference):
        return place
    where: Any = None
    parts = reference.partition(":")[0].split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        specs = (finder.find_spec(name, where, None) for finder in sys.meta_path)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None or (depth < len(parts) and spec.submodule_search_locations is None):
            return None
        where = spec.submodule_search_locations
    path = Path(spec.origin) if spec and spec.has_location and spec.origin else None
    return path if path and path.is_file() else None


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
    name = shown_path(path)
    try:
        tree = ast.parse(read_file(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, StudyError):
            raise
        raise StudyError([f"{name}: not Python ({error})"]) from error
    found = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == function]
    if not found:
        raise StudyError([f"{name}: no function {function} at its top level"])
    taken = found[-1].args
    positional = [*taken.posonlyargs, *taken.args]
    first_default = len(positional) - len(taken.defaults)
    if len(positional) < TABLES or first_default < TABLES:
        about = "begins with the arguments logps, entropies, advantages and mask"
        raise StudyError([f"{name}: {function} is no token selection, which {about}"])
    defaults = [None] * (first_default - TABLES) + list(taken.defaults)
    settings = dict(zip((one.arg for one in positional[TABLES:]), defaults, strict=True))
    settings |= dict(zip((one.arg for one in taken.kwonlyargs), taken.kw_defaults, strict=True))
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
            errors.append(f"{key}: {reference} has no such argument; it takes {takes}")
        elif isinstance(value, str) != isinstance(defaults[key], str):
            kind = "a text" if isinstance(defaults[key], str) else "a number"
            errors.append(f"{key}: expected {kind}, found {value!r}")
    rare = given.get("tau_p", defaults.get("tau_p", 0.5))
    if isinstance(rare, str) or not 0 < rare < 1:
        errors.append("tau_p: is the probability of rare tokens; choose 0 to 1")
    if errors:
        raise StudyError([f"selection_args.{line}" for line in errors])
    return {**defaults, **given}


def load(reference: str, place: Path | None, sha256: str) -> Callable[..., Any]:
    """Return the function of a reference; its module is executed.

    Raises:
        StudyError: it is missing, it raises an error, or its file has another checksum.
    """
    path = path_of(reference, place)
    if path is None:
        raise StudyError([f"{reference}: {NOT_FOUND}"])
    try:
        module = _module(path, sha256) if is_file(reference) else _imported(reference, path, sha256)
        found = getattr(module, function_name(reference))
    except StudyError:
        raise
    except (Exception, SystemExit) as error:  # A module may raise anything on import.
        about = f"{reference}: {type(error).__name__}: {error}"
        raise StudyError([f"{about}; fix the module"]) from error
    if not callable(found):
        kind = type(found).__name__
        raise StudyError([f"{reference} is not a function, its type is {kind}"])
    function: Callable[..., Any] = found
    return function


def _imported(reference: str, path: Path, sha256: str) -> ModuleType:
    _checked(path, sha256)
    return import_module(reference.partition(":")[0])


@cache
def _module(path: Path, sha256: str) -> ModuleType:
    """Execute a file as a module: the bytes whose checksum was compared, not those of a second read."""
    content = _checked(path, sha256)
    name = "stapo_own_" + re.sub(r"\W", "_", path.stem) + "_" + sha256[:8]
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # Dataclasses and pickle look their module up.
    exec(compile(content, str(path), "exec"), module.__dict__)
    return module


def _checked(path: Path, sha256: str) -> bytes:
    content = read_file(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        about = f"its SHA-256 is not the study's ({sha256[:12]}…)"
        raise StudyError(
            [f"{path}: changed since the study was read, {about}; run snakemake again"]
        )
    return content


def _literal(default: ast.expr | None) -> float | str | None:
    """Return the value of a default that is a number or a text, None for any other."""
    try:
        value = ast.literal_eval(default) if default is not None else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None
