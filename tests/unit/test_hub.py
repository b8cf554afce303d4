"""What may pass is asked again; what cannot is said at once."""

import errno
from typing import Any

import httpx
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from stapo import hub
from stapo.hub import ATTEMPTS, OFFLINE, PROXIES, HubError, offline_if_unreachable, with_retries


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    found: list[float] = []
    monkeypatch.setattr(hub.time, "sleep", found.append)
    for name in (*OFFLINE, *PROXIES):  # What is set is taken back after the test.
        monkeypatch.setenv(name, "")
    return found


def answered(status: int) -> HfHubHTTPError:
    request = httpx.Request("GET", "http://hub")
    return HfHubHTTPError(str(status), response=httpx.Response(status, request=request))


@pytest.mark.parametrize(
    ("error", "attempts", "remedy"),
    [
        (answered(503), ATTEMPTS, "stapo fetch"),
        (ConnectionError("reset"), ATTEMPTS, "stapo fetch"),
        (httpx.ConnectTimeout("slow"), ATTEMPTS, "stapo fetch"),
        (LocalEntryNotFoundError("not in the cache"), ATTEMPTS, "stapo fetch"),
        (answered(404), 1, "HF_TOKEN"),
        (FileNotFoundError("no such set"), 1, "HF_TOKEN"),
        (OSError(errno.ENOSPC, "full"), 1, None),
    ],
)
def test_errors_are_met_with_so_many_attempts(waits, error, attempts, remedy):
    asked: list[int] = []

    def get() -> Any:
        asked.append(1)
        raise error

    with pytest.raises(HubError if remedy else OSError, match=remedy):
        with_retries(get)
    assert len(asked) == attempts
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0][: attempts - 1]


def test_a_hub_that_cannot_be_reached_is_not_asked(monkeypatch, capsys):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    offline_if_unreachable()
    assert [hub.os.environ[name] for name in OFFLINE] == ["1", "1"]
    assert capsys.readouterr().err.startswith("http://127.0.0.1:9 cannot be reached ([Errno 111]")
