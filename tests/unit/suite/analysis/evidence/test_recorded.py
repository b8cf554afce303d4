"""Numbers of recorded tokens whose truth is known: quadrants, marks, sources of the entropy."""

import numpy as np
import pytest
from synthetic_tokens import ALL, write_study

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.estimates import total, variance
from stapo.suite.analysis.evidence.recorded import (
    NO_SILENCED,
    QUADRANTS,
    _thresholds,
    quadrants,
    recorded,
    with_pooled,
)
from stapo.suite.analysis.figures import entropy_sources as sources_figure, marks as marks_figure
from stapo.suite.analysis.tables import entropy_sources, evidence_table, marks
from stapo.suite.models.marked import DETOUR, MARKS, SLIP


def test_numbers_are_exact_if_every_token_was_recorded(complete):
    artefacts, truth = complete
    for one in recorded(artefacts):
        frame = truth[one.method]
        p, h, a = (frame[name] for name in ("probability", "entropy", "advantage"))
        norm, change = np.sqrt(frame["gradient_norm_sq"]), -p * (np.log(p) + h) * a
        rare, sure = p < 0.002, h < frame["entropy_threshold"]
        found = quadrants(one, ["> 0", "< 0"])
        base = norm[(a > 0) & ~rare & ~sure].mean()
        for row, positive in zip(found, quadrants(one) + [None] * 4, strict=True):
            mask = (rare == row.name.startswith("low")) & (sure == ("low entropy" in row.name))
            mask &= a > 0 if row.advantage == "> 0" else a < 0
            whole = (a > 0) if row.advantage == "> 0" else (a < 0)
            assert row.share.value == pytest.approx(mask.sum() / whole.sum())
            if not mask.any():
                continue
            # Records are in single precision.
            assert row.norm.value == pytest.approx(norm[mask].mean(), rel=1e-6)
            assert row.entropy_change.value == pytest.approx(change[mask].mean(), rel=1e-4)
            if positive:
                part = (norm[mask] ** 2).sum() / (norm[a > 0] ** 2).sum()
                assert positive.gradient_share.value == pytest.approx(part, rel=1e-6)
                gap = 100 * (norm[mask].mean() / base - 1)
                last = positive.name == QUADRANTS[-1]
                assert np.isnan(positive.against.value) == last
                assert last or positive.against.value == pytest.approx(gap, abs=1e-3)


def test_a_mini_batch_without_a_candidate_has_the_median_threshold(complete):
    one, _ = recorded(complete[0])
    frame = one.frame.copy()
    frame.loc[frame["step"] == 1, "entropy_threshold"] = None
    found = _thresholds(frame)
    by_step = frame.groupby("step")["entropy_threshold"].first()
    assert (found[frame["step"] == 1] == np.median(by_step.loc[[2, 3, 4]])).all()
    assert (found[frame["step"] == 2] == np.float32(by_step[2])).all()


def test_without_any_candidate_the_threshold_is_the_80th_percentile(without_candidates):
    for one in recorded(without_candidates):
        below = one.numbers("entropy") <= one.tau_h
        assert np.average(below, weights=one.sample.weight) == pytest.approx(0.8, abs=0.02)
        rows = quadrants(one)
        assert rows[0].share.value == 0 < rows[0].share.high < 1
        # Nothing recorded does not say that nothing is there.
        assert rows[0].gradient_share.value == 0
        assert np.isnan([rows[0].gradient_share.low, rows[0].gradient_share.high]).all()
    assert NO_SILENCED in evidence_table(without_candidates, "quadrants").notes


def test_base_models_take_the_place_of_trainings_in_a_pooled_row(several):
    pooled, _, *by_size = with_pooled(several)
    assert pooled.sample.trainings == len(several.study.run.models) == 2
    models = [one for one in by_size if one.method == pooled.method]
    # The mean over base models, which have nearly equally many tokens, and its standard error.
    shares = [total(one.sample, one.silenced) / one.sample.weight.sum() for one in models]
    whole = pooled.sample.weight.sum()
    found = total(pooled.sample, pooled.silenced) / whole
    assert found == pytest.approx(np.mean(shares), rel=0.01)
    error = variance(pooled.sample, (pooled.silenced - found) / whole) ** 0.5
    assert error == pytest.approx(np.std(shares, ddof=1) / 2**0.5, rel=0.05)


def test_precision_and_recall_are_counts_if_every_token_was_recorded(study, tmp_path):
    truth = [*write_study(tmp_path, study, ALL, MARKS, slips=0.08).values()]
    artefacts = Artefacts(study, tmp_path)
    for one, frame in zip(recorded(artefacts), truth, strict=True):
        positive, wrong = frame["advantage"] > 0, frame["mark"].isin([DETOUR, SLIP])
        silenced = frame["kind"] == "silenced"
        rows = marks.rows_of(one)
        assert rows[0].share_of(DETOUR, SLIP).value == pytest.approx(wrong[positive].mean())
        mask = rows[1]  # The first quadrant: what S2T silences.
        assert mask.share_of(DETOUR, SLIP).value == pytest.approx(wrong[silenced].mean())
        found = (wrong & silenced).sum() / (wrong & positive).sum()
        assert mask.found().value == pytest.approx(found)
        assert sum(mask.share_of(mark).value for mark in MARKS) == pytest.approx(1)
        assert [row.name for row in rows[10:]] == [marks.TOUCHED] * (one.method == "stapo")
        if one.method == "stapo":
            assert rows[-1].found().value == pytest.approx((wrong & silenced).sum() / wrong.sum())
    grid = marks.make(artefacts)
    assert len(grid.rows) == 21
    assert all(column.shown(grid.rows[1]) for column in grid.columns)
    assert len(marks_figure.make(artefacts).to_dict()["concat"]) == 2


def test_changes_are_sums_of_the_lemma_over_the_tokens_of_each_source(complete):
    artefacts, by_method = complete
    for one in recorded(artefacts):
        frame = by_method[one.method]
        p, advantage = frame["probability"].astype(float), frame["advantage"].astype(float)
        change = -p * (np.log(p) + frame["entropy"]) * frame["ratio"].fillna(0) * advantage
        ratio = frame["ratio"].fillna(1)
        clipped = ((advantage > 0) & (ratio > 1.28)) | ((advantage < 0) & (ratio < 0.8))
        assert clipped.any()
        has_gradient = frame["kept"] & ~clipped
        rows = {row.name: row for row in entropy_sources.sources(one, artefacts.study)}
        positive = has_gradient & (advantage > 0)
        found = rows["A > 0, rare"].change.value + rows["A > 0, other"].change.value
        assert found == pytest.approx(change[positive].sum() / len(frame), rel=1e-5)
        removed = rows["not kept"]
        assert removed.change.value == pytest.approx(
            change[~frame["kept"]].sum() / len(frame), rel=1e-5, abs=1e-12
        )
        assert (removed.share.value > 0) == (one.method == "stapo")
    assert len(entropy_sources.make(artefacts).rows) == 2 * 8
    assert len(sources_figure.make(artefacts).to_dict()["concat"]) == 1
