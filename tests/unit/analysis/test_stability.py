"""Stability of trainings whose entropy, checkpoints and responses are known."""

from math import exp, isnan, log

import numpy as np
import pyarrow.parquet as pq
import pytest
from studies import outputs
from synthetic import write_score

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.stability import (
    COLLAPSE,
    EXPLOSION,
    START,
    WARM_UP,
    entropy_numbers,
    late_curve,
    late_degradations,
    warm_up_steps,
)
from stapo.analysis.table import with_interval
from stapo.analysis.tables.stability import make as table
from stapo.evaluation.statistics import Interval
from stapo.files import DamagedFileError, write_jsonl
from stapo.records.responses import AnsweredProblem, write_responses
from stapo.repository import ROOT
from stapo.study import TrainingRun, merge, parse_study

STEPS = 400


def numbers(entropy):
    return entropy_numbers(np.asarray(entropy, dtype=float), warm_up=8)


def test_a_constant_entropy_is_stable():
    found = numbers(np.full(STEPS, 0.4))
    assert (found.start, found.level) == pytest.approx((0.4, 0.4))
    assert found.spread == pytest.approx(0, abs=1e-12)
    assert (found.lowest, found.highest) == pytest.approx((1, 1))


def test_the_spread_is_that_of_the_moving_mean_relative_to_its_mean():
    # Half of the steps at 1, half at 3: mean 2, standard deviation 1, smoothed only around the jump.
    found = numbers([1.0] * 204 + [3.0] * 196)
    assert found.spread == pytest.approx(0.5, abs=0.02)
    # Noise from step to step, half of the mean, hardly counts.
    noise = numbers(0.4 + 0.2 * np.random.default_rng(0).standard_normal(STEPS))
    assert noise.spread < 0.15


@pytest.mark.parametrize("step", [4, 100, 380])
def test_a_collapse_is_found_whenever_it_happens(step):
    """Also within the warm-up of 8 steps, after which the level is that of the collapse."""
    entropy = np.full(STEPS, 0.4)
    entropy[step:] = 0.01
    found = numbers(entropy)
    assert found.lowest < COLLAPSE
    assert found.highest < EXPLOSION


def test_an_explosion_is_found_also_within_the_warm_up():
    late = np.concatenate([np.full(200, 0.4), np.full(200, 1.5)])
    early = np.concatenate([np.full(4, 0.2), np.full(STEPS - 4, 1.5)])
    for entropy in (late, early):
        found = numbers(entropy)
        assert found.highest > EXPLOSION
        assert found.lowest > COLLAPSE


def test_without_entropy_there_is_no_ratio():
    found = numbers(np.zeros(STEPS))
    assert isnan(found.lowest)
    assert isnan(found.spread)


def test_a_single_step_after_the_warm_up_has_no_spread():
    assert isnan(numbers(np.full(9, 0.4)).spread)
    assert numbers(np.full(10, 0.4)).spread == pytest.approx(0, abs=1e-12)


def test_without_entropy_nothing_is_said_of_a_collapse(raw_study, tmp_path):
    study = several(raw_study)
    found = table(write(study, tmp_path, lambda run, step: 0.0 if run.seed == 1 else 0.5))
    assert {(row.collapsed, row.exploded) for row in found.rows} == {("0 of 2", "0 of 2")}


@pytest.mark.parametrize("entropy", ["NaN", "Infinity", "1e999", "null", "[]"])
def test_an_entropy_that_is_no_number_is_damage(raw_study, tmp_path, entropy):
    study = several(raw_study)
    artefacts = write(study, tmp_path, lambda run, step: 0.5)
    path = tmp_path / outputs(study, "train", "metrics.jsonl")[1]
    path.write_text(path.read_text().replace("0.5}", f"{entropy}}}", 1))
    with pytest.raises(DamagedFileError, match="entropy is not a number everywhere"):
        table(artefacts)


def test_the_warm_up_is_the_longer_one_and_leaves_a_step(raw_study):
    def of(steps, warmup):
        change = {"training": {"steps": steps, "warmup_steps": warmup}}
        return warm_up_steps(parse_study(merge(raw_study, change)))

    assert of(3000, 10) == 60
    assert of(3000, 100) == 100
    assert of(1, 0) == 0
    assert of(8, 8) == 7


def several(raw, seeds=3, steps=40, **change):
    raw["run"] |= {
        "methods": ["justrl", "stapo"],
        "seeds": [*range(seeds)],
        "benchmarks": ["chain-2", "chain-3"],
        "decodings": ["t0.7-p0.9"],
    }
    return parse_study(merge(raw, {"training": {"steps": steps}, **change}))


def write(study, root, entropy, text="a b c d"):
    """Write metrics with the entropies that a function of run and step returns, and responses."""
    for run in study.runs():
        records = [
            {"step": step, "entropy": entropy(run, step)}
            for step in range(1, study.training.steps + 1)
        ]
        write_jsonl(root / paths.METRICS.format(study=study.name, **run.wildcards), records)
    for path in outputs(study, "generate"):
        answered = AnsweredProblem(0, "q", "7", [text] * 4, [9] * 4, [True] * 4, ["e"])
        write_responses(root / path, [answered])
    return Artefacts(study, root)


