"""Stability, dose and endpoints of trainings whose numbers are known."""

from itertools import product
from math import exp, isnan, log

import numpy as np
import pytest
from scipy import stats

from stapo.core.files import write, write_jsonl
from stapo.suite import paths
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.formats import render
from stapo.suite.analysis.tables import endpoints
from stapo.suite.analysis.tables.dose import dose
from stapo.suite.analysis.tables.endpoints import ALL, ENDPOINTS, endpoint_rows, gap
from stapo.suite.analysis.tables.stability import (
    COLLAPSE,
    EXPLOSION,
    entropy_numbers,
    make as table,
)
from stapo.suite.study import merge, parse_study

STEPS = 400


def numbers(*parts):
    """Return the numbers of entropies, given as pairs of a value and how many steps have it."""
    entropy = np.concatenate([np.full(steps, float(value)) for value, steps in parts])
    return entropy_numbers(entropy, warm_up=8)


def test_the_spread_is_that_of_the_moving_mean_relative_to_its_mean():
    # Half of the steps at 1, half at 3: mean 2, standard deviation 1, smoothed only around the jump.
    assert numbers((1, 204), (3, 196)).spread == pytest.approx(0.5, abs=0.02)
    # Noise from step to step, half of the mean, hardly counts.
    noise = 0.4 + 0.2 * np.random.default_rng(0).standard_normal(STEPS)
    assert entropy_numbers(noise, warm_up=8).spread < 0.15


@pytest.mark.parametrize(
    ("parts", "collapses"),
    [
        ([(0.4, 4), (0.01, STEPS - 4)], True),  # Within the warm-up of 8 steps.
        ([(0.4, 380), (0.01, STEPS - 380)], True),
        ([(0.4, 200), (1.5, 200)], False),
        ([(0.2, 4), (1.5, STEPS - 4)], False),
    ],
)
def test_collapse_and_explosion_are_found_whenever_they_happen(parts, collapses):
    found = numbers(*parts)
    assert (found.lowest < COLLAPSE) == collapses
    assert (found.highest > EXPLOSION) != collapses
    assert numbers((1, 400)).before_collapse == 1
    # The moving mean over 20 steps is below a tenth once 19 of them are past the fall.
    assert numbers((1, 300), (0.01, 100)).before_collapse == pytest.approx(309 / 400)


def several(raw, root, steps=40):
    raw["run"] |= {
        "methods": ["justrl", "stapo"], "seeds": [0, 1, 2],
        "benchmarks": ["chain-2", "chain-3"], "decodings": ["t0.7-p0.9"],
    }  # fmt: skip
    study = parse_study(merge(raw, {"training": {"steps": steps}}))
    for run in study.runs():
        late = 1 if run.method == "stapo" else 4 + run.seed
        records = [
            {"step": step, "entropy": (0.4 + 0.01 * run.seed) * (late if step >= 20 else 1)}
            for step in range(1, steps + 1)
        ]
        write_jsonl(root / paths.METRICS.format(study=study.name, **run._asdict()), records)
    return Artefacts(study, root)


def test_the_table_has_means_and_intervals_over_seeds(raw_study, tmp_path):
    grid = table(several(raw_study, tmp_path))
    justrl, stapo = ({c.heading: c.value(row) for c in grid.columns} for row in grid.rows)
    assert (justrl["Exploded"], justrl["Collapsed"]) == ("3 of 3", "0 of 3")
    level = stapo["Entropy after warm-up [nats]"]
    assert level.value == pytest.approx(0.41)
    assert level.low == pytest.approx(0.41 - 4.303 * 0.01 / 3**0.5)
    factors = [4, 5, 6]
    highest = justrl["Highest entropy [ratio]"].value
    assert highest == pytest.approx(exp(sum(map(log, factors)) / 3), rel=0.01)
    assert stapo["Spread of entropy [%]"].value == pytest.approx(0, abs=0.1)  # the floor of ratios
    assert justrl["Spread of entropy [%]"].low > 0


