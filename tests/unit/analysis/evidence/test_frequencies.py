"""The most frequent candidates, and silenced tokens by position."""

import dataclasses
from math import isnan

import numpy as np
import pytest

from stapo.analysis.draw import image
from stapo.analysis.evidence.frequencies import (
    SHOWN,
    _names,
    clouds_of,
    frequencies,
    frequency_chart,
    frequency_table,
)
from stapo.analysis.evidence.positions import (
    by_absolute_position,
    by_relative_position,
    position_chart,
)
from stapo.analysis.evidence.recorded import NO_SILENCED, recorded


@pytest.mark.parametrize(
    ("token", "clouds"),
    [
        ("7", ["silenced"]),
        (" 42", ["silenced"]),
        ("$", ["silenced"]),
        ("x", ["silenced"]),
        (" so ", ["retained"]),
        ("Wait", ["retained"]),
        ("digits", []),
        ("", []),
        (" \n", []),
        ("the", []),
    ],
)
def test_words_of_the_papers_clouds(token, clouds):
    assert list(clouds_of(token)) == clouds


def test_shares_are_those_of_the_tokens_if_all_were_recorded(complete):
    artefacts, truth = complete
    for one in recorded(artefacts):
        for kind in ("silenced", "retained"):
            frame = truth[one.method]
            counts = frame.loc[frame["kind"] == kind, "token"].value_counts()
            found = frequencies(one, kind)
            assert len(found) == min(SHOWN, len(counts))
            shares = [row.share.value for row in found]
            assert shares == sorted(shares, reverse=True)
            assert shares == pytest.approx((counts / counts.sum()).tolist()[: len(found)])
            assert all(row.share.low < row.share.value < row.share.high for row in found)


def test_white_space_is_visible_in_bars_and_rows(complete):
    tokens = {row.token for row in frequency_table(complete[0]).rows}
    assert tokens & {"\u2423", "\u21b5", "\u2423so\u2423", "\u2423wait\u2423", "\u2423Let"}
    assert not any(token.isspace() for token in tokens)


def test_long_and_hidden_tokens_have_short_and_different_names(artefacts):
    rows = frequencies(recorded(artefacts)[0], "silenced")[:3]
    long = [dataclasses.replace(row, token="a\u202e" + 99 * "b" + row.token) for row in rows]
    names = _names(long)
    assert len({*names}) == 3
    assert max(map(len, names)) < 45
    assert names[0].startswith("a\\u202ebb")


def test_charts_of_every_kind_of_study(several, empty, without_candidates):
    for study, sizes in ((several, 2), (empty, 1), (without_candidates, 1)):
        chart, positions = frequency_chart(study), position_chart(study)
        assert len(chart.panels) == sizes * 4
        assert len(positions.panels) == sizes * 2
        for one in (chart, positions):
            assert (NO_SILENCED in one.caption) == (study is not several)
            assert image(one)["svg"]


def test_silenced_shares_by_position_are_those_of_the_tokens(complete):
    artefacts, truth = complete
    for one in recorded(artefacts):
        frame = truth[one.method]
        silenced = frame["kind"] == "silenced"
        absolute = by_absolute_position(one)
        assert len(absolute) == int(frame["position"].max()).bit_length() + 1
        for i, found in enumerate(absolute):
            first, last = (0, 0) if i == 0 else (2 ** (i - 1), 2**i - 1)
            here = frame["position"].between(first, last)
            assert found.silenced.value == pytest.approx(silenced[here].mean())
            assert first + 1 <= found.x <= last + 1
        relative = by_relative_position(one)
        tenth = np.floor(10 * (frame["position"] + 0.5) / frame["length"])
        for i, found in enumerate(relative):
            assert found.silenced.value == pytest.approx(silenced[tenth == i].mean())
        assert sum(found.silenced.records for found in relative) == silenced.sum()


def test_a_range_without_a_silenced_token_has_no_point_on_the_logarithmic_axis(complete):
    chart = position_chart(complete[0])
    zeros = 0
    for panel in chart.panels:
        assert panel.y.log
        for series in panel.series:
            for y, low in zip(series.y, series.low, strict=True):
                assert (isnan(y) and isnan(low)) or (y > 0 and low > 0)
                zeros += isnan(y)
    assert zeros
