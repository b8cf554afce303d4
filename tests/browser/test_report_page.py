"""The report in a browser: offline, inert, for mouse, keyboard and screen reader, on any width."""

import pytest
from playwright.sync_api import expect

from stapo.analysis import charts

pytestmark = pytest.mark.slow
WIDTHS, SCHEMES = (1280, 390), ("light", "dark")


def show_all(page):
    """Draw every figure, open every fold."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for figure in page.locator("figure").all():
        figure.scroll_into_view_if_needed()
        expect(figure.locator(".plot svg").first).to_be_visible()


def data_of(page, name):
    return page.evaluate("(id) => JSON.parse(document.getElementById(id).textContent)", name)


def test_without_scripts_the_page_leads_to_the_files(opened):
    page = opened(java_script_enabled=False)
    assert page.locator("figure a", has_text="SVG").count() == 4


def test_a_header_sorts_its_table_by_keyboard(opened):
    page = opened()
    table = page.locator("#results ~ .scroll table").first
    head = table.locator("thead th", has_text="Avg").last
    column = head.evaluate("(one) => one.cellIndex")
    read = f"(all) => all.map((row) => parseFloat(row.cells[{column}].textContent))"
    rows = table.locator("tbody tr")
    first = rows.evaluate_all(read)
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert rows.evaluate_all(read) == sorted(first)
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert rows.evaluate_all(read) == sorted(first, reverse=True)
    # Numbers and sizes are sorted as what they are.
    fill = "(all, texts) => all.forEach((row, i) => { row.cells[0].textContent = texts[i % 4]; })"
    for ascending in (["-1.5", "2", "1,024", "30,000"], ["1.7B", "8B", "14B", "tiny"]):
        rows.evaluate_all(fill, [ascending[place] for place in (2, 0, 3, 1)])
        head.locator("button").click()
        table.locator("thead button", has_text="Size").click()
        shown = rows.evaluate_all("(all) => all.map((row) => row.cells[0].textContent)")
        assert [*dict.fromkeys(shown)] == ascending
    assert head.get_attribute("aria-sort") is None


def test_groups_can_be_hidden(opened):
    page = opened()
    show_all(page)

    def expect_colours(figure, colours):
        page.wait_for_function(
            """([figure, colours]) => {
                const lines = document.querySelectorAll(`#figure-${figure} .plot .mark-line path`);
                const found = new Set([...lines].map((one) => one.getAttribute("stroke")));
                return [...found].sort().join() === colours.sort().join();
            }""",
            arg=[figure, [*colours]],
        )

    expect_colours("entropy", charts.COLOURS[:3])
    key = page.locator("#figure-entropy .keys button", has_text="STAPO")
    key.click()
    assert key.get_attribute("aria-pressed") == "false"
    expect_colours("entropy", charts.COLOURS[:2])
    expect_colours("reward", charts.COLOURS[:3])
    key.click()
    expect_colours("entropy", charts.COLOURS[:3])


def test_tokens_and_responses_are_filtered_sorted_and_paged(opened):
    page = opened()
    rows, tokens = data_of(page, "tokens"), page.locator("[data-browser=tokens]")
    status, cards = tokens.get_by_role("status"), tokens.locator(".card")

    def expect_tokens(found):
        expect(status).to_have_text(f"{len(found):,} of {len(rows):,} tokens")

    expect_tokens(rows)
    assert cards.count() == 10
    assert tokens.get_by_role("button", name="Previous").is_disabled()
    tokens.get_by_role("button", name="Next").click()
    assert tokens.locator("ol").get_attribute("start") == "11"
    tokens.get_by_label("Kind").select_option("silenced")
    found = [row for row in rows if row["kind"] == "silenced"]
    expect_tokens(found)
    assert tokens.locator("ol").get_attribute("start") == "1"
    tokens.get_by_label("Method").select_option("STAPO")
    tokens.get_by_label("From step").fill("2")
    expect_tokens([row for row in found if row["method"] == "STAPO" and row["step"] >= 2])
    tokens.get_by_label("Token contains").fill("in none of them")
    expect_tokens([])
    tokens.get_by_label("Token contains").fill("")
    tokens.get_by_label("Order").select_option(label="lowest probability")
    numbers = [float(one) for one in cards.locator("dd:first-of-type").all_inner_texts()[::6]]
    assert numbers == sorted(numbers)

    responses = page.locator("[data-browser=responses]")
    responses.get_by_label("Method").select_option("STAPO")
    responses.get_by_label("Verdict").select_option("no box")
    assert int(responses.get_by_role("status").inner_text().split()[0]) > 0
    texts = responses.locator(".card").all_inner_texts()
    assert all("STAPO" in text and "no box" in text for text in texts)


def test_texts_of_models_are_inert(opened):
    page = opened()
    show_all(page)
    tokens = page.locator("[data-browser=tokens]")
    tokens.get_by_label("Token contains").fill("onerror")
    mark = tokens.locator("mark").first.text_content()
    assert mark.startswith("<script>alert(1)</script> [red]markup[/red] \\x1b[31m")
    assert page.title() == "demo: STAPO reproduction report"
    page.locator("#figure-token_frequencies .mark-rect path").first.hover(force=True)
    tip = page.locator("#vg-tooltip-element")
    expect(tip).to_be_visible()
    assert tip.locator("img, b, a, script").count() == 0
    # Only what the page itself made: no element, and no link, out of a text.
    allowed = "script[type='application/json'], .top b"
    assert page.locator(f"main :is(script, img, b, iframe):not({allowed})").count() == 0
    assert page.locator(".plot a, .plot image").count() == 0
    assert page.locator("[onerror], a[href^='http']").count() == 0
    text = page.locator("#figure-token_frequencies .values").text_content()
    assert text.startswith("x\t")
    assert "<script>" in text
    assert not {"\x1b", "\u202e"} & set(page.locator("main").inner_text())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_serious(opened, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # Axe itself is a script that the page's policy would refuse.
    page = opened(width, scheme, bypass_csp=True)
    show_all(page)
    found = axe.run(page).response["violations"]
    serious = {
        one["id"]: [node["html"][:160] for node in one["nodes"][:3]]
        for one in found
        if one["impact"] in ("serious", "critical")
    }
    assert serious == {}
