"""Charts as matplotlib draws them."""

import io
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from stapo.analysis.charts import Axis, Chart, Line, Panel, Series
from stapo.analysis.draw import COLOURS, colours_of, draw, image

LINE = Series(name="raw", group="A", x=[1, 2, 3], y=[1.0, 4.0, 2.0], low=[0, 3, 1], high=[2, 5, 3])


def test_lines_have_their_values_bands_and_the_colour_of_their_group():
    chart = Chart(groups=["B", "A"], panels=[Panel(title="8B", series=[LINE])])
    (place,) = draw(chart).axes
    (line,) = place.lines
    assert line.get_xydata().tolist() == [[1, 1], [2, 4], [3, 2]]
    assert line.get_color() == COLOURS[1]
    (band,) = place.collections
    assert {*map(tuple, band.get_paths()[0].vertices)} >= {(1.0, 0.0), (2.0, 5.0), (3.0, 1.0)}
    assert place.get_title() == "8B"


def test_groups_that_the_chart_does_not_name_get_the_next_colours():
    chart = Chart(groups=["A"], panels=[Panel(series=[LINE, Series(name="C", x=[1], y=[1])])])
    assert colours_of(chart) == {"A": COLOURS[0], "C": COLOURS[1]}


def test_each_name_is_once_in_the_legend_and_what_is_faint_is_not():
    series = [LINE, Series(name="faint", x=[1], y=[1], faint=True)]
    lines = [Line(value=2.0, label="limit")]
    figure = draw(Chart(panels=[Panel(series=series, lines=lines), Panel(series=series)]))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["raw", "limit"]


def test_axes_are_labelled_logarithmic_limited_and_whole():
    x, y = Axis(label="step", whole=True), Axis(label="share [%]", log=True, low=0.1, high=10)
    (place,) = draw(Chart(panels=[Panel(series=[LINE], x=x, y=y)])).axes
    assert (place.get_xlabel(), place.get_ylabel()) == ("step", "share [%]")
    assert (place.get_yscale(), place.get_ylim()) == ("log", (0.1, 10))
    assert {"0.1", "1", "10"} <= {text.get_text() for text in place.get_yticklabels()}
    assert all(tick == round(tick) for tick in place.get_xticks())


def test_a_second_axis_has_its_own_scale():
    second = Series(name="accuracy", x=[1, 2], y=[100.0, 300.0], second=True)
    panel = Panel(series=[LINE, second], second=Axis(label="accuracy [%]"))
    left, right = draw(Chart(panels=[panel])).axes
    assert right.get_ylabel() == "accuracy [%]"
    assert right.get_ylim()[1] > 100 > left.get_ylim()[1]


def test_bars_of_several_series_stand_side_by_side_with_their_intervals():
    names = ["7", "$x$"]
    series = [
        Series(name=name, x=names, y=[0.5, 0.25], low=[0.4, 0.2], high=[0.7, 0.3], kind="bars")
        for name in ("silenced", "retained")
    ]
    (place,) = draw(Chart(panels=[Panel(series=series)])).axes
    bars = place.patches
    assert [bar.get_width() for bar in bars] == [0.5, 0.25, 0.5, 0.25]
    spans = sorted((bar.get_y(), bar.get_y() + bar.get_height()) for bar in bars)
    assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))
    assert [text.get_text() for text in place.get_yticklabels()] == names
    ends = [place.collections[0].get_segments()[0][:, 0].tolist()]
    assert ends == [pytest.approx([0.4, 0.7])]


@pytest.mark.parametrize("text", ["$\\frac$", "a_b^c", "<b>\u202e\x1b[31m"])
def test_text_is_no_markup(text):
    series = Series(name=text, x=[1], y=[1], text=[text], labelled=True)
    chart = Chart(panels=[Panel(title=text, series=[series], x=Axis(label=text))])
    drawn = image(chart)
    assert {*drawn} == {"svg", "pdf", "png"}
    assert b"\x1b" not in drawn["svg"]


def test_a_png_has_a_palette_in_which_no_group_loses_its_colour():
    x = np.linspace(0, 9, 200).tolist()
    series = [
        Series(
            name=str(i), x=x, y=np.sin(np.add(x, i)).tolist(), low=[-1.0] * 200, high=[1.0] * 200
        )
        for i in range(len(COLOURS))
    ]
    picture = Image.open(io.BytesIO(image(Chart(panels=[Panel(series=series)]))["png"]))
    assert picture.mode == "P"
    assert picture.info["dpi"] == pytest.approx((150, 150), abs=0.1)
    pixels = np.unique(np.array(picture.convert("RGB")).reshape(-1, 3), axis=0).astype(int)
    for colour in COLOURS:
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        # An octree of 256 colours has steps of up to 32 in each channel; groups are further apart.
        assert np.abs(pixels - wanted).max(axis=1).min() < 32


def test_an_empty_chart_is_drawn():
    assert image(Chart(panels=[]))["png"].startswith(b"\x89PNG")


def test_labels_of_a_logarithmic_axis_are_numbers_without_markup():
    for top, labels in ((0.6, {"0.02", "0.05", "0.1", "0.2", "0.5"}), (60.0, {"0.1", "1", "10"})):
        series = [Series(name="a", x=[1, 2], y=[0.02, top])]
        figure = draw(Chart(panels=[Panel(series=series, y=Axis(log=True))]))
        figure.draw_without_rendering()
        axis = figure.axes[0].yaxis
        low, high = axis.get_view_interval()
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        shown = {
            tick.label1.get_text() for tick in ticks if low <= tick.get_loc() <= high
        }  # Ticks outside are not drawn.
        assert shown - {""} == labels
