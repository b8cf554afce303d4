"""Which differences between two drawings are rounding, and which are not."""

import re

import pytest

from stapo.analysis.charts import Axis, Chart, Line, Panel, Series
from stapo.analysis.draw import image
from stapo.publication.redraw import COORDINATES, NUMBER, same_drawing


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    points = Series(
        name="points", kind="points", x=[1.0, 2.5], y=[0.3, 0.7], text=["4.5 %", "-4 %"],
        labelled=True,
    )  # fmt: skip
    line = Series(name="line", x=[1.0, 2.0, 3.0], y=[0.1, 0.4, 0.2], faint=True)
    panel = Panel(
        title="14B", x=Axis(label="step 4"), y=Axis(label="share"), series=[points, line],
        lines=[Line(value=0.5, label="half")],
    )  # fmt: skip
    found = image(Chart(panels=[panel], groups=["points", "line"]))
    return {name: found[name].decode("latin-1") for name in ("svg", "pdf")}


def same(one: str, other: str) -> bool:
    return same_drawing(one.encode("latin-1"), other.encode("latin-1"))


def moved(number: re.Match[str], by: float) -> str:
    """Return a coordinate with as many characters."""
    digits = len(number[0].partition(".")[2])
    return f"{float(number[0]) + by:.{digits}f}" if digits else number[0]


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
@pytest.mark.parametrize(("by", "equal"), [(0.01, True), (0.7, False)])
def test_coordinates_may_be_rounded_differently(drawn, suffix, by, equal):
    text = drawn[suffix]

    def shift(place: re.Match[str]) -> str:
        return NUMBER.sub(lambda number: moved(number, by), place[0])

    changed = COORDINATES.sub(shift, text)
    assert changed != text
    assert same(changed, text) == equal


@pytest.mark.parametrize(
    ("suffix", "old", "new"),
    [
        ("svg", r"stroke-opacity: 0\.25", "stroke-opacity: 0.01"),
        ("svg", r"scale\(0\.1 -0\.1\)", "scale(0.5 -0.5)"),
        ("svg", r'(href="#DejaVuSans-\w+)"', r'\1.4"'),
        ("svg", "<!-- 4.5 % -->", "<!-- 4.9 % -->"),
        ("pdf", r"\(4\)", "(4.4)"),
        ("pdf", r"(?<= )0\.8 w", "0.4 w"),
        ("pdf", r"0\.6901960784 G", "1.0000000000 G"),
        ("pdf", r"(?<=\n)1 0 -0 1 ", "1.4 0 -0 1.4 "),
    ],
)
def test_text_colours_and_sizes_may_not_differ(drawn, suffix, old, new):
    text = drawn[suffix]
    changed = re.sub(old, new, text)
    assert changed != text
    assert not same(changed, text)


def test_hostile_drawings_take_no_time(drawn):
    expected = drawn["pdf"]
    for part in ("1 ", "translate(", ' d="', "1", "-", "1 1 1 1 1 1 m "):
        assert not same(" " + part * (len(expected) // len(part)), expected)
