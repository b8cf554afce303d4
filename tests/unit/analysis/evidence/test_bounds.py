"""Gradient norms against their bounds, and quantiles of entropies."""

import dataclasses

import numpy as np
import pytest

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.draw import image
from stapo.analysis.evidence.bounds import GROUPS, bounds_chart, checked
from stapo.analysis.evidence.entropy_quantiles import quantile_chart
from stapo.analysis.evidence.recorded import recorded
from stapo.files import DamagedFileError, write_jsonl


def series_of(chart, name):
    return [one for panel in chart.panels for one in panel.series if one.name == name]


def test_all_norms_lie_between_their_bounds(complete):
    artefacts, truth = complete
    found = checked(recorded(artefacts))
    gradients = sum(int((frame["gradient_norm_sq"] > 0).sum()) for frame in truth.values())
    assert found.inside == found.tokens == gradients
    assert found.excess < 1e-5
    assert f"{gradients:,} lie between" in bounds_chart(artefacts).caption


def test_a_norm_outside_its_bounds_is_found(complete):
    one, _ = recorded(complete[0])
    frame = one.frame.copy()
    (place, *_) = np.flatnonzero(frame["gradient_norm_sq"] > 0.1)
    frame.loc[place, "gradient_norm_sq"] = 1.01 * frame.loc[place, "upper_bound"]
    found = checked([dataclasses.replace(one, frame=frame)])
    assert found.tokens - found.inside == 1
    assert found.excess > 1e-5


def test_the_figure_shows_the_collision_probability_between_the_curves(complete):
    artefacts, truth = complete
    chart = bounds_chart(artefacts)
    (lower,), (upper,) = (series_of(chart, name) for name in ("lower bound", "upper bound"))
    collisions = np.concatenate([frame["collision"] for frame in truth.values()])
    for name in GROUPS.values():
        for series in series_of(chart, name):
            x, y = np.array(series.x), np.array(series.y)
            assert len(y)
            assert (np.interp(x, lower.x, lower.y) - 1e-3 <= y).all()
            assert (np.interp(x, upper.x, upper.y) + 1e-3 >= y).all()
            # It is the sum of squared probabilities of a token.
            assert max(np.abs(collisions - one).min() for one in y) < 1e-4


def test_figures_without_tokens_and_with_several_sizes(empty, several):
    for study, panels in ((empty, 1), (several, 2)):
        chart = bounds_chart(study)
        assert len(chart.panels) == panels
        assert image(chart)["png"]


def write_metrics(artefacts, **changed):
    levels = {"0.5": 0.1, "0.8": 1.0, "0.95": 2.0} | changed
    for path in paths.metrics_paths(artefacts.study):
        records = [
            {"step": step, "entropy_quantiles": {k: v and v * step for k, v in levels.items()}}
            for step in range(1, artefacts.study.training.steps + 1)
        ]
        write_jsonl(artefacts.root / path, records)


def test_quantiles_have_a_panel_each_and_that_of_the_paper_is_marked(several):
    write_metrics(several)
    chart = quantile_chart(several)
    titles = [panel.title for panel in chart.panels]
    assert titles[:3] == [
        "small, 50th percentile",
        "small, 80th percentile (the level in the paper)",
        "small, 95th percentile",
    ]
    assert len(titles) == 6
    assert [*chart.panels[1].series[0].y] == [1.0, 2.0, 3.0, 4.0]
    # Two methods with three seeds and their mean.
    assert [one.seed for one in chart.panels[0].series] == [*several.study.run.seeds, None] * 2
    assert image(chart)["svg"]


def test_metrics_without_a_quantile_are_damaged(several):
    write_metrics(several, **{"0.8": None})
    with pytest.raises(DamagedFileError, match="entropy_quantiles are not numbers"):
        quantile_chart(Artefacts(several.study, several.root))
