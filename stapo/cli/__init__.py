"""The `stapo` program: one subcommand per step of the pipeline, and tools beside it."""

import json
import os
import sys
from typing import Any

from safetensors import SafetensorError

from stapo.artifacts import BusyError, ForeignDirectoryError
from stapo.cli import pipeline, tools
from stapo.cli.common import BAD_INPUT, app
from stapo.running import join_jobs
from stapo.study import StudyError
from stapo.text import visible

__all__ = ["app", "main", "pipeline", "tools"]

INTERRUPTED = 130
FULL_DISK = ("No space left on device", "inline_container.cc", "file write failed")


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
    except OSError as error:
        # A full disk, a directory that may not be written: what is published stays whole.
        where = f"{error.filename}: " if error.filename else ""
        _fail([_plain(f"{where}{error.strerror or error}")], 1)
    except (ValueError, RuntimeError, FloatingPointError, SafetensorError) as error:
        _fail([_plain(str(error))], 1)
    except KeyboardInterrupt:
        _fail(["stopped; the same command continues from the last checkpoint"], INTERRUPTED)


def _plain(message: str) -> str:
    """Say what the writers of weights and optimiser states mean by their errors on a full disk."""
    if any(words in message for words in FULL_DISK):
        return "no space left on the device; make some and run the same command again, it continues"
    return message


def _fail(lines: list[Any], code: int) -> None:
    for line in lines:
        print(f"stapo: {visible(str(line), keep=chr(10))}", file=sys.stderr)  # noqa: T201
    raise SystemExit(code)
