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


def colours_of(page, figure="entropy"):
    """Return the colours of the lines that a figure shows."""
    paths = page.locator(f"#figure-{figure} .plot .mark-line path")
    return {*paths.evaluate_all("(all) => all.map((one) => one.getAttribute('stroke'))")}


def test_without_scripts_the_page_leads_to_the_files(opened):
    page = opened(java_script_enabled=False)
    assert page.locator("figure a", has_text="SVG").count() == 4


def test_the_first_screen_has_accuracies_and_p_values(opened):
    for width in WIDTHS:
        page = opened(width)
        table = page.locator("main table").first
        for heading in ("Avg", "p against STAPO"):
            box = table.locator("thead th", has_text=heading).first.bounding_box()
            assert box["y"] + box["height"] < 600
            assert box["x"] + box["width"] <= width


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
    table.locator("thead button", has_text="Method").click()
    assert head.get_attribute("aria-sort") is None
    names = rows.evaluate_all("(all) => all.map((row) => row.cells[1].textContent.trim())")
    assert names == sorted(names, key=str.casefold)
    assert names != sorted(names, reverse=True)


@pytest.mark.parametrize(
    "ascending",
    [
        ["-1.5", "2", "1,024", "30,000"],
        ["1.7B", "8B", "14B", "tiny"],
        ["2026-11-09 23:59", "2026-11-10 00:00", "2026-11-10 00:01", "2027-01-01 00:00"],
        ["1e-06", "0.0003", "0.1", "1"],
        ["20-Entropy", "GRPO", "JustRL", "STAPO"],
    ],
)
def test_numbers_sizes_dates_and_names_are_sorted_as_what_they_are(opened, ascending):
    page = opened()
    table = page.locator("#results ~ .scroll table").first
    rows = table.locator("tbody tr")
    mixed = [ascending[place] for place in (2, 0, 3, 1)]
    fill = "(all, texts) => all.forEach((row, i) => { row.cells[0].textContent = texts[i % 4]; })"
    rows.evaluate_all(fill, mixed)
    table.locator("thead button", has_text="Size").click()
    shown = rows.evaluate_all("(all) => all.map((row) => row.cells[0].textContent)")
    assert [*dict.fromkeys(shown)] == ascending


def test_groups_can_be_hidden(opened):
    page = opened()
    show_all(page)
    first, last = charts.COLOURS[0], charts.COLOURS[2]
    assert colours_of(page) == {*charts.COLOURS[:3]}
    key = page.locator("#figure-entropy .keys button", has_text="STAPO")
    key.click()
    assert key.get_attribute("aria-pressed") == "false"
    page.wait_for_function(
        "(colour) => !document.querySelector(`#figure-entropy .mark-line [stroke='${colour}']`)",
        arg=last,
    )
    assert first in colours_of(page)
    assert last in colours_of(page, "reward")
    key.click()
    page.wait_for_function(
        "(colour) => document.querySelector(`#figure-entropy .mark-line [stroke='${colour}']`)",
        arg=last,
    )


def test_a_point_tells_its_values_and_text_as_text(opened):
    page = opened()
    show_all(page)
    page.locator("#figure-token_frequencies .mark-rect path").nth(1).hover(force=True)
    tip = page.locator("#vg-tooltip-element")
    expect(tip).to_be_visible()
    assert "onerror" in tip.inner_text()
    assert tip.locator("img, b, a, script").count() == 0


def test_values_are_there_in_words(opened):
    page = opened()
    show_all(page)
    text = page.locator("#figure-entropy .values").text_content()
    assert text.startswith("x\ty\tgroup\tseed")
    assert len(text.splitlines()) > 20


def browser_of(page, name):
    return page.locator(f"[data-browser={name}]")


