"""Charts as files: the same bytes on every machine, and text is never markup."""

import os
import sys

import pytest
from programs import python

from stapo.suite.analysis import charts
from stapo.suite.analysis.charts import image

HOSTILE = "<b>&amp; \u202e\x1b[31m $\\frac$ {{datum.x}} \u4e2d\u2423"
ROWS = [
    {"x": x, "y": y, "low": y - 1, "high": y + 1, "group": group, "text": HOSTILE}
    for group in ("A", HOSTILE)
    for x, y in ((1, 2.0), (2, float("nan")), (3, 4.123456789))
]


def every_kind(rows=ROWS):
    """Return a chart with every part that figures have."""
    group = charts.colours(["A", HOSTILE])
    x, y = charts.x_axis(HOSTILE, log=True), charts.y_axis("y [%]", low=0)
    names = [{**row, "x": row["y"], "y": f"{HOSTILE}{row['x']}"} for row in rows]
    drawn = [
        [*charts.lines(rows, x, y, group), *charts.rule(2.0, HOSTILE)],
        charts.points(rows, x, y, group),
        charts.bars(names, HOSTILE, group),
        [],
    ]
    return charts.grid([charts.panel(one, HOSTILE) for one in drawn], HOSTILE, columns=2)


@pytest.mark.slow
def test_other_locales_times_and_fonts_give_the_same_bytes(tmp_path):
    code = (
        "import hashlib, test_draw; print(*(hashlib.sha256(one).hexdigest() for one in "
        "test_draw.image(test_draw.every_kind()).values()))"
    )
    found = set()
    for other in ({}, {"TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "HOME": str(tmp_path)}):
        place = os.pathsep.join([os.path.dirname(__file__), *sys.path])
        found.add(python("-c", code, **other, PYTHONPATH=place).stdout)
    assert len(found) == 1


def test_files_have_their_formats_one_font_and_no_markup_of_a_text():
    before = os.environ.get("FONTCONFIG_FILE")
    drawn = image(every_kind())
    assert os.environ.get("FONTCONFIG_FILE") == before
    assert {name: data[:4] for name, data in drawn.items()} == {
        "svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"
    }  # fmt: skip
    assert drawn["pdf"].count(b"/FontFile2") == 1
    svg = drawn["svg"].decode()
    assert not {"\x1b", "\u202e", "\u4e2d"} & {*svg}
    assert "<b>" not in svg
    assert "\\u4e2d" in svg


def test_of_many_groups_no_two_look_alike():
    group = charts.colours(map(str, range(24)))
    for channel in ("strokeDash", "shape"):
        looks = (map(str, group[one]["scale"]["range"]) for one in ("color", channel))
        assert len({*zip(*looks, strict=True)}) == 24
