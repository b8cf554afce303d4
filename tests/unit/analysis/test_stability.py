"""Stability of trainings whose entropy, checkpoints and responses are known."""

import time
from math import exp, isnan, log

import numpy as np
import pyarrow.parquet as pq
import pytest
from studies import outputs
from synthetic import write_score

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.repetition import ends_in_loop, repeated_grams, repetition
from stapo.analysis.stability import (
    COLLAPSE,
    EXPLOSION,
    entropy_numbers,
    late_curve,
    late_degradations,
    warm_up_steps,
)
from stapo.analysis.tables.stability import make as table
from stapo.files import DamagedFileError, write_jsonl
from stapo.records.responses import AnsweredProblem, write_responses
from stapo.study import TrainingRun, merge, parse_study

STEPS = 400


def numbers(*parts):
    """Return the numbers of entropies, given as pairs of a value and how many steps have it."""
    entropy = np.concatenate([np.full(steps, float(value)) for value, steps in parts])
    return entropy_numbers(entropy, warm_up=8)


def test_a_constant_entropy_is_stable_and_none_has_no_ratio():
    found = numbers((0.4, STEPS))
    assert (found.start, found.level) == pytest.approx((0.4, 0.4))
    assert found.spread == pytest.approx(0, abs=1e-12)
    assert (found.lowest, found.highest) == pytest.approx((1, 1))
    none = numbers((0, STEPS))
    assert isnan(none.lowest)
    assert isnan(none.spread)
    # A single step after the warm-up has no spread.
    assert isnan(numbers((0.4, 9)).spread)
    assert numbers((0.4, 10)).spread == pytest.approx(0, abs=1e-12)


def test_the_spread_is_that_of_the_moving_mean_relative_to_its_mean():
    # Half of the steps at 1, half at 3: mean 2, standard deviation 1, smoothed only around the jump.
    assert numbers((1, 204), (3, 196)).spread == pytest.approx(0.5, abs=0.02)
    # Noise from step to step, half of the mean, hardly counts.
    noise = 0.4 + 0.2 * np.random.default_rng(0).standard_normal(STEPS)
    assert entropy_numbers(noise, warm_up=8).spread < 0.15


@pytest.mark.parametrize("step", [4, 100, 380])
def test_a_collapse_is_found_whenever_it_happens(step):
    """Also within the warm-up of 8 steps, after which the level is that of the collapse."""
    found = numbers((0.4, step), (0.01, STEPS - step))
    assert found.lowest < COLLAPSE
    assert found.highest < EXPLOSION


@pytest.mark.parametrize("parts", [[(0.4, 200), (1.5, 200)], [(0.2, 4), (1.5, STEPS - 4)]])
def test_an_explosion_is_found_also_within_the_warm_up(parts):
    found = numbers(*parts)
    assert found.highest > EXPLOSION
    assert found.lowest > COLLAPSE


@pytest.mark.parametrize(
    ("steps", "warmup", "expected"), [(3000, 10, 60), (3000, 100, 100), (1, 0, 0), (8, 8, 7)]
)
def test_the_warm_up_is_the_longer_one_and_leaves_a_step(raw_study, steps, warmup, expected):
    change = {"training": {"steps": steps, "warmup_steps": warmup}}
    assert warm_up_steps(parse_study(merge(raw_study, change))) == expected


def several(raw, seeds=3, steps=40, **change):
    raw["run"] |= {
        "methods": ["justrl", "stapo"], "seeds": [*range(seeds)],
        "benchmarks": ["chain-2", "chain-3"], "decodings": ["t0.7-p0.9"],
    }  # fmt: skip
    return parse_study(merge(raw, {"training": {"steps": steps}, **change}))


def write(study, root, entropy, text="a b c d"):
    """Write metrics with the entropies that a function of run and step returns, and responses."""
    for run in study.runs():
        steps = range(1, study.training.steps + 1)
        records = [{"step": step, "entropy": entropy(run, step)} for step in steps]
        write_jsonl(root / paths.METRICS.format(study=study.name, **run.wildcards), records)
    for path in outputs(study, "generate"):
        answered = AnsweredProblem(0, "q", "7", [text] * 4, [9] * 4, [True] * 4, ["e"])
        write_responses(root / path, [answered])
    return Artefacts(study, root)


def explodes_in_justrl(run, step):
    factor = 1 if run.method == "stapo" or step < 20 else 4 + run.seed
    return factor * (0.4 + 0.01 * run.seed)