def test_tokens_are_filtered_sorted_and_paged(opened):
    page = opened()
    tokens = browser_of(page, "tokens")
    status, cards = tokens.get_by_role("status"), tokens.locator(".card")
    expect(status).to_have_text("45 of 45 tokens")
    assert cards.count() == 10
    assert tokens.get_by_role("button", name="Previous").is_disabled()
    tokens.get_by_role("button", name="Next").click()
    expect(tokens.get_by_text("Page 2 of 5")).to_be_visible()
    assert tokens.locator("ol").get_attribute("start") == "11"
    tokens.get_by_label("Kind").select_option("silenced")
    expect(status).to_have_text("15 of 45 tokens")
    expect(tokens.get_by_text("Page 1 of 2")).to_be_visible()
    tokens.get_by_label("Answer").select_option("right")
    expect(status).to_have_text("7 of 45 tokens")
    tokens.get_by_label("From step").fill("8")
    tokens.get_by_label("To step").fill("12")
    expect(status).to_have_text("3 of 45 tokens")
    assert all(
        "step 8" in text or "step 10" in text or "step 12" in text
        for text in cards.all_inner_texts()
    )
    for name in ("From step", "To step"):
        tokens.get_by_label(name).fill("")
    tokens.get_by_label("Kind").select_option("")
    tokens.get_by_label("Answer").select_option("")
    tokens.get_by_label("Token contains").fill("THE")
    expect(status).to_have_text("15 of 45 tokens")
    assert all(mark == " the" for mark in cards.locator("mark").all_text_contents())
    tokens.get_by_label("Order").select_option(label="lowest probability")
    numbers = cards.locator("dd:first-of-type").all_inner_texts()[::6]
    assert [float(one) for one in numbers] == sorted(float(one) for one in numbers)


def test_responses_of_each_method_can_be_found_with_failures(opened):
    page = opened()
    responses = browser_of(page, "responses")
    status, cards = responses.get_by_role("status"), responses.locator(".card")
    everything = int(status.inner_text().split()[0])
    responses.get_by_label("Method").select_option("STAPO")
    responses.get_by_label("Verdict").select_option("no box")
    found = int(status.inner_text().split()[0])
    assert 0 < found < everything
    assert all("STAPO" in text and "no box" in text for text in cards.all_inner_texts())
    responses.get_by_label("Text contains").fill("in none of them")
    expect(status).to_have_text(f"0 of {everything} responses")


def test_texts_of_models_are_inert(opened):
    page = opened()
    show_all(page)
    tokens = browser_of(page, "tokens")
    tokens.get_by_label("Token contains").fill("onerror")
    (mark,) = tokens.locator("mark").all_text_contents()
    assert mark.startswith("<img src=x onerror='document.title=1'><script>")
    assert "\\x1b[31m \\u202e" in mark
    assert page.title() == "demo: STAPO reproduction report"
    # Only what the page itself made: no element, and no link, out of a text.
    allowed = "script[type='application/json'], .top b"
    assert page.locator(f"main :is(script, img, b, iframe):not({allowed})").count() == 0
    assert page.locator(".plot a, .plot image").count() == 0
    assert page.locator("[onerror], a[href^='http']").count() == 0
    text = page.locator("#figure-token_frequencies .values").text_content()
    assert "<a href='https://example.org'>link</a>" in text
    assert "&lt; %{x} {{ 7 * 7 }}" in text
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


def test_a_narrow_screen_scrolls_tables_and_says_so(opened):
    page = opened(390)
    show_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    region = page.locator("#results ~ .scroll").first
    assert region.evaluate("(one) => one.scrollWidth > one.clientWidth")
    hint = page.locator("#results ~ .hint").first
    expect(hint).to_be_visible()
    region.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(one) => one.scrollLeft > 0", arg=region.element_handle())
    # The name of the row stays in view.
    region.evaluate("(one) => { one.scrollLeft = 300; }")
    name, box = region.locator("tbody th").first.bounding_box(), region.bounding_box()
    assert abs(name["x"] - box["x"]) < 2
    # Panels stand below each other.
    frames = page.locator("#figure-entropy .plot .mark-line").all()
    first, second = (one.bounding_box() for one in (frames[0], frames[-1]))
    assert second["y"] > first["y"] + first["height"]


def test_the_keyboard_reaches_the_results_first(opened):
    page = opened()
    page.keyboard.press("Tab")
    link = page.locator(".skip")
    expect(link).to_be_focused()
    assert link.bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    for role in ("banner", "navigation", "main"):
        assert page.get_by_role(role).count() == 1
    sections = page.locator("main > section")
    assert all(one.get_attribute("aria-labelledby") for one in sections.all())


def test_print_has_every_figure(opened):
    page = opened()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".plot svg")).to_have_count(4)
    assert not page.locator("nav").is_visible()
