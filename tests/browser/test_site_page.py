"""Pages of the site in a headless browser, in both themes and on a phone."""

from pathlib import Path

import pytest
from programs import PATIENCE_MILLISECONDS, python

from stapo.suite.repository import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    build = ("-P", "-m", "mkdocs", "build", "--quiet", "--site-dir", place)
    python(*build, at=ROOT, NO_MKDOCS_2_WARNING="1")
    return place


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious(browser, serious, site, width, scheme):
    viewport = {"width": width, "height": 900}
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    for name in ("index", "findings", "extend", "examples/trl_grpo.py"):
        page = context.new_page()
        page.goto(f"file://{site}/{name}.html")
        page.wait_for_timeout(300)  # Until the theme has wrapped tables.
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert serious(page) == {}, name
    context.close()
