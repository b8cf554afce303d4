"""The `stapo` program: one subcommand per step of the pipeline, and further tools."""

import errno
import os
import sys
from contextlib import suppress
from typing import NoReturn

from stapo.suite.text import visible

try:
    from safetensors import SafetensorError

    from stapo.suite.cli.tools import app, print_json
    from stapo.suite.locks import BusyError, ForeignDirectoryError, join_jobs
except ModuleNotFoundError as absent:
    if (absent.name or "stapo").partition(".")[0] == "stapo":
        raise
    # `pip install stapo` is torch and what needs nothing else.
    remedy = "in a clone: pip install '.[suite]'"
    print(f"stapo: {absent.name} is not installed; {remedy}", file=sys.stderr)  # noqa: T201
    raise SystemExit(2) from None

__all__ = ["app", "main"]

BAD_INPUT, INTERRUPTED = 2, 130
"""Exit codes for errors in the input, and after Ctrl-C."""
STOPPED = "stopped; run the same command to resume from the last checkpoint"
FULL = "no space left (disk, quota or ulimit); free some and run the same command again"
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL_DISK_WORDS = (
    *(os.strerror(number) for number in FULL_DISK),
    "inline_container.cc",
    "file write failed",
)
"""Parts of error messages that mean a full disk, also from writers of weights and optimiser states."""


def main() -> None:
    """Run the program; errors of the user or the machine are printed as one line each."""
    # Subprocesses import nothing from the working directory either.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        join_jobs()
        app()
    except KeyboardInterrupt:
        _fail([STOPPED], INTERRUPTED)
    except SystemExit as ended:
        # Typer turns Ctrl-C into an exit code without a message.
        if ended.code == INTERRUPTED:
            _fail([STOPPED], INTERRUPTED)
        raise
    except Exception as error:
        from stapo.suite.study import StudyError

        if isinstance(error, StudyError | BusyError | ForeignDirectoryError):
            _fail(str(error).splitlines(), BAD_INPUT)
        if _is_full_disk(error):
            # Published files and the last checkpoint remain valid.
            _fail([FULL], 1)
        if isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            _fail([f"{where}{error.strerror or error}"], 1)
        if isinstance(error, ValueError | RuntimeError | FloatingPointError | SafetensorError):
            _fail(str(error).splitlines(), 1)
        raise


def _is_full_disk(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, comes from a full disk."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL_DISK:
            return True
        if any(words in str(error) for words in FULL_DISK_WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _fail(lines: list[str], code: int) -> NoReturn:
    with suppress(OSError):  # The log may be on a full disk.
        if bars := sys.modules.get("tqdm"):  # An open one would stand before the message.
            for bar in [*bars.tqdm._instances]:
                bar.close()
        if "--json" in sys.argv:
            print_json({"errors": [visible(line) for line in lines]})
        for line in lines:
            print(f"stapo: {visible(line)}", file=sys.stderr)  # noqa: T201
    raise SystemExit(code)