def test_a_difference_of_trainings_is_paired_by_seed() -> None:
    ours, theirs = [0.9, 0.8, 0.95, 0.85], [0.2, 0.4, 0.3, 0.1]
    found = gap([[value] for value in ours], [[value] for value in theirs])
    gaps = [0.7, 0.4, 0.65, 0.75]
    expected = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
    # Quantiles of Student's t have three decimals.
    assert (found.value.low, found.value.high) == pytest.approx((expected.low, expected.high), 1e-3)
    assert found.p_value == pytest.approx(2 / 16)
    needed = stats.t.ppf(0.975, 3) + stats.t.ppf(0.8, 3)
    assert found.detectable == pytest.approx(needed * np.std(gaps, ddof=1) / 2)
    alone = gap([[0.5]], [[0.25]])
    assert alone.value.value == 0.25
    assert isnan(alone.value.low)
    assert isnan(alone.p_value)
    assert isnan(alone.detectable)


def test_base_models_that_differ_in_their_seed_are_compared_in_pairs(
    raw_study, tmp_path, monkeypatch
):
    ours, theirs = [[0.9, 0.8], [0.5, 0.45]], [[0.7, 0.75], [0.4, 0.3]]
    found, gaps = gap(ours, theirs), [0.2, 0.05, 0.1, 0.15]
    flips = [abs(np.dot(signs, gaps)) for signs in product((-1, 1), repeat=4)]
    assert found.p_value == pytest.approx(np.mean(np.array(flips) >= sum(gaps) - 1e-9)) == 2 / 16
    assert found.over_models.value == pytest.approx(0.125)
    assert found.over_models.low == pytest.approx(0.125)  # that of both base models

    (size, model), *_ = raw_study["models"].items()
    raw_study["models"] = {size: model, "other": model | {"seed": 7}}
    raw_study["run"]["models"] = [size, "other"]
    last = {"until-collapse": ENDPOINTS["until-collapse"]}
    monkeypatch.setattr(endpoints, "ENDPOINTS", last)
    rows = [*endpoint_rows(several(raw_study, tmp_path))]
    assert [row.model for row in rows] == [ALL] * 2 + [size] * 2 + ["other"] * 2
    assert rows[0].values == [100.0, 100.0]  # of both base models
    grid = table(several(raw_study, tmp_path))
    pooled, _, alone, *_ = ({c.heading: c.value(row) for c in grid.columns} for row in grid.rows)
    # Both base models have the same trainings: over models there is no variance, over their seeds there is.
    assert (pooled["Exploded"], alone["Exploded"]) == ("6 of 6", "3 of 3")
    for heading in ("Entropy after warm-up [nats]", "Highest entropy [ratio]"):
        assert pooled[heading].value == pytest.approx(alone[heading].value)
        assert pooled[heading].low == pytest.approx(pooled[heading].value)
        assert alone[heading].low < pooled[heading].low
    raw_study["compare"] = {"baselines": ["justrl"], "endpoint": "until-collapse"}
    artefacts = several(raw_study, tmp_path)
    (said,) = endpoints.primary_texts(artefacts)
    assert said.endswith(" all: STAPO minus JustRL +0 [+0, +0], p = 1.000")
    path = tmp_path / paths.TABLE.format(
        study=artefacts.study.name, table="endpoints", suffix="csv"
    )
    write(path, render(endpoints.make(artefacts), "csv", "", ""))
    monkeypatch.chdir(tmp_path)
    assert endpoints.published_primary_texts(artefacts.study, ["STAPO"]) == [said]
    raw_study["models"]["other"]["hidden_size"] = 64
    assert len([*endpoint_rows(several(raw_study, tmp_path))]) == 4


def test_a_method_acts_where_it_drops_or_touches_a_token(raw_study, tmp_path):
    raw_study["run"] |= {"methods": ["stapo"], "seeds": [0]}
    raw_study["training"]["steps"] = 10
    study = parse_study(raw_study)
    (run,) = study.runs()
    records = []
    for step in range(10):
        line = {"step": step + 1, "silenced_fraction": 0.001 * (step < 4)}
        line["kept_fraction"] = 1 - line["silenced_fraction"]
        line |= {"touched_fraction": 0.02 * (step < 6), "touched_weight": 0.5 * (step < 6)}
        records.append(line)
    write_jsonl(tmp_path / paths.METRICS.format(study=study.name, **run._asdict()), records)
    found = dose(Artefacts(study, tmp_path), run)
    assert [*found.values()] == pytest.approx([60, 0.04, 0.04, 1.2, 30])
