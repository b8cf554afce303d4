"""What the Hub refuses, and a Hub that cannot be reached, have remedies of their own."""

import errno

import httpx
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from stapo.hub import HubError, from_hub


def answered(status: int) -> HfHubHTTPError:
    request = httpx.Request("GET", "http://hub")
    return HfHubHTTPError(str(status), response=httpx.Response(status, request=request))


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (answered(503), "stapo fetch"),
        (httpx.ConnectTimeout("slow"), "stapo fetch"),
        (LocalEntryNotFoundError("not in the cache"), "stapo fetch"),
        (answered(404), "HF_TOKEN"),
        (FileNotFoundError("no such set"), "HF_TOKEN"),
        (OSError(errno.ENOSPC, "full"), None),
    ],
)
def test_an_error_has_its_remedy(error, remedy):
    def get() -> None:
        raise error

    with pytest.raises(HubError if remedy else OSError, match=remedy):
        from_hub(get)
