"""The report in a browser: offline, inert, for mouse, keyboard and screen reader, on any width."""

import re

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.slow
WIDTHS, SCHEMES = (1280, 390), ("light", "dark")


def show_all(page):
    """Draw every figure, open every fold."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for figure in page.locator("figure").all():
        figure.scroll_into_view_if_needed()
        expect(figure.locator(".plot .main-svg").first).to_be_visible()


def shown_traces(page, figure="entropy", panel=0):
    """Return colour index and seed of the traces that a panel shows."""
    plot = page.locator(f"#figure-{figure} .plot").nth(panel)
    return plot.evaluate(
        "(one) => one.data.filter(({visible}) => visible).map(({meta}) => [meta.colour, meta.seed])"
    )


def test_figures_are_drawn_without_network(opened):
    page = opened()
    show_all(page)
    assert page.locator(".plot .main-svg").count() > 0
    # The static images have made way, and the mode bar sends nothing anywhere.
    assert not any(image.is_visible() for image in page.locator("figure img").all())
    titles = page.locator(".modebar-btn").evaluate_all(
        "all => all.map((one) => one.dataset.title ?? one.ariaLabel)"
    )
    assert titles
    assert not any(re.search("cloud|share|plotly", title, re.IGNORECASE) for title in titles)


def test_without_scripts_the_static_images_are_there(opened):
    page = opened(java_script_enabled=False)
    images = page.locator("figure img")
    assert images.count() == 4
    expect(images.first).to_be_visible()
    assert (
        "plot"
        not in page.locator("figure").first.inner_html().split("<script")[0].split('src="')[0]
    )


def test_a_header_sorts_its_table_by_keyboard(opened):
    page = opened()
    table = page.locator("#tables ~ .scroll table").first
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
    table = page.locator("#tables ~ .scroll table").first
    rows = table.locator("tbody tr")
    mixed = [ascending[place] for place in (2, 0, 3, 1)]
    fill = "(all, texts) => all.forEach((row, i) => { row.cells[0].textContent = texts[i % 4]; })"
    rows.evaluate_all(fill, mixed)
    table.locator("thead button", has_text="Size").click()
    shown = rows.evaluate_all("(all) => all.map((row) => row.cells[0].textContent)")
    assert [*dict.fromkeys(shown)] == ascending


def test_methods_seeds_and_sizes_can_be_switched(opened):
    page = opened()
    show_all(page)
    everything = shown_traces(page)
    # Trainings, and their mean, which stays beside a seed that is chosen.
    assert {tuple(one) for one in everything} == {(m, s) for m in range(3) for s in (0, 1, None)}
    key = page.locator("#figure-entropy .keys button", has_text="STAPO")
    key.click()
    assert key.get_attribute("aria-pressed") == "false"
    assert {colour for colour, _ in shown_traces(page)} == {0, 1}
    assert {colour for colour, _ in shown_traces(page, "reward")} == {0, 1, 2}
    page.get_by_label("Seed in all figures").select_option("1")
    assert {tuple(one) for one in shown_traces(page)} == {
        (m, s) for m in range(2) for s in (1, None)
    }
    panels = page.locator("#figure-entropy .panel")
    page.get_by_label("Size in all figures").select_option("1.7B")
    assert [one.is_visible() for one in panels.all()] == [False, True]
    # What is of no size stays.
    assert page.locator("#figure-token_frequencies .panel").last.is_visible()
    key.click()
    shown = {tuple(one) for one in shown_traces(page, panel=1)}
    assert shown == {(m, s) for m in range(3) for s in (1, None)}


def test_ticks_of_steps_stay_whole_when_zoomed(opened):
    page = opened()
    show_all(page)
    plot = page.locator("#figure-entropy .plot").first
    plot.evaluate("async (one) => { await Plotly.relayout(one, {'xaxis.range': [2, 4.5]}); }")
    ticks = plot.locator(".xtick text").all_text_contents()
    assert len(ticks) == len({*ticks}) >= 2
    assert all(tick.isdigit() for tick in ticks)


def test_colours_follow_the_scheme_when_it_changes(opened):
    page = opened()
    show_all(page)
    label = page.locator("#figure-entropy .xtick text").first
    line = page.locator("#figure-entropy .keys button").first
    read = "(one) => getComputedStyle(one).fill"
    light, own = label.evaluate(read), line.evaluate("(o) => o.style.getPropertyValue('--colour')")
    page.emulate_media(color_scheme="dark")
    drawn_again = "([one, light]) => getComputedStyle(one).fill !== light"
    page.wait_for_function(drawn_again, arg=[label.element_handle(), light])
    assert line.evaluate("(o) => o.style.getPropertyValue('--colour')") != own


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
    allowed = "script[type='application/json'], figure img, .headline b, .top b"
    assert page.locator(f"main :is(script, img, b, iframe):not({allowed})").count() == 0
    assert page.locator(".plot a, .plot image[href^=http]").count() == 0
    assert page.locator("[onerror], a[href^='http']").count() == 0
    drawn = page.locator("#figure-token_frequencies .plot").all_text_contents()
    for text in drawn:
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
    region = page.locator("#tables ~ .scroll").first
    assert region.evaluate("(one) => one.scrollWidth > one.clientWidth")
    hint = page.locator("#tables ~ .hint").first
    expect(hint).to_be_visible()
    region.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(one) => one.scrollLeft > 0", arg=region.element_handle())
    # The name of the row stays in view.
    region.evaluate("(one) => { one.scrollLeft = 300; }")
    name, box = region.locator("tbody th").first.bounding_box(), region.bounding_box()
    assert abs(name["x"] - box["x"]) < 2
    # Panels stand below each other.
    first, second = (one.bounding_box() for one in page.locator("#figure-entropy .panel").all())
    assert first["x"] == second["x"]
    assert second["y"] > first["y"]


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
    for figure in page.locator("figure img").all():
        assert len(figure.get_attribute("alt")) > 20


def test_print_has_every_figure(opened):
    page = opened()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".plot .main-svg:first-child")).to_have_count(8)
    assert page.locator(".plot").count() == 8
    assert not page.locator("nav").is_visible()
