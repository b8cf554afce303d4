"""Figures hold the numbers of the metrics, in the same bytes every time."""

import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from synthetic import write_score

from stapo import paths
from stapo.analysis.cells import StaleScoreError, read_scores
from stapo.analysis.figures import draw, draw_accuracy, moving_mean, write_figure
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


def test_every_figure_is_announced_that_of_scores_with_intermediate_checkpoints(raw_study):
    raw_study["training"]["rollouts"] = "vllm-colocate"
    study = parse_study(raw_study)
    assert paths.figure_names(study) == OF_METRICS
    assert "accuracy" not in OF_METRICS
    assert {*paths.figure_sources(study, "entropy")} == {*paths.metrics_paths(study)}
    raw_study["training"]["evaluate_every"] = study.training.steps // 2
    study = parse_study(raw_study)
    assert paths.figure_names(study) == [*FIGURES]
    scores = paths.score_paths(study, study.run.decodings)
    assert {*paths.figure_sources(study, "accuracy")} == {*scores}


def test_a_figure_of_vllm_is_announced_for_trainings_with_vllm_only(raw_study):
    for rollouts in ("transformers", "vllm-colocate", "vllm-server"):
        raw_study["training"]["rollouts"] = rollouts
        names = paths.figure_names(parse_study(raw_study))
        own = [] if rollouts == "transformers" else OF_VLLM
        assert names == [name for name in OF_METRICS if name not in OF_VLLM or name in own]


def test_the_rules_know_the_figures_without_what_draws_them():
    code = "import sys, stapo.paths; sys.exit(bool({'matplotlib', 'numpy', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", OF_METRICS)
def test_a_figure_has_a_line_per_method_with_its_values(study, finished, name):
    figure = draw(study, name, finished)
    (panel,) = figure.axes
    raw = [line for line in panel.lines if line.get_alpha() == 0.2]
    assert len(raw) == len(study.run.methods)
    for line, path in zip(raw, paths.metrics_paths(study), strict=True):
        values = [FIGURES[name].value(r) for r in read_jsonl(finished / path)]
        assert line.get_ydata().tolist() == values
    labels = [text.get_text() for text in panel.get_legend().get_texts()]
    assert labels[: len(raw)] == [study.method(m).title for m in study.run.methods]


def test_files_are_the_same_bytes_every_time(study, finished):
    first = [path.read_bytes() for path in write_figure(study, "entropy", finished)]
    second = [path.read_bytes() for path in write_figure(study, "entropy", finished)]
    assert first == second
    assert first[1].startswith(b"\x89PNG")


def test_the_moving_mean_keeps_a_constant_and_its_length():
    assert moving_mean(np.full(7, 3.0), 3).tolist() == [3.0] * 7
    assert moving_mean(np.array([0.0, 3.0, 6.0]), 3).tolist() == [1.5, 3.0, 4.5]


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
    panels = draw_accuracy(study, tmp_path).axes
    expected = [
        ("t1.0-p1.0", TESTS, [48, 96]),
        ("t0.7-p0.9", TESTS, [48, 96]),
        ("t0.7-p0.9", ["chain-3"], [16, 32, 48, 64, 80, 96]),
    ]
    assert len(panels) == len(expected)
    for panel, (decoding, benchmarks, steps) in zip(panels, expected, strict=True):
        assert panel.get_title() == f"tiny, {decoding}"
        for line, method in zip(panel.lines, study.run.methods, strict=True):
            assert line.get_xdata().tolist() == [0, *steps]
            checkpoints = [study.checkpoint("tiny", method, 0, step) for step in steps]
            values = [
                measured(study, tmp_path, checkpoint, decoding, benchmarks)
                for checkpoint in (Checkpoint("tiny"), *checkpoints)
            ]
            # Sums in another order.
            assert line.get_ydata().tolist() == pytest.approx(values, rel=1e-12)
    labels = [panel.get_ylabel() for panel in panels]
    assert labels == ["Avg over the benchmarks [%]"] * 2 + ["chain-3 avg@4 [%]"]


@pytest.mark.parametrize(
    ("benchmarks", "every", "rows"), [(TESTS, 48, 2), (TESTS[::-1], 48, 2), (["chain-2"], None, 1)]
)
def test_no_two_rows_of_accuracies_show_the_same(raw_study, tmp_path, benchmarks, every, rows):
    curve = {**CURVE, "benchmarks": benchmarks}
    change = {"training": {"evaluate_every": every}, "evaluation": {"curve": curve}}
    study = with_scores(raw_study, tmp_path, change)
    panels = draw_accuracy(study, tmp_path).axes
    assert len(panels) == rows
    assert panels[-1].lines[0].get_xdata().tolist() == [0, 16, 32, 48, 64, 80, 96]


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
            draw_accuracy(study, tmp_path)
    # The table reads none of them.
    read_scores(study, CURVE["decoding"], tmp_path)
