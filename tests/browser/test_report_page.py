"""The report in a headless browser: offline, inert, for mouse, keyboard and screen reader, on any width."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from finished_study import finish
from playwright.sync_api import expect
from programs import PATIENCE_MILLISECONDS

from stapo.suite.analysis import charts, report
from stapo.suite.study import parse_study

pytestmark = pytest.mark.slow
FIGURES = ["entropy", "reward", "silenced_fraction", "token_frequencies"]


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two sizes and two seeds, with some of its figures and all else."""
    root = tmp_path_factory.mktemp("report")
    run = {
        "models": ["tiny", "1.7B"], "methods": ["grpo", "justrl", "stapo"], "seeds": [0, 1],
        "decodings": ["t1.0-p1.0"], "benchmarks": ["chain-2", "linear-equation"],
    }  # fmt: skip
    raw = {"extends": "smoke", "name": "demo", "training": {"steps": 10}, "run": run}
    study = parse_study({**raw, "methods": {"grpo": {"title": "<b>G</b>RPO &amp;"}}})
    finish(study, root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "figure_names", lambda study: FIGURES)
        return report.write_report(report.Artefacts(study, root))


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
        context.set_default_timeout(PATIENCE_MILLISECONDS)
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


def show_all(page):
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for figure in page.locator("figure").all():
        figure.scroll_into_view_if_needed()
        expect(figure.locator(".plot svg").first).to_be_visible()


def test_groups_can_be_hidden(opened):
    page = opened()
    show_all(page)
    stapo = f".plot .mark-line path[stroke='{charts.COLOURS[2]}']"
    expect(page.locator(f"#figure-entropy {stapo}")).not_to_have_count(0)
    page.locator("#figure-entropy .keys button", has_text="STAPO").click()
    expect(page.locator(f"#figure-entropy {stapo}")).to_have_count(0)
    expect(page.locator(f"#figure-reward {stapo}")).not_to_have_count(0)


def test_links_lead_into_folds_and_wide_tables_say_so(opened):
    page = opened(390)
    table = page.locator("#table-endpoints")
    expect(table).to_be_hidden()
    page.evaluate("location.hash = 'table-endpoints'")
    expect(table).to_be_visible()
    page.locator("#table-endpoints a[href='#table-endpoints']").press("Enter")
    wide = page.locator("#main-t1\\.0-p1\\.0")
    page.wait_for_function("(one) => one.matches('.too-wide')", arg=wide.element_handle())
    targets = "[...document.links].filter((one) => one.hash).map((one) => one.hash.slice(1))"
    assert page.evaluate(f"{targets}.every((id) => document.getElementById(id))")


def test_texts_of_models_are_inert(opened):
    page = opened()
    show_all(page)
    assert page.title() == "demo: report"
    page.locator("#figure-token_frequencies .mark-rect path").first.hover(force=True)
    tip = page.locator("#vg-tooltip-element")
    expect(tip).to_be_visible()
    assert tip.locator("img, b, a, script").count() == 0
    # Only what the page itself made: no element, and no link, out of a text.
    allowed = "script[type='application/json']"
    assert page.locator(f"main :is(script, img, b, iframe):not({allowed})").count() == 0
    assert page.locator(".plot a, .plot image").count() == 0
    assert page.locator("[onerror], a[href^='http']").count() == 0
    text = page.locator("#figure-token_frequencies .values").text_content()
    assert text.startswith("x\t")
    assert "<script>" in text
    assert not {"\x1b", "\u202e"} & set(page.locator("main").inner_text())


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_serious(opened, serious, width, scheme):
    # Axe itself is a script that the page's policy would refuse.
    page = opened(width, scheme, bypass_csp=True)
    show_all(page)
    assert serious(page) == {}
