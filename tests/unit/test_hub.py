"""What may pass is asked again; what cannot is said at once."""

import errno
from typing import Any

import httpx
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from stapo import hub
from stapo.hub import (
    ATTEMPTS,
    LOOKS,
    OFFLINE,
    PROXIES,
    HubError,
    offline_if_unreachable,
    with_retries,
)


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

    local = error.errno in (errno.ENOSPC, errno.EDQUOT) if isinstance(error, OSError) else False
    with pytest.raises(type(error) if local else HubError) as raised:
        with_retries(get)
    if not local:
        found = str(raised.value)
        assert found.startswith(str(error))
        # What is not there or not allowed is fetched nowhere.
        refused = isinstance(error, FileNotFoundError) and "set" in str(error)
        refused = refused or "40" in str(error)
        assert ("HF_TOKEN" in found) == refused
        assert ("stapo fetch" in found and "STAPO_DATA_DIR" in found) != refused
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


@pytest.fixture
def online(monkeypatch):
    """No variable says anything about the network; what is set is taken back after the test."""
    for name in (*OFFLINE, *PROXIES):
        monkeypatch.setenv(name, "")
    return monkeypatch


def test_a_hub_that_cannot_be_reached_is_not_asked(online, waits, capsys):
    online.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    offline_if_unreachable()
    assert [hub.os.environ[name] for name in OFFLINE] == ["1", "1"]
    assert len(waits) == LOOKS - 1
    said = capsys.readouterr().err
    assert said.startswith("http://127.0.0.1:9 cannot be reached ([Errno 111]")
    assert said.count("\n") == 1
