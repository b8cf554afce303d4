"""Functions of a study's own, named as `FILE.py:function`: their names, arguments, loading and limits.

Nothing in their files is run here but by `load`, in the jobs that need a function.
"""

import ast
import hashlib
import os
import random
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from stapo.core.methods.parts import SEED, STEP
from stapo.suite.answers import Setting
from stapo.suite.study.loader import StudyError, read_file, shown_path
from stapo.suite.text import plain

Arguments = dict[str, float | str]
TABLES = 4
"""Arguments of a token selection before its settings: logps, entropies, advantages, mask."""
OWN_SECONDS = 600.0
"""After which a call of a study's own function, or the start of its module, counts as an endless loop."""
MOST_INTERRUPTS = 5
"""Of a function that catches them, before its process ends."""


def function_name(reference: str) -> str:
    """Return the name of the function of a reference, which is `FILE.py:function`."""
    return reference.rpartition(":")[2]


def named(reference: str) -> str:
    """Return a reference without the folder of its file, as results name it."""
    return reference.rpartition("/")[2]


def reader_name(setting: Setting) -> str:
    """Return how results name a reader or a reward."""
    if isinstance(setting, str):
        return named(setting)
    ((kind, value),) = setting.items()
    return f'after "{value}"' if kind == "after" else f"{value} of {kind}"


def module_path(reference: str) -> Path:
    """Return the file of a reference."""
    return Path(reference.rpartition(":")[0])


