"""The Hub fails now and then: what is asked of it is asked again before a run dies of it."""

import errno
import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from stapo.text import plain

T = TypeVar("T")

ATTEMPTS = 6
LONGEST_WAIT = 30.0
NO_NETWORK = ("Name or service not known", "Temporary failure in name resolution")
FEW = 3
"""Attempts where not even names are known, as on a machine without a network."""
HERE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
"""Errors of this machine's disk."""
AGAIN = {408, 429}
"""Errors of the asker by their number, which pass nevertheless."""


def persistently(get: Callable[[], T]) -> T:
    """Return what `get` returns, after up to five failures that may pass.

    The Hub's own client resumes files that broke off and repeats some of its requests; not all.

    Args:
        get: downloads something and continues where an earlier call broke off.
    """
    from httpx import HTTPError

    wait = 1.0
    for left in reversed(range(ATTEMPTS)):
        try:
            return get()
        except (OSError, HTTPError) as error:
            nobody = any(words in str(e) for e in _causes(error) for words in NO_NETWORK)
            if left <= (ATTEMPTS - FEW if nobody else 0) or not _may_pass(error):
                raise
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            print(f"{plain(reason)}; again in {wait:.0f} s", file=sys.stderr, flush=True)  # noqa: T201
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
    raise AssertionError("the last attempt returns or raises")


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and what it came from."""
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found


def _may_pass(error: Exception) -> bool:
    from huggingface_hub import constants
    from huggingface_hub.errors import LocalEntryNotFoundError

    causes = _causes(error)
    statuses = [getattr(getattr(cause, "response", None), "status_code", 0) for cause in causes]
    refused = any(400 <= status < 500 and status not in AGAIN for status in statuses)
    refused = refused or any("CERTIFICATE_VERIFY_FAILED" in str(cause) for cause in causes)
    # Without a network the client says that the file is not in its cache; a set that does not exist
    # says so with the same class.
    absent = isinstance(error, FileNotFoundError) and not isinstance(error, LocalEntryNotFoundError)
    local = any(isinstance(cause, OSError) and cause.errno in HERE for cause in causes)
    offline = constants.HF_HUB_OFFLINE or bool(os.environ.get("HF_DATASETS_OFFLINE"))
    return not (refused or absent or local or offline)
