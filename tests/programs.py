"""Programs that tests start and wait for."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest


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
    """Skip a test where a program that it needs is missing; fail it in CI, which has all of them."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


def python(*arguments: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
    return ran(sys.executable, *arguments, **how)
