"""A report opened in a headless browser without network."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from finished_study import finish

from stapo.analysis import report
from stapo.repository import CATALOGUE, ROOT
from stapo.study import merge, parse_study

SMOKE = ROOT / "workflows" / "studies" / "smoke.yaml"
FIGURES = ["entropy", "reward", "silenced_fraction", "token_frequencies"]
MILLISECONDS = 180_000


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two sizes and two seeds, with some of its figures and all else."""
    root = tmp_path_factory.mktemp("report")
    raw = merge(*(yaml.safe_load(path.read_text()) for path in (CATALOGUE, SMOKE)))
    raw["name"] = "demo"
    raw["run"] |= {
        "sizes": ["tiny", "1.7B"], "methods": ["grpo", "justrl", "stapo"], "seeds": [0, 1],
        "decodings": ["t1.0-p1.0"], "benchmarks": ["chain-2", "linear-equation"],
    }  # fmt: skip
    raw["training"]["steps"] = 10
    raw["methods"] = {"grpo": {"title": "<b>G</b>RPO &amp;"}}
    study = parse_study(raw)
    finish(study, root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "figure_names", lambda study: FIGURES)
        return report.write_report(study, root)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    api = pytest.importorskip("playwright.sync_api")
    # The page has 5 MB, and the machine may be busy.
    api.expect.set_options(timeout=MILLISECONDS)
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that opens the report; at the end, nothing may have been fetched or complained of."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def route(request: Any) -> None:
        if request.request.url.startswith("file:"):
            request.continue_()
        else:
            wrong.append(f"fetched {request.request.url}")
            request.abort()

    def open_(width: int = 1280, scheme: str = "light", **options: Any) -> Any:
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme, offline=True, **options)
        contexts.append(context)
        context.set_default_timeout(MILLISECONDS)
        context.route("**/*", route)
        tab = context.new_page()
        tab.on("console", lambda said: wrong.append(f"{said.type}: {said.text}"))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("dialog", lambda dialog: wrong.append("a dialog"))
        tab.goto(page.as_uri())
        return tab

    yield open_
    for context in contexts:
        context.close()
    assert wrong == []
