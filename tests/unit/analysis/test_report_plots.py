"""Charts become Plotly figures with the same values, and no text of theirs is markup."""

import json
from math import nan

import pytest

from stapo.analysis.charts import MAX_POINTS, Axis, Chart, Line, Panel, Series
from stapo.analysis.draw import draw
from stapo.analysis.page.plots import literal, plot, rounded, thinned


def panel_of(*series, **about):
    (panel,) = plot(Chart(panels=[Panel(series=series, **about)]), [])["panels"]
    return panel


def test_values_seeds_and_groups_are_those_of_the_chart():
    ours = Series(name="STAPO", x=[1, 2], y=[0.5, nan], seed=3, dashed=True)
    theirs = Series(name="raw", group="JustRL", x=[1, 2], y=[1 / 3, 2.0], seed=1, faint=True)
    chart = Chart(groups=["GRPO", "JustRL", "STAPO"], panels=[Panel(series=[ours, theirs])])
    found = plot(chart, [])
    assert found["groups"] == [[1, "JustRL"], [2, "STAPO"]]
    assert found["seeds"] == [1, 3]
    first, second = found["panels"][0]["data"]
    assert (first["x"], first["y"], first["line"]["dash"]) == ([1, 2], [0.5, None], "dash")
    assert first["meta"] == {"colour": 2, "seed": 3}
    assert second["y"] == [0.333333, 2]
    assert (second["opacity"], second["hoverinfo"]) == (0.3, "skip")
    json.dumps(found, allow_nan=False)


def test_text_is_literal_for_plotly():
    hostile = "<a href='x'>&amp; %{y} \u202e"
    assert literal(hostile) == "&lt;a href='x'&gt;&amp;amp; %&#123;y} \\u202e"
    bars = panel_of(
        Series(name=hostile, kind="bars", x=["<b>7</b>"], y=[1], text=[hostile]),
        x=Axis(label=hostile), lines=[Line(value=1, label=hostile, vertical=True)],
    )  # fmt: skip
    assert "<" not in json.dumps(bars).replace("<br>", "")


def test_bars_lie_and_keep_their_names():
    bars = panel_of(
        Series(name="n", kind="bars", x=["7", "12"], y=[3, 1], low=[2, 0.5], high=[5, 1])
    )
    (trace,) = bars["data"]
    assert (trace["x"], trace["y"], trace["orientation"]) == ([3, 1], ["7", "12"], "h")
    assert (trace["error_x"]["array"], trace["error_x"]["arrayminus"]) == ([2, 0], [1, 0.5])
    # Digits are names here, and the first is at the top.
    assert (bars["layout"]["yaxis"]["type"], bars["layout"]["yaxis"]["autorange"]) == (
        "category", "reversed",
    )  # fmt: skip


def test_an_interval_is_a_band_around_a_line():
    band, line = panel_of(
        Series(name="n", x=[1, 2, 3], y=[1, 2, 3], low=[0, nan, 2], high=[2, 3, 4])
    )["data"]
    assert (band["x"], band["y"]) == ([1, 3, 3, 1], [2, 4, 2, 0])
    assert line["y"] == [1, 2, 3]


def test_panels_in_a_row_share_their_axis_unless_told_otherwise():
    low, high = (Series(name="n", x=[1], y=[y]) for y in (1.0, 100.0))
    for log, expected in ((False, [-3.95, 104.95]), (True, [-0.1, 2.1])):
        panels = [Panel(series=[one], y=Axis(log=log)) for one in (low, high)]
        shared = plot(Chart(panels=panels), [])["panels"]
        assert [panel["layout"]["yaxis"]["range"] for panel in shared] == [expected] * 2
        for chart in (Chart(panels=panels, share_y=False), Chart(panels=panels, columns=1)):
            assert all("range" not in one["layout"]["yaxis"] for one in plot(chart, [])["panels"])


def test_whole_axes_limits_lines_and_the_second_axis():
    layout = panel_of(
        Series(name="n", x=[1], y=[2], second=True),
        x=Axis(whole=True, low=0, high=10), y=Axis(log=True, low=0.01, high=100), second=Axis(label="right"),
        lines=[Line(value=0.1, label="paper")],
    )["layout"]  # fmt: skip
    assert (layout["xaxis"]["tickformat"], layout["xaxis"]["range"]) == (",d", [0, 10])
    assert (layout["yaxis"]["type"], layout["yaxis"]["range"]) == ("log", [-2, 2])
    assert (layout["yaxis2"]["side"], layout["yaxis2"]["title"]["text"]) == ("right", "right")
    assert layout["yaxis2"]["tickmode"] == "auto"
    assert layout["shapes"][0]["y0"] == 0.1
    assert layout["annotations"][0]["y"] == -1


def test_an_axis_with_one_limit_begins_or_ends_there_whatever_is_drawn_again():
    layout = panel_of(x=Axis(low=0), y=Axis(high=3))["layout"]
    assert layout["xaxis"]["autorangeoptions"] == {"minallowed": 0, "include": 0}
    assert layout["yaxis"]["autorangeoptions"] == {"maxallowed": 3, "include": 3}
    assert not {"range"} & {*layout["xaxis"], *layout["yaxis"]}


@pytest.mark.parametrize(
    ("title", "size"), [("8B", "8B"), ("1.7B, T = 1.0", "1.7B"), ("18B", ""), ("AIME24", "")]
)
def test_a_panel_belongs_to_the_size_that_its_title_begins_with(title, size):
    chart = Chart(panels=[Panel(series=[], title=title)])
    assert plot(chart, ["1.7B", "8B"])["panels"][0]["size"] == size


def test_long_lines_are_thinned_and_numbers_are_short():
    steps = range(1, 3 * MAX_POINTS)
    (line,) = panel_of(Series(name="n", x=steps, y=[1 / step for step in steps]))["data"]
    assert len(line["x"]) == len(line["y"]) == MAX_POINTS
    assert line["x"][:3] == [1, 4, 7]
    for kind, note in {"line": True, "points": False}.items():
        found = Series(name="n", x=steps, y=[*steps], kind=kind)
        assert bool(thinned(Chart(panels=[Panel(series=[found])]))) == note
    short = Series(name="n", x=steps[:MAX_POINTS], y=steps[:MAX_POINTS])
    assert not thinned(Chart(panels=[Panel(series=[short])]))
    assert [rounded(x) for x in (1 / 3, 5e-324, 12345678.9, True, float("inf"))] == [
        0.333333, 5e-324, 12345700, True, None,
    ]  # fmt: skip


def test_groups_with_the_same_colour_have_other_lines():
    series = [Series(name=f"method {i}", x=[1, 2], y=[i, i]) for i in range(17)]
    chart = Chart(panels=[Panel(series=series)])
    drawn = plot(chart, [])["panels"][0]["data"]
    looks = {(one["meta"]["colour"] % 8, one["line"]["dash"]) for one in drawn}
    lines = draw(chart).axes[0].lines
    assert len(looks) == len({(one.get_color(), one.get_linestyle()) for one in lines}) == 17
