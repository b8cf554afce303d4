"""Figures hold the numbers of the metrics, in the same bytes every time."""

import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from synthetic import write_score

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.cells import StaleScoreError, read_scores
from stapo.analysis.curves import accuracy_over_steps, moving_mean, over_steps, quantity
from stapo.analysis.draw import write_figure
from stapo.exhibits import FIGURES
from stapo.files import read_jsonl
from stapo.study import Checkpoint, merge, parse_study

OF_METRICS = [name for name, figure in FIGURES.items() if figure.value]
OF_VLLM = ["rollout_mismatch"]


def test_no_figure_is_lost():
    """By name: the tests of the rules count what the code lists, and would count one less."""
    drawn = {"entropy", "reward", "silenced_fraction", "response_length", "gradient_norm", *OF_VLLM}
    assert {*OF_METRICS} >= drawn
    assert {*FIGURES} >= {*drawn, "accuracy"}


def named(*needs):
    return [n for n, f in FIGURES.items() if f.needs in needs]


def test_figures_are_announced_of_what_a_study_has(raw_study):
    study = parse_study(raw_study)
    assert paths.figure_names(study) == named(None)
    assert {*paths.exhibit_sources(study, FIGURES["entropy"])} == {*paths.metrics_paths(study)}
    raw_study["training"]["evaluate_every"] = study.training.steps // 2
    study = parse_study(raw_study)
    assert paths.figure_names(study) == named(None, "checkpoints")
    scores = paths.score_paths(study, study.run.decodings)
    assert {*paths.exhibit_sources(study, FIGURES["accuracy"])} == {*scores}


@pytest.mark.parametrize("rollouts", ["vllm-colocate"])
def test_a_figure_of_vllm_is_announced_for_trainings_with_vllm(raw_study, rollouts):
    raw_study["training"]["rollouts"] = rollouts
    assert paths.figure_names(parse_study(raw_study)) == named(None, "vllm")


def test_the_rules_know_the_figures_without_what_draws_them():
    code = "import sys, stapo.paths; sys.exit(bool({'matplotlib', 'numpy', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", OF_METRICS)
def test_a_figure_has_a_line_per_method_with_its_values(study, finished, name):
    chart = quantity(Artefacts(study, finished), name)
    (panel,) = chart.panels
    titles = [study.method(method).title for method in study.run.methods]
    assert chart.groups == titles
    values = {
        title: [FIGURES[name].value(r) for r in read_jsonl(finished / path)]
        for title, path in zip(titles, paths.metrics_paths(study), strict=True)
    }
    raw = {line.name: line.y for line in panel.series if line.faint}
    # Only STAPO silences tokens, and a logarithmic axis has no 0.
    assert raw == {k: v for k, v in values.items() if any(v) or name != "silenced_fraction"}
    for line in panel.series:
        assert line.group == line.name
        assert line.x == [*range(1, study.training.steps + 1)]


def test_of_several_seeds_there_is_the_mean_and_each_pale_behind_it():
    values = {seed: np.arange(40.0) * (seed + 1) for seed in (0, 1, 2)}
    *each, mean = over_steps(values, "STAPO")
    assert [(line.seed, line.faint) for line in each] == [(0, True), (1, True), (2, True)]
    assert (mean.seed, mean.faint) == (None, False)
    assert mean.y == pytest.approx(moving_mean(np.arange(40.0) * 2, 2), rel=1e-12)
    for line in each:
        assert line.y == moving_mean(values[line.seed], 2).tolist()


def test_captions_say_how_lines_are_smoothed_and_what_a_logarithmic_axis_hides(raw_study, finished):
    raw_study |= {"name": "demo"}
    captions = {}
    for steps in (12, 96):
        raw_study["training"]["steps"] = steps
        found = Artefacts(parse_study(raw_study), finished)
        found.metrics = lambda run, steps=steps: [  # type: ignore[method-assign]
            {name: 1.0 for name in OF_METRICS} | {"silenced_fraction": step % 2}
            for step in range(steps)
        ]
        for name in ("entropy", "silenced_fraction"):
            chart = quantity(found, name)
            captions[steps, name] = chart.caption
            assert any(one.faint for one in chart.panels[0].series) == (steps > 20)
    assert "moving mean over 4 steps" in captions[96, "entropy"]
    assert "moving mean" not in captions[12, "entropy"]
    assert [name for (_, name), text in captions.items() if "has no 0" in text] == [
        "silenced_fraction"
    ] * 2


def test_files_are_the_same_bytes_every_time(study, finished):
    first = [path.read_bytes() for path in write_figure(study, "entropy", finished)]
    second = [path.read_bytes() for path in write_figure(study, "entropy", finished)]
    assert first == second
    assert [data[:4] for data in first] == [b"<?xm", b"%PDF", b"\x89PNG"]


def test_the_moving_mean_keeps_a_constant_and_its_length():
    assert moving_mean(np.full(7, 3.0), 3).tolist() == [3.0] * 7
    assert moving_mean(np.array([0.0, 3.0, 6.0]), 3).tolist() == [1.5, 3.0, 4.5]


