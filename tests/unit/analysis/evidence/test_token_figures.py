"""Figures of recorded tokens and of quantiles hold the numbers of the records."""

import dataclasses

import numpy as np
import pytest
from drawn import caption, panels
from studies import outputs

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.charts import MAX_POINTS
from stapo.analysis.draw import chart_of, image
from stapo.analysis.evidence.bounds import checked
from stapo.analysis.evidence.frequencies import SHOWN, clouds_of, frequencies
from stapo.analysis.evidence.quadrants import NAMES
from stapo.analysis.evidence.recorded import NO_SILENCED, recorded
from stapo.analysis.figures import token_frequencies
from stapo.files import DamagedFileError, write_jsonl

OF_TOKENS = {
    "quadrants": 2,
    "gradient_bounds": 1,
    "token_frequencies": 4,
    "silenced_by_position": 2,
}
"""Figure -> panels of a size with two methods."""


@pytest.mark.parametrize("name", OF_TOKENS)
def test_every_kind_of_study_is_drawn(name, several, empty, without_candidates):
    for study, sizes in ((several, 2), (empty, 1), (without_candidates, 1)):
        chart = chart_of(study, name)
        found = panels(chart)
        assert len(found) == sizes * OF_TOKENS[name]
        assert sum(len(unit.rows) for panel in found for unit in panel.of("point")) <= MAX_POINTS
        assert image(chart)["svg"]
        if name in ("token_frequencies", "silenced_by_position"):
            assert (NO_SILENCED in caption(chart)) == (study is not several)


def test_norms_lie_between_their_bounds_and_one_outside_is_found(complete):
    artefacts, truth = complete
    found = checked(recorded(artefacts))
    gradients = sum(int((frame["gradient_norm_sq"] > 0).sum()) for frame in truth.values())
    assert found.inside == found.tokens == gradients
    assert found.excess < 1e-5
    chart = chart_of(artefacts, "gradient_bounds")
    assert f"{gradients:,} lie between" in caption(chart)
    (panel,) = panels(chart)
    lines = {name: np.transpose(line) for (name, _), line in panel.lines().items()}
    x, y = (np.array([row[axis] for row in panel.of("point")[0].rows]) for axis in "xy")
    assert (np.interp(x, *lines["lower bound"]) - 1e-3 <= y).all()
    assert (np.interp(x, *lines["upper bound"]) + 1e-3 >= y).all()
    # What is drawn is the sum of squared probabilities of a token.
    collisions = np.concatenate([frame["collision"] for frame in truth.values()])
    assert max(np.abs(collisions - one).min() for one in y) < 1e-4

    one, _ = recorded(artefacts)
    frame = one.frame.copy()
    (place, *_) = np.flatnonzero(frame["gradient_norm_sq"] > 0.1)
    frame.loc[place, "gradient_norm_sq"] = 1.01 * frame.loc[place, "upper_bound"]
    found = checked([dataclasses.replace(one, frame=frame)])
    assert found.tokens - found.inside == 1
    assert found.excess > 1e-5


def test_quadrants_have_their_tokens_and_numbers(complete):
    for one, panel in zip(
        recorded(complete[0]), panels(chart_of(complete[0], "quadrants")), strict=True
    ):
        assert panel.title == f"{one.size}, {one.title}"
        silenced = [row for row in panel.of("point")[0].rows if row["group"] == NAMES[0]]
        assert silenced
        assert all(row["x"] < one.tau_p for row in silenced)
        assert {row["group"] for row in panel.of("text")[-1].rows} == {*NAMES}
        assert [unit.rows[0]["label"] for unit in panel.of("rule")] == ["tau_p", "median of tau_h"]


def test_words_of_the_papers_clouds():
    assert all([*clouds_of(token)] == ["silenced"] for token in ("7", " 42", "$", "x"))
    assert all([*clouds_of(token)] == ["retained"] for token in (" so ", "Wait"))
    assert not any([*clouds_of(token)] for token in ("digits", "", " \n", "the"))


def test_frequencies_are_those_of_the_tokens_if_all_were_recorded(complete):
    artefacts, truth = complete
    for one in recorded(artefacts):
        for kind in ("silenced", "retained"):
            frame = truth[one.method]
            counts = frame.loc[frame["kind"] == kind, "token"].value_counts()
            found = frequencies(one, kind)
            assert len(found) == min(SHOWN, len(counts))
            shares = [row.share.value for row in found]
            assert shares == pytest.approx((counts / counts.sum()).tolist()[: len(found)])
            assert all(row.share.low < row.share.value < row.share.high for row in found)


def test_long_and_hidden_tokens_have_short_and_different_names(artefacts):
    rows = frequencies(recorded(artefacts)[0], "silenced")[:3]
    long = [dataclasses.replace(row, token="a\u202e" + 99 * "b" + row.token) for row in rows]
    names = [row["y"] for row in token_frequencies._rows(long, "silenced")]
    assert len({*names}) == 3
    assert max(map(len, names)) < 45
    assert names[0].startswith('"a\\u202ebb')


def test_silenced_shares_by_position_are_those_of_the_tokens(complete):
    artefacts, truth = complete
    relative, absolute = panels(chart_of(artefacts, "silenced_by_position"))
    frame = truth["stapo"].assign(silenced=lambda f: f["kind"] == "silenced")
    tenth = np.floor(10 * (frame["position"] + 0.5) / frame["length"])
    bits = frame["position"].map(lambda position: int(position).bit_length())
    for panel, index in ((relative, tenth), (absolute, bits)):
        line = panel.lines()["STAPO", None]
        shares = 100 * frame.groupby(index)["silenced"].mean()
        # A logarithmic axis has no 0.
        expected = [share if share > 0 else None for share in shares]
        assert [y and pytest.approx(y, rel=1e-5) for _, y in line] == expected
        assert panel.of("line")[0].encoding["y"]["scale"]["type"] == "log"
    assert None in expected
    assert [x for x, _ in absolute.lines()["STAPO", None]][:3] == [1, 2, pytest.approx(12**0.5)]


def write_metrics(artefacts, **changed):
    levels = {"0.5": 0.1, "0.8": 1.0, "0.95": 2.0} | changed
    for path in outputs(artefacts.study, "train", "metrics.jsonl"):
        records = [
            {"step": step, "entropy_quantiles": {k: v and v * step for k, v in levels.items()}}
            for step in range(1, artefacts.study.training.steps + 1)
        ]
        write_jsonl(artefacts.root / path, records)


def test_quantiles_have_a_panel_each_and_that_of_the_paper_is_marked(several):
    write_metrics(several)
    found = panels(chart_of(several, "entropy_quantiles"))
    assert len(found) == 6
    assert [panel.title for panel in found][:2] == [
        "small, 50th percentile",
        "small, 80th percentile (the level in the paper)",
    ]
    lines = found[1].lines(pale=True)
    assert [y for _, y in next(iter(lines.values()))] == [1.0, 2.0, 3.0, 4.0]
    assert {seed for _, seed in lines} == {*several.study.run.seeds}
    write_metrics(several, **{"0.8": None})
    with pytest.raises(DamagedFileError, match="entropy_quantiles are not numbers"):
        chart_of(Artefacts(several.study, several.root), "entropy_quantiles")
