"""Retries of downloads from the Hub, which fails now and then."""

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
"""Attempts if no host name can be resolved, as on a machine without a network."""
HERE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
"""Errors of the local disk, which are not retried."""
AGAIN = {408, 429}
"""HTTP client errors (4xx) that are temporary and retried."""


def with_retries(get: Callable[[], T]) -> T:
    """Return what `get` returns; up to five temporary failures are retried.

    The Hub's own client resumes interrupted files and retries some of its requests, but not all.

    Args:
        get: downloads something; a later call continues an interrupted download.
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
            print(f"{plain(reason)}; retrying in {wait:.0f} s", file=sys.stderr, flush=True)  # noqa: T201
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
    raise AssertionError("the last attempt returns or raises")


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and the errors that caused it."""
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
    # Without a network the client reports a file that is not in its cache; a data set that does not
    # exist is a FileNotFoundError too.
    absent = isinstance(error, FileNotFoundError) and not isinstance(error, LocalEntryNotFoundError)
    local = any(isinstance(cause, OSError) and cause.errno in HERE for cause in causes)
    offline = constants.HF_HUB_OFFLINE or bool(os.environ.get("HF_DATASETS_OFFLINE"))
    return not (refused or absent or local or offline)
