"""One finished training in the world of all tests, and a trainer for single updates.

Imported where they are used: some tests run with torch alone.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from programs import made_once


@pytest.fixture(scope="session")
def reference(world, tmp_path_factory) -> Path:
    """A training of six steps without interruption."""
    from training_jobs import run

    return made_once(tmp_path_factory, "reference", partial(run, world))


@pytest.fixture(scope="module", params=["padded", "packed", "shared"])
def base(tmp_path_factory, request) -> Any:
    """A trainer, a mini-batch, and a copy of the policy."""
    from one_update import build

    return build(tmp_path_factory.mktemp("trainer"), request.param)
