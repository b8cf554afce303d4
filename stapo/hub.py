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
CONNECT_SECONDS = 5.0
REMEDY = "run `stapo fetch STUDY` where there is internet, with the same HF_HOME"
HERE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
"""Errors of the local disk, which are not retried."""
PASSING = {0, 408, 429, *range(500, 600)}
"""HTTP statuses of errors that may pass; 0: no answer."""


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
    try:
        parts = urlsplit(endpoint)
        port = parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        return f"{plain(endpoint)} cannot be reached ({plain(str(error))})"
    return ""


def with_retries(get: Callable[[], T]) -> T:
    """Return what `get` returns; up to five temporary failures are retried.

    The Hub's own client resumes interrupted files and retries some of its requests, but not all.

    Args:
        get: downloads something; a later call continues an interrupted download.

    Raises:
        HubError: the Hub could not be reached or refused; the message says what to do.
        OSError: of the local disk.
    """
    from httpx import HTTPError
    from huggingface_hub.errors import LocalEntryNotFoundError

    wait = 1.0
    for left in reversed(range(ATTEMPTS)):
        try:
            return get()
        except (OSError, HTTPError) as error:
            status = getattr(getattr(error, "response", None), "status_code", 0)
            if getattr(error, "errno", None) in HERE:
                raise
            reason = plain((str(error).strip().splitlines() or [type(error).__name__])[0])
            # No such repository or data set is a FileNotFoundError too. Without a network the client reports
            # a file that is not in its cache.
            absent = isinstance(error, FileNotFoundError)
            if (absent and not isinstance(error, LocalEntryNotFoundError)) or status not in PASSING:
                remedy = "check name and revision, and HF_TOKEN if it is gated"
                raise HubError(f"{reason}; {remedy}") from error
            if not left or os.environ.get(OFFLINE[0]):
                raise HubError(f"{reason}; {REMEDY}") from error
            _say(f"{reason}; retrying in {wait:.0f} s")
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
    raise AssertionError("the last attempt returns or raises")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201
