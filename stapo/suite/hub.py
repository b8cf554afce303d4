"""Downloads from the Hub: what fails is said with its remedy. Its client resumes and repeats by itself."""

import errno
from collections.abc import Callable
from typing import Any, TypeVar

from stapo.suite.text import plain

T = TypeVar("T")

OFFLINE = "HF_HUB_OFFLINE"
"""Environment variable for offline mode; it must be set before the Hub's libraries are imported."""
REMEDY = (
    "check name, revision and HF_TOKEN; without internet, run `stapo fetch STUDY` where there is, with the "
    "same HF_HOME"
)
HERE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
"""Errors of the local disk."""


class HubError(RuntimeError):
    """The Hub cannot be reached, or refuses, and what was asked for is not in its cache."""


def from_hub(get: Callable[[], T]) -> T:
    """Return what `get` downloads; a later call continues an interrupted download.

    Raises:
        HubError: the Hub could not be reached or refused; the message says what to do.
        OSError: of the local disk.
    """
    from httpx import HTTPError

    try:
        return get()
    except (OSError, HTTPError) as error:
        if getattr(error, "errno", None) in HERE:
            raise
        reason = plain((str(error).strip().splitlines() or [type(error).__name__])[0])
        raise HubError(f"{reason}; {REMEDY}") from error


def data_set(hub: str, subset: str | None, revision: str, split: str) -> Any:
    """Return the rows of a data set on the Hub, or in its cache; errors as of `from_hub`."""
    # Imported here, since it takes seconds.
    from datasets import load_dataset

    named = [hub, subset] if subset else [hub]
    return from_hub(lambda: load_dataset(*named, revision=revision, split=split))