def selection_arguments(reference: str, given: Arguments) -> Arguments:
    """Return the given settings of a token selection, and the defaults of others by its source."""
    function, name = function_name(reference), shown_path(module_path(reference))
    nodes = _parsed(module_path(reference)).body
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == function]
    if not functions:
        raise StudyError([f"{name}: no function {function} at its top level"])
    taken = functions[-1].args
    names = [argument.arg for argument in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
    # Of positional arguments, the last ones have defaults.
    written = [*taken.defaults, *taken.kw_defaults]
    literals = dict(zip(names[::-1], map(_literal, written[::-1]), strict=False))
    defaults = {key: literals.get(key) for key in names[TABLES:] if key not in (SEED, STEP)}
    usable = {key: value for key, value in defaults.items() if value is not None}
    message = "needs a default that is a finite number or a text"
    errors = [f"{name}: argument {k} of {function} {message}" for k in defaults if k not in usable]
    takes = f"has no such argument; it takes {', '.join(defaults) or 'none'}"
    unknown = [key for key in given if key not in defaults]
    errors += [f"selection_args.{key}: {named(reference)} {takes}" for key in unknown]
    for key in sorted(given.keys() & usable.keys()):
        if isinstance(given[key], str) != isinstance(usable[key], str):
            expected = "a text" if isinstance(usable[key], str) else "a number"
            errors.append(f"selection_args.{key}: expected {expected}, as its default in {name}")
    if len([*taken.posonlyargs, *taken.args]) < TABLES and not taken.vararg:
        message = f"{function} takes too few arguments; the first {TABLES} are"
        errors.append(f"{name}: {message} logps, entropies, advantages and mask")
    if errors:
        raise StudyError(errors)
    return {**usable, **given}


def require_name(reference: str) -> None:
    """Check that the file of a reference is Python, and defines or imports what it names at its top level."""
    path, name = module_path(reference), function_name(reference)
    names: set[str] = set()
    nodes = list[ast.AST]([_parsed(path)])
    for node in nodes:  # It grows.
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        nodes += ast.iter_child_nodes(node)
    # What `import *` brings is not known before it is executed.
    if names.isdisjoint({name, "*"}):
        raise StudyError([f"{shown_path(path)}: no function {name} at its top level"])


def _parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file with code."""
    content = read_file(path)
    try:
        return ast.parse(content)
    except SyntaxError as error:
        line = f", line {error.lineno}" * bool(error.lineno)
        raise StudyError([f"{shown_path(path)}{line}: not Python: {error.msg}"]) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise StudyError([f"{shown_path(path)}: not Python ({error})"]) from error


def _literal(default: ast.expr | None) -> float | str | None:
    """Return the value of a default that is a number or a text, None for any other."""
    try:
        value = ast.literal_eval(default) if default is not None else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if abs(value) <= sys.float_info.max else None
    return value if isinstance(value, str) else None


def load(reference: str, sha256: str) -> Callable[..., Any]:
    """Return the function of a reference; its module is executed."""
    path = module_path(reference)
    content = read_file(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        message = f"its SHA-256 is not the study's ({sha256[:12]}…)"
        message = f"{path}: changed since the study was read, {message}; run snakemake again"
        raise StudyError([message])
    try:
        with _limited(named(reference)), _unchanged():
            attribute = getattr(_executed(path, content), function_name(reference))
    except (Exception, SystemExit) as error:  # A module may raise anything on import.
        message = f"{reference}: {type(error).__name__}: {error}"
        raise StudyError([f"{message}; fix the module"]) from error
    if not callable(attribute):
        raise StudyError([f"{reference} is not a function, its type is {type(attribute).__name__}"])
    function: Callable[..., Any] = attribute
    return function


class Overdue(BaseException):
    """A function took too long; `except Exception` in it must not catch this."""


@contextmanager
def _limited(name: str) -> Iterator[None]:
    """End an endless loop, which would hold all processors until somebody looks.

    Code that catches everything is interrupted again each second; then the process ends.
    """
    times = 0

    def overdue(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal times
        times += 1
        if times > MOST_INTERRUPTS:
            message = f"not done after {OWN_SECONDS:g} s; fix the function"
            os.write(2, f"\nstapo: {name}: {message}\n".encode())
            os._exit(1)
        raise Overdue

    before = signal.signal(signal.SIGALRM, overdue)
    signal.setitimer(signal.ITIMER_REAL, OWN_SECONDS, 1.0)
    try:
        yield
    except Overdue as error:
        late = TimeoutError(f"not done after {OWN_SECONDS:g} s")
        raise late.with_traceback(error.__traceback__) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _unchanged() -> Iterator[None]:
    """Put back what a function may change for all: random states, working directory, torch's defaults."""
    restored: list[Callable[[], object]] = [
        partial(os.chdir, Path.cwd()),
        partial(random.setstate, random.getstate()),
    ]
    if numpy := sys.modules.get("numpy"):
        restored.append(partial(numpy.random.set_state, numpy.random.get_state()))
    if torch := sys.modules.get("torch"):
        restored += [
            partial(torch.set_rng_state, torch.get_rng_state()),
            partial(torch.set_default_dtype, torch.get_default_dtype()),
            partial(torch.set_grad_enabled, torch.is_grad_enabled()),
        ]
        if torch.cuda.is_initialized():
            states = torch.cuda.get_rng_state_all()
            restored.append(partial(torch.cuda.set_rng_state_all, states))
        device, threads = torch.get_default_device(), torch.get_num_threads()
    try:
        yield
    finally:
        for restore in restored:
            restore()
        if torch and torch.get_default_device() != device:
            torch.set_default_device(device)
        if torch and torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


@contextmanager
def own_code(reference: str) -> Iterator[None]:
    """Call a function of a study's own; an error names it, and ends with a traceback."""
    try:
        with _limited(named(reference)), _unchanged():
            yield
    except (Exception, SystemExit) as error:
        path, steps = str(module_path(reference)), traceback.extract_tb(error.__traceback__)
        where = [f", line {frame.lineno}" for frame in steps if frame.filename == path][-1:]
        # `contextmanager` would take a RuntimeError whose cause is a StopIteration for that StopIteration.
        message = f"{named(reference)}{''.join(where)}: {plain(repr(error))}; fix the function"
        raise TypeError(message) from error


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
