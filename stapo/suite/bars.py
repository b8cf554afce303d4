"""Progress of long stages with rate and time left; in a log, a state every minute."""

import logging
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

HARMLESS = {
    # End tokens are the study's, whatever the configuration says.
    "transformers.trainer_utils": "The tokenizer has new PAD/BOS/EOS tokens",
    # What it ignores would change responses.
    "transformers.tokenization_utils_tokenizers": "Ignoring clean_up_tokenization_spaces=True",
}
"""Logger of Transformers -> beginning of a warning that means nothing here."""


def _matters(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(HARMLESS[record.name])


def only_ours() -> None:
    """Show no bars of Transformers, which are of files, and no harmless warnings of it.

    Downloads keep the bars of the Hub.
    """
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    hidden = are_progress_bars_disabled()
    disable_progress_bar()  # The Hub's too.
    if not hidden:
        enable_progress_bars()
    for name in HARMLESS:
        logging.getLogger(name).addFilter(_matters)


def bar(
    title: str, total: int, unit: str, initial: int = 0, over: Iterable[Any] | None = None
) -> "tqdm[Any]":
    """Return a progress bar on the standard error; `initial` units were done before, for no rate."""
    seconds = 0.2 if sys.stderr.isatty() else 60.0
    return tqdm(over, title, total, initial=initial, unit=unit, mininterval=seconds)
