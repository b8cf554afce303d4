"""The `stapo` program: one subcommand per step of the pipeline, and tools beside it."""

import errno
import json
import os
import sys
from contextlib import suppress
from typing import Any

from safetensors import SafetensorError

from stapo.cli import pipeline, tools
from stapo.cli.common import BAD_INPUT, app
from stapo.locks import BusyError, ForeignDirectoryError, join_jobs
from stapo.study import StudyError
from stapo.text import visible

__all__ = ["app", "main", "pipeline", "tools"]

INTERRUPTED = 130
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL_DISK_WORDS = (
    *(os.strerror(number) for number in FULL_DISK),
    "inline_container.cc",
    "file write failed",
)
"""Of the errors by which the writers of weights and optimiser states say the same."""


def main() -> None:
    """Run the program; errors of users and machines become one line each."""
    # Launchers, replicas and srun import nothing from the working directory either.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        try:
            join_jobs()
            app()
        except SystemExit as ended:
            # Typer makes an exit code of Ctrl-C, and says nothing.
            if ended.code == INTERRUPTED:
                raise KeyboardInterrupt from ended
            raise
    except StudyError as error:
        _fail(error.errors, BAD_INPUT)
    except (BusyError, ForeignDirectoryError, json.JSONDecodeError) as error:
        _fail([str(error)], BAD_INPUT)
    except KeyboardInterrupt:
        _fail(["stopped; the same command continues from the last checkpoint"], INTERRUPTED)
    except Exception as error:
        if _is_full_disk(error):
            # What is published, and the last checkpoint, stay whole.
            _fail(
                ["no space left (disk, quota or ulimit); make some and run the same command again"],
                1,
            )
        if isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            _fail([f"{where}{error.strerror or error}"], 1)
        if isinstance(error, ValueError | RuntimeError | FloatingPointError | SafetensorError):
            _fail(str(error).splitlines(), 1)
        raise


def _is_full_disk(error: BaseException | None) -> bool:
    """Return whether an error, or one that led to it, comes from a full disk."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL_DISK:
            # `require_space` says itself how much is needed.
            return error.strerror == os.strerror(error.errno)
        if any(words in str(error) for words in FULL_DISK_WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _fail(lines: list[Any], code: int) -> None:
    with suppress(OSError):  # The log may lie on the full disk.
        for line in lines:
            print(f"stapo: {visible(str(line), keep=chr(10))}", file=sys.stderr)  # noqa: T201
    raise SystemExit(code)