def test_a_moving_mean_that_is_wider_than_its_values_keeps_their_number():
    assert moving_mean(np.array([1.0, 3.0]), 5).tolist() == [2.0, 2.0]
    assert moving_mean(np.array([1.0, 3.0]), 4).tolist() == [2.0, 2.0]
    assert moving_mean(np.array([7.0]), 20).tolist() == [7.0]


def with_scores(raw, root, change):
    """A study with the synthetic scores of every cell."""
    raw["run"] |= {"methods": ["justrl", "stapo"], "benchmarks": ["chain-2", "chain-3"]}
    study = parse_study(merge(raw, change))
    for decoding in study.run.decodings:
        for checkpoint, benchmark in study.cells(decoding):
            write_score(root, study, checkpoint, benchmark, decoding)
    return study


def measured(study, root, checkpoint, decoding, benchmarks):
    """Accuracy in percent, straight from the score files."""
    at = {"study": study.name, "checkpoint": checkpoint, "decoding": decoding}
    files = [root / paths.SCORES.format(**at, benchmark=name) for name in benchmarks]
    return 100 * np.mean([np.mean(pq.read_table(path)["correct"].to_pylist()) for path in files])


CURVE = {"every": 16, "benchmarks": ["chain-3"], "decoding": "t0.7-p0.9"}
TESTS = ["chain-2", "chain-3"]


def test_each_row_of_accuracies_has_the_steps_that_answer_all_of_its_benchmarks(
    raw_study, tmp_path
):
    change = {"training": {"evaluate_every": 48}, "evaluation": {"curve": CURVE}}
    study = with_scores(raw_study, tmp_path, change)
    panels = accuracy_over_steps(Artefacts(study, tmp_path)).panels
    expected = [
        ("t1.0-p1.0", TESTS, [48, 96]),
        ("t0.7-p0.9", TESTS, [48, 96]),
        ("t0.7-p0.9", ["chain-3"], [16, 32, 48, 64, 80, 96]),
    ]
    assert len(panels) == len(expected)
    for panel, (decoding, benchmarks, steps) in zip(panels, expected, strict=True):
        assert panel.title == f"tiny, {study.decodings[decoding].title}"
        for line, method in zip(panel.series, study.run.methods, strict=True):
            assert line.x == [0, *steps]
            checkpoints = [study.checkpoint("tiny", method, 0, step) for step in steps]
            values = [
                measured(study, tmp_path, checkpoint, decoding, benchmarks)
                for checkpoint in (Checkpoint("tiny"), *checkpoints)
            ]
            # Sums in another order.
            assert line.y == pytest.approx(values, rel=1e-12)
    labels = [panel.y.label for panel in panels]
    assert labels == ["Avg over the benchmarks [%]"] * 2 + ["chain-3 avg@4 [%]"]


@pytest.mark.parametrize(
    ("benchmarks", "every", "rows"), [(TESTS, 48, 2), (TESTS[::-1], 48, 2), (["chain-2"], None, 1)]
)
def test_no_two_rows_of_accuracies_show_the_same(raw_study, tmp_path, benchmarks, every, rows):
    curve = {**CURVE, "benchmarks": benchmarks}
    change = {"training": {"evaluate_every": every}, "evaluation": {"curve": curve}}
    study = with_scores(raw_study, tmp_path, change)
    panels = accuracy_over_steps(Artefacts(study, tmp_path)).panels
    assert len(panels) == rows
    assert panels[-1].series[0].x == [0, 16, 32, 48, 64, 80, 96]


def test_a_curve_with_a_score_missing_or_of_other_settings_is_not_drawn(raw_study, tmp_path):
    study = with_scores(raw_study, tmp_path, {"evaluation": {"curve": CURVE}})
    at = {"study": study.name, "decoding": CURVE["decoding"], "benchmark": "chain-3"}
    for step, wrong in ((16, "missing"), (32, "made by configuration")):
        checkpoint = f"tiny/stapo/seed0/step{step}"
        path = tmp_path / paths.SCORES.format(**at, checkpoint=checkpoint)
        path.unlink()
        if step == 32:
            write_score(
                tmp_path, study, checkpoint, "chain-3", CURVE["decoding"], fingerprint="other"
            )
        with pytest.raises(StaleScoreError, match=f"{checkpoint}.*{wrong}"):
            accuracy_over_steps(Artefacts(study, tmp_path))
    # The table reads none of them.
    read_scores(study, CURVE["decoding"], tmp_path)


def test_accuracies_of_several_seeds_are_shown_as_their_mean(raw_study, tmp_path):
    raw_study["run"]["seeds"] = [0, 1]
    study = with_scores(raw_study, tmp_path, {"evaluation": {"curve": CURVE}})
    (panel,) = accuracy_over_steps(Artefacts(study, tmp_path)).panels
    for method, at in zip(study.run.methods, (0, 3), strict=True):
        *each, mean = panel.series[at : at + 3]
        assert [line.seed for line in each] == [0, 1]
        assert {line.name for line in (*each, mean)} == {study.method(method).title}
        assert mean.y == pytest.approx(np.mean([line.y for line in each], axis=0), rel=1e-12)
