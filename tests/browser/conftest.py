"""A headless browser, and what axe finds in a page."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright
from programs import PATIENCE_MILLISECONDS, missing


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("no chromium on this machine")
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def serious() -> Callable[[Any], dict[str, list[str]]]:
    """Return a function that runs axe in a page: rule -> elements with a serious or critical fault."""
    return lambda page: {
        fault["id"]: [node["html"][:160] for node in fault["nodes"][:3]]
        for fault in Axe().run(page).response["violations"]
        if fault["impact"] in ("serious", "critical")
    }
