"""A study's own functions: an error becomes one line, its traceback a file."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stapo.files import replace_file
from stapo.study.files import function_name
from stapo.study.loader import shown_path
from stapo.text import shorten

MAX_CHARACTERS = 300
"""Characters that are shown of the text of an error; torch lists shapes, or every possible call."""


class OwnFunctionError(ValueError):
    """A function of a study's own raised an error, which is the cause of this one.

    It is no RuntimeError: `contextmanager` takes one whose cause is a StopIteration for that StopIteration.
    """


@contextmanager
def own_function(reference: str, path: Path) -> Iterator[None]:
    """Call a function of a study's own; its error becomes one line, with the place in its file.

    Args:
        reference: the function, as the study names it.
        path: its file.

    Raises:
        OwnFunctionError: the function raised an error.
    """
    try:
        yield
    except (Exception, SystemExit) as error:  # A function may raise anything, or end the process.
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        # Without a line: a call with arguments that it does not take fails before it begins.
        place = f", line {lines[-1]}" if lines else ""
        said = shorten(" ".join(str(error).split()), MAX_CHARACTERS)
        cause = ": ".join(filter(None, (type(error).__name__, said)))
        raise OwnFunctionError(
            f"{shown_path(path)}:{function_name(reference)}{place}: {cause}; fix the function, then run the "
            "same command again"
        ) from error


@contextmanager
def traceback_kept(path: Path) -> Iterator[None]:
    """Write the traceback of an error of a study's own function to a file, and name the file in the error."""
    try:
        yield
    except OwnFunctionError as error:
        with replace_file(path) as stream:
            stream.writelines(traceback.format_exception(error.__cause__))
        raise OwnFunctionError(f"{error} (traceback: {path})") from error.__cause__