def explodes_in_justrl(run, step):
    factor = 1 if run.method == "stapo" or step < 20 else 4 + run.seed
    return factor * (0.4 + 0.01 * run.seed)


def test_the_table_has_means_and_intervals_over_seeds(raw_study, tmp_path):
    study = several(raw_study)
    grid = table(write(study, tmp_path, explodes_in_justrl, text="1 " * 20))
    justrl, stapo = grid.rows
    assert (justrl.exploded, justrl.collapsed) == ("3 of 3", "0 of 3")
    assert (stapo.exploded, stapo.collapsed) == ("0 of 3", "0 of 3")
    assert stapo.level.value == pytest.approx(0.41)
    assert stapo.level.low == pytest.approx(0.41 - 4.303 * 0.01 / 3**0.5)
    factors = [4, 5, 6]
    assert justrl.highest.value == pytest.approx(exp(sum(map(log, factors)) / 3), rel=0.01)
    assert stapo.spread.value == pytest.approx(0, abs=1e-3)  # the floor of ratios
    assert justrl.spread.low > 0
    assert stapo.looping.value == 100
    assert stapo.repeated.value == pytest.approx(100 * (1 - 1 / 17))
    cells = [column.shown(stapo) for column in grid.columns]
    assert cells[:3] == ["tiny", "STAPO", "3"]
    level = grid.columns[3]
    assert level.number(cells[3]) == "0.410"
    assert level.bounds(cells[3]) == ("0.385", "0.435")
    assert not any("One training seed" in note for note in grid.notes)
    assert not any("accuracy" in column.heading for column in grid.columns)


def test_one_seed_has_no_interval_and_decides_nothing(raw_study, tmp_path):
    study = several(raw_study, seeds=1)
    grid = table(write(study, tmp_path, explodes_in_justrl))
    cells = [(column, column.shown(row)) for column in grid.columns for row in grid.rows]
    estimates = [(column, cell) for column, cell in cells if not isinstance(cell, str)]
    assert estimates
    assert all(column.bounds(cell) is None for column, cell in estimates)
    assert any("no claim about a method" in note for note in grid.notes)


def test_late_degradation_is_best_minus_last(raw_study, tmp_path):
    curve = {"every": 10, "benchmarks": ["chain-3"], "decoding": "t0.7-p0.9"}
    study = several(raw_study, evaluation={"curve": curve})
    assert late_curve(study) == ("t0.7-p0.9", ["chain-3"])
    shares = {}
    for checkpoint, benchmark in study.cells("t0.7-p0.9"):
        path = write_score(tmp_path, study, checkpoint, benchmark, "t0.7-p0.9")
        if benchmark == "chain-3":
            shares[str(checkpoint)] = 100 * np.mean(pq.read_table(path)["correct"].to_pylist())
    artefacts = write(study, tmp_path, explodes_in_justrl)
    found = late_degradations(artefacts)
    for run in study.runs():
        names = [f"{run}/step{step}" for step in (10, 20, 30)] + [str(run)]
        expected = max(shares[name] for name in names) - shares[str(run)]
        assert found[run] == pytest.approx(expected)
    assert any(value > 0 for value in found.values())
    assert set(found) == {TrainingRun(*run) for run in study.runs()}
    assert "Best minus last accuracy [points]" in [c.heading for c in table(artefacts).columns]


def test_without_intermediate_checkpoints_there_is_no_degradation(raw_study, tmp_path):
    study = several(raw_study)
    assert late_curve(study) is None
    assert late_degradations(write(study, tmp_path, explodes_in_justrl)) == {}


def test_intervals_as_text():
    assert with_interval(Interval(1.234, 1.0, 1.5), ".2f") == "1.23 [1.00, 1.50]"
    assert with_interval(Interval(1.234, float("nan"), float("nan")), ".2f") == "1.23"
    assert with_interval(Interval(float("nan"), 1, 2), ".2f") == ""


def test_the_page_states_the_constants():
    page = (ROOT / "docs" / "stability.md").read_text()
    assert f"first {100 * WARM_UP:g} % of the optimiser steps" in page
    assert f"first {100 * START:g} % of the steps" in page
    assert f"it is below {COLLAPSE:g}" in page
    assert f"it is above {EXPLOSION:g}" in page


def test_the_table_is_the_same_every_time(raw_study, tmp_path):
    study = several(raw_study)
    artefacts = write(study, tmp_path, explodes_in_justrl)
    shown = [
        repr([[c.shown(row) for c in grid.columns] for row in grid.rows])
        for grid in (table(artefacts), table(Artefacts(study, tmp_path)))
    ]
    assert shown[0] == shown[1]
