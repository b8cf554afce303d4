"""The most frequent candidates, and silenced tokens by position."""

import numpy as np
import pytest

from stapo.analysis.evidence.frequencies import (
    SHOWN,
    clouds_of,
    frequencies,
)
from stapo.analysis.evidence.positions import (
    by_absolute_position,
    by_relative_position,
)
from stapo.analysis.evidence.recorded import recorded


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
