"""Programs that tests start and wait for, and what one process makes for all."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

PATIENCE_MILLISECONDS = 180_000
"""For a browser: a report has 5 MB, and the machine may be busy."""


def ran(
    *command: str | Path,
    at: Path | None = None,
    code: int = 0,
    answers: str | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, which must have this exit code."""
    done = subprocess.run(
        [*map(str, command)], cwd=at, env={**os.environ, **environment}, input=answers,
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def missing(what: str) -> NoReturn:
    """Skip a test where a program that it needs is missing; fail it where ALL_PROGRAMS is set."""
    (pytest.fail if os.environ.get("ALL_PROGRAMS") else pytest.skip)(what)


def python(*arguments: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
    return ran(sys.executable, *arguments, **how)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a directory that the first process of pytest-xdist makes for all; no test may change it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        make(root := factory.mktemp(name))
        return root
    root = factory.getbasetemp().parent / name
    done = root.with_name(f"{name}-done")
    with root.with_name(f"{name}-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            root.mkdir(exist_ok=True)
            make(root)
            done.touch()
    return root
