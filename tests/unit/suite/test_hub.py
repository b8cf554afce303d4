"""What fails at the Hub has a remedy; errors of the local disk stay what they are."""

import errno

import httpx
import pytest

from stapo.suite.hub import REMEDY, HubError, from_hub


@pytest.mark.parametrize("error", [httpx.ConnectTimeout("slow"), FileNotFoundError("no such set")])
def test_an_error_has_its_remedy(error):
    def get(error: Exception = error) -> None:
        raise error

    with pytest.raises(HubError, match=f"{error}; {REMEDY}"):
        from_hub(get)
    with pytest.raises(OSError, match="full"):
        from_hub(lambda: get(OSError(errno.ENOSPC, "full")))
