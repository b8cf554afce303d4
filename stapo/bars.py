"""Progress of long stages with rate and time left: a bar in a terminal, a line every ten seconds in a log."""

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from tqdm import tqdm

SECONDS = {"terminal": 0.2, "log": 10.0}
"""Between two states."""
LINE = "{desc}: {n_fmt} of {total_fmt} {unit}s, {rate_fmt}{postfix}, {remaining} left"


def only_ours() -> None:
    """Show no bars of Transformers, which are of files; downloads keep the bars of the Hub."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    hidden = are_progress_bars_disabled()
    disable_progress_bar()  # The Hub's too.
    if not hidden:
        enable_progress_bars()


class _Lines:
    """A stream that shows each state of a bar as a line of its own."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> None:
        if line := text.strip():
            self.stream.write(f"{line}\n")

    def flush(self) -> None:
        self.stream.flush()


def bar(
    title: str, total: int, unit: str, initial: int = 0, over: Iterable[Any] | None = None
) -> "tqdm[Any]":
    """Return a progress bar on the standard error.

    Args:
        title: what is in progress.
        total: number of all units.
        unit: what is counted, in the singular.
        initial: units that were done before, which count for no rate.
        over: iterated by the bar, if given.
    """
    about: dict[str, Any] = {"desc": title, "total": total, "unit": unit, "initial": initial}
    if sys.stderr.isatty():
        return tqdm(over, mininterval=SECONDS["terminal"], **about)
    lines = _Lines(sys.stderr)
    return tqdm(over, mininterval=SECONDS["log"], bar_format=LINE, file=lines, **about)
