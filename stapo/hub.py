"""Downloads from the Hub, which fails now and then, or cannot be reached at all."""

import errno
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from stapo.text import plain

T = TypeVar("T")

ATTEMPTS = 6
LONGEST_WAIT = 30.0
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
"""Environment variables for offline mode; they must be set before the Hub's libraries are imported."""
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
"""Environment variables by which requests go elsewhere first."""
LOOKS, CONNECT_SECONDS = 3, 5.0
"""How often, and for how long, the Hub is tried before it counts as unreachable."""
REMEDY = (
    "run `stapo fetch STUDY` where there is internet, with the same HF_HOME, and STAPO_DATA_DIR for the rows "
    "of benchmarks"
)
HERE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
"""Errors of the local disk, which are not retried."""
AGAIN = {408, 429}
"""HTTP client errors (4xx) that are temporary and retried."""


class HubError(RuntimeError):
    """The Hub cannot be reached, or refuses, and what was asked for is not in its cache."""


def offline_if_unreachable() -> None:
    """Set offline mode, with a line that says so, if the Hub cannot be reached.

    Its cache then answers at once; otherwise its client repeats every request for half a minute. To be called
    before its libraries are imported.
    """
    if any(os.environ.get(name) for name in (*OFFLINE, *PROXIES)):
        return
    if reason := reason_unreachable():
        os.environ.update(dict.fromkeys(OFFLINE, "1"))
        _say(f"{reason}; only what is in its cache is used")


def reason_unreachable() -> str:
    """Return why no connection to the Hub can be made; empty if one can."""
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    parts = urlsplit(endpoint)
    reason = ""
    for look in range(LOOKS):
        if look:
            time.sleep(1.0)
        try:
            port = parts.port or (80 if parts.scheme == "http" else 443)
            socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
            return ""
        except (OSError, ValueError) as error:
            reason = plain(str(error))
    return f"{plain(endpoint)} cannot be reached ({reason})"


def with_retries(get: Callable[[], T]) -> T:
    """Return what `get` returns; up to five temporary failures are retried.

    The Hub's own client resumes interrupted files and retries some of its requests, but not all.

    Args:
        get: downloads something; a later call continues an interrupted download.

    Raises:
        HubError: the Hub could not be reached or refused; the message says what to do.
    """
    from httpx import HTTPError

    wait = 1.0
    for left in reversed(range(ATTEMPTS)):
        try:
            return get()
        except (OSError, HTTPError) as error:
            if any(getattr(one, "errno", None) in HERE for one in _causes(error)):
                raise  # Of the local disk.
            reason = plain((str(error).strip().splitlines() or [type(error).__name__])[0])
            remedy = _remedy_at_once(error)
            if remedy or not left:
                raise HubError(f"{reason}; {remedy or REMEDY}") from error
            _say(f"{reason}; retrying in {wait:.0f} s")
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
    raise AssertionError("the last attempt returns or raises")


def _remedy_at_once(error: Exception) -> str:
    """Return the remedy of a failure that does not pass; empty for one that may."""
    from huggingface_hub import constants
    from huggingface_hub.errors import LocalEntryNotFoundError

    causes = _causes(error)
    statuses = {getattr(getattr(one, "response", None), "status_code", 0) for one in causes}
    # No such repository or data set is a FileNotFoundError too. Without a network the client reports a file
    # that is not in its cache.
    absent = isinstance(error, FileNotFoundError) and not isinstance(error, LocalEntryNotFoundError)
    if absent or statuses & {401, 403, 404}:
        return "check name and revision, and HF_TOKEN if it is gated"
    refused = any(400 <= status < 500 and status not in AGAIN for status in statuses)
    untrusted = any("CERTIFICATE_VERIFY_FAILED" in str(one) for one in causes)
    offline = constants.HF_HUB_OFFLINE or os.environ.get("HF_DATASETS_OFFLINE")
    return REMEDY if refused or untrusted or offline else ""


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and the errors that caused it."""
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201
