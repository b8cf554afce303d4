"""Tasks of reasoning-gym as data: which may be used, and their rows.

A row has a question, and as its answer the JSON of everything that the task's `score_answer` needs. The
library runs in processes of its own (`worker`), whose limits bound what a task or an answer can cost.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any

from stapo.suite.limited import start
from stapo.suite.repository import ROOT

VERSION = "0.1.25"
"""Version of the library whose tasks were read for safety; rows and verdicts depend on it."""
FOLDER = ROOT / ".cache" / "domains"
"""Where `make domains` installs it: it pins older versions of packages that others here need."""
MEMORY_BYTES = 2 * 2**30
SECONDS = 600.0
"""Limits of address space and processor time for all rows of a data set."""
Tasks = Mapping[str, Mapping[str, Any]]
"""Names of tasks, each with its settings."""


def missing() -> str | None:
    """Return why no task can be used, None if the library is there in the version that was read."""
    folders = [str(FOLDER), *sys.path]
    found = [
        package.version for package in metadata.distributions(name="reasoning-gym", path=folders)
    ]
    if found[:1] == [VERSION]:
        return None
    state = f"reasoning-gym {found[0]} is installed" if found else "reasoning-gym is not installed"
    return f"{state}, {VERSION} is needed: run `make domains`"


def environment() -> dict[str, str]:
    """Return variables of the processes of the library: where it is, and a fixed order of sets."""
    folders = [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(folders), "PYTHONHASHSEED": "0"}


def rows(tasks: Tasks, count: int, is_training: bool) -> list[dict[str, str]]:
    """Return rows with different questions, of each task in turn; no question is of both kinds.

    Raises:
        ValueError: the library is missing, or it makes no such rows; a line for each task with a fault.
    """
    made: list[dict[str, str]]
    made, faults = _ask(tasks, count, is_training)
    if faults:
        raise ValueError("\n".join(faults))
    return made


def _ask(*request: Any) -> Any:
    if reason := missing():
        raise ValueError(reason)
    worker = _worker()
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write(json.dumps(request) + "\n")
        worker.stdin.flush()
        return json.loads(worker.stdout.readline())
    except (BrokenPipeError, json.JSONDecodeError) as error:
        _worker.cache_clear()
        told = (
            f"reasoning-gym needs more than {SECONDS:g} s or {MEMORY_BYTES >> 30} GiB, or crashes"
        )
        raise ValueError(f"{told}; choose other settings, or fewer rows") from error


@cache
def _worker() -> "subprocess.Popen[str]":
    """Return the process that makes rows; it ends with this one."""
    words = ("stapo.suite.domains.worker", "make", str(MEMORY_BYTES), str(SECONDS))
    worker = start(words, environment())
    assert worker.stdout is not None
    worker.stdout.readline()  # "ready"
    return worker


os.register_at_fork(after_in_child=_worker.cache_clear)
