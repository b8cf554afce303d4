"""What may pass is asked again; what cannot is said at once."""

import errno
from typing import Any

import httpx
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from stapo import hub
from stapo.hub import ATTEMPTS, FEW, with_retries


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    found: list[float] = []
    monkeypatch.setattr(hub.time, "sleep", found.append)
    return found


def answered(status: int) -> HfHubHTTPError:
    request = httpx.Request("GET", "http://hub")
    return HfHubHTTPError(str(status), response=httpx.Response(status, request=request))


def caused_by(cause: Exception) -> Exception:
    error = LocalEntryNotFoundError("not in the cache")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (answered(503), ATTEMPTS),
        (answered(429), ATTEMPTS),
        (ConnectionError("reset"), ATTEMPTS),
        (caused_by(httpx.ConnectTimeout("slow")), ATTEMPTS),
        (caused_by(httpx.ConnectError("[Errno -2] Name or service not known")), FEW),
        (answered(404), 1),
        (answered(401), 1),
        (caused_by(answered(407)), 1),
        (caused_by(httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed")), 1),
        (OSError(errno.ENOSPC, "full"), 1),
        (OSError(errno.EDQUOT, "quota"), 1),
        (FileNotFoundError("no such set"), 1),
    ],
)
def test_errors_are_met_with_so_many_attempts(waits, error, attempts):
    asked: list[int] = []

    def get() -> Any:
        asked.append(1)
        raise error

    with pytest.raises(type(error)):
        with_retries(get)
    assert len(asked) == attempts
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0][: attempts - 1]


def test_what_comes_late_is_returned(waits):
    answers = iter([ConnectionError("reset"), ConnectionError("reset"), "here"])

    def get() -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert with_retries(get) == "here"
    assert len(waits) == 2


def test_offline_nothing_is_asked_twice(monkeypatch):
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    asked: list[int] = []

    def get() -> Any:
        asked.append(1)
        raise ConnectionError("offline")

    with pytest.raises(ConnectionError):
        with_retries(get)
    assert asked == [1]