def test_the_table_has_means_and_intervals_over_seeds(raw_study, tmp_path):
    grid = table(write(several(raw_study), tmp_path, explodes_in_justrl, text="1 " * 20))
    justrl, stapo = ({c.heading: c.value(row) for c in grid.columns} for row in grid.rows)
    assert (justrl["Exploded"], justrl["Collapsed"]) == ("3 of 3", "0 of 3")
    assert (stapo["Exploded"], stapo["Collapsed"]) == ("0 of 3", "0 of 3")
    level = stapo["Entropy after warm-up [nats]"]
    assert level.value == pytest.approx(0.41)
    assert level.low == pytest.approx(0.41 - 4.303 * 0.01 / 3**0.5)
    factors = [4, 5, 6]
    highest = justrl["Highest entropy [ratio]"].value
    assert highest == pytest.approx(exp(sum(map(log, factors)) / 3), rel=0.01)
    assert stapo["Spread of entropy [%]"].value == pytest.approx(0, abs=0.1)  # the floor of ratios
    assert justrl["Spread of entropy [%]"].low > 0
    assert stapo["Looping responses [%]"].value == 100
    assert stapo["Repeated 4-grams [%]"].value == pytest.approx(100 * (1 - 1 / 17))
    assert not any("One training seed" in note for note in grid.notes)
    assert not any("accuracy" in column.heading for column in grid.columns)


def test_one_seed_has_no_interval_and_decides_nothing(raw_study, tmp_path):
    grid = table(write(several(raw_study, seeds=1), tmp_path, explodes_in_justrl))
    cells = [(column, column.shown(row)) for column in grid.columns for row in grid.rows]
    estimates = [(column, cell) for column, cell in cells if not isinstance(cell, str)]
    assert estimates
    assert all(column.bounds(cell) is None for column, cell in estimates)
    assert any("no claim about a method" in note for note in grid.notes)


@pytest.mark.parametrize("entropy", ["NaN", "1e999", "null", "[]"])
def test_an_entropy_that_is_no_number_is_damage(raw_study, tmp_path, entropy):
    study = several(raw_study)
    artefacts = write(study, tmp_path, lambda run, step: 0.5 * (run.seed != 1))
    # Without entropy, nothing is said of a collapse.
    grid = table(artefacts)
    counts = [c for c in grid.columns if c.heading in ("Collapsed", "Exploded")]
    assert {c.value(row) for c in counts for row in grid.rows} == {"0 of 2"}
    path = tmp_path / outputs(study, "train", "metrics.jsonl")[0]
    path.write_text(path.read_text().replace("0.5}", f"{entropy}}}", 1))
    with pytest.raises(DamagedFileError, match="entropy is not a number everywhere"):
        table(Artefacts(study, tmp_path))


def test_late_degradation_is_best_minus_last(raw_study, tmp_path):
    without = write(several(raw_study), tmp_path / "none", explodes_in_justrl)
    assert late_curve(without.study) is None
    assert late_degradations(without) == {}
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


# Repetition


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("a b c d", 0), ("a b c", 0), ("", 0),
        ("a b c d a b c d", 1 / 5),  # a b c d, b c d a, c d a b, d a b c, a b c d: 4 of 5 are unique.
        ("=1=1=1", 1 / 3),  # Signs are words: "= 1 = 1 = 1" has 3 grams, 2 of them unique.
        ("1 " * 1000, 1 - 1 / 997),
    ],
)  # fmt: skip
def test_repeated_4_grams_are_counted_by_hand(text, share):
    assert repeated_grams(text) == pytest.approx(share)


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("so 3+4=7. " + "wait, 3+4=8. " * 9, True),
        ("so 3+4=7. " + "wait, 3+4=8. " * 9 + "wait, 3", True),  # cut in the middle
        ("begin " + "0" * 50, True),
        ("so 3+4=7. " + "wait, 3+4=8. " * 9 + "then 5", False),
        ("abcdefgh" * 2, False),
        ("a sentence that says something else with every word", False),
        ("", False),
        ("a", False),
    ],
)
def test_a_loop_is_the_same_text_three_times_up_to_a_truncated_end(text, loops):
    assert ends_in_loop(text) is loops
    for truncated in (True, False):
        column = [text] * 2
        one = AnsweredProblem(0, "q", "g", column, [1] * 2, [truncated] * 2, ["e"])
        assert repetition([one, one]) == (repeated_grams(text), loops and truncated)


def test_a_long_response_costs_milliseconds():
    start = time.process_time()
    for text in ("7 1 " * 20_000, "ab" * 40_000 + "c", "a" * 80_000):
        repeated_grams(text)
        ends_in_loop(text)
    assert time.process_time() - start < 0.5
