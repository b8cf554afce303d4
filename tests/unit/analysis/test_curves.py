"""Figures hold the numbers of the metrics, in the same bytes every time."""

import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from drawn import caption, panels
from synthetic import write_score

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.cells import StaleScoreError, read_scores
from stapo.analysis.curves import curves_of, line_of, moving_mean, smoothed
from stapo.analysis.draw import chart_of, image, write_figure
from stapo.exhibits import FIGURES, figure_names
from stapo.files import read_jsonl
from stapo.study import Checkpoint, merge, parse_study

OF_METRICS = ["entropy", "reward", "silenced_fraction", "response_length", "gradient_norm"]


def named(*needs):
    return [n for n, f in FIGURES.items() if f.needs in needs]


def test_figures_are_announced_of_what_a_study_has(raw_study):
    study = parse_study(raw_study)
    assert figure_names(study) == named(None)
    raw_study["training"]["evaluate_every"] = study.training.steps // 2
    study = parse_study(raw_study)
    assert figure_names(study) == named(None, "checkpoints")


@pytest.mark.parametrize("rollouts", ["vllm-colocate"])
def test_a_figure_of_vllm_is_announced_for_trainings_with_vllm(raw_study, rollouts):
    raw_study["training"]["rollouts"] = rollouts
    assert figure_names(parse_study(raw_study)) == named(None, "vllm")


def test_the_rules_know_the_figures_without_what_draws_them():
    code = (
        "import sys, stapo.paths; sys.exit(bool({'altair', 'numpy', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", OF_METRICS)
def test_a_figure_has_a_line_per_method_with_its_values(study, finished, name):
    (panel,) = panels(chart_of(Artefacts(study, finished), name))
    values = {
        (study.method(run.method).title, run.seed): [
            (r["step"], r[name] * (100 if name == "silenced_fraction" else 1))
            for r in read_jsonl(finished / paths.METRICS.format(study="demo", **run.wildcards))
        ]
        for run in study.runs()
    }
    # Only STAPO silences tokens, and a logarithmic axis has no 0.
    shown = {k: v for k, v in values.items() if any(y for _, y in v) or name != "silenced_fraction"}
    pale = panel.lines(pale=True)
    assert pale.keys() == shown.keys() == panel.lines().keys()
    for key, line in pale.items():
        assert [x for x, _ in line] == [x for x, _ in shown[key]]
        assert [y for _, y in line] == pytest.approx([y for _, y in shown[key]], rel=1e-5)


def test_of_several_seeds_there_is_the_mean_and_each_pale_behind_it():
    values = {seed: np.arange(40.0) * (seed + 1) for seed in (0, 1, 2)}
    rows = [*smoothed(values, "STAPO")]
    for seed in values:
        line = [row["y"] for row in rows if row.get("seed") == seed and row["pale"]]
        assert line == moving_mean(values[seed], 2).tolist()
    mean = [row["y"] for row in rows if "seed" not in row]
    assert mean == pytest.approx(moving_mean(np.arange(40.0) * 2, 2), rel=1e-12)


def test_of_a_long_line_at_most_about_200_points_are_drawn_and_the_last():
    x = [row["x"] for row in line_of(range(1, 1002), range(1001), "a")]
    assert (len(x), x[0], x[-1]) == (168, 1, 1001)


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
            captions[steps, name] = caption(chart_of(found, name))
    assert "moving mean over 4 steps" in captions[96, "entropy"]
    assert "moving mean" not in captions[12, "entropy"]
    assert [name for (_, name), text in captions.items() if "has no 0" in text] == [
        "silenced_fraction"
    ] * 2


def test_a_figure_is_written_in_all_formats(study, finished):
    written = write_figure(study, "entropy", finished)
    expected = image(chart_of(Artefacts(study, finished), "entropy"))
    assert [path.read_bytes() for path in written] == [*expected.values()]


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([3.0] * 7, 3, [3.0] * 7),
        ([0.0, 3.0, 6.0], 3, [1.5, 3.0, 4.5]),
        # Wider than the values.
        ([1.0, 3.0], 5, [2.0, 2.0]),
        ([7.0], 20, [7.0]),
    ],
)
def test_the_moving_mean_keeps_a_constant_and_the_number_of_values(values, width, expected):
    assert moving_mean(np.array(values), width).tolist() == expected


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
    found = panels(chart_of(Artefacts(study, tmp_path), "accuracy"))
    expected = [
        ("t1.0-p1.0", TESTS, [48, 96]),
        ("t0.7-p0.9", TESTS, [48, 96]),
        ("t0.7-p0.9", ["chain-3"], [16, 32, 48, 64, 80, 96]),
    ]
    assert len(found) == len(expected)
    for panel, (decoding, benchmarks, steps) in zip(found, expected, strict=True):
        assert panel.title == f"tiny, {study.decodings[decoding].title}"
        lines = panel.lines()
        for method in study.run.methods:
            line = lines[study.method(method).title, 0]
            assert [x for x, _ in line] == [0, *steps]
            checkpoints = [study.checkpoint("tiny", method, 0, step) for step in steps]
            values = [
                measured(study, tmp_path, checkpoint, decoding, benchmarks)
                for checkpoint in (Checkpoint("tiny"), *checkpoints)
            ]
            assert [y for _, y in line] == pytest.approx(values, rel=1e-5)
    labels = [panel.of("line")[0].encoding["y"]["title"] for panel in found]
    assert labels == ["Avg over the benchmarks [%]"] * 2 + ["chain-3 avg@4 [%]"]


@pytest.mark.parametrize(
    ("benchmarks", "every", "rows"), [(TESTS, 48, 2), (TESTS[::-1], 48, 2), (["chain-2"], None, 1)]
)
def test_no_two_rows_of_accuracies_show_the_same(raw_study, tmp_path, benchmarks, every, rows):
    curve = {**CURVE, "benchmarks": benchmarks}
    change = {"training": {"evaluate_every": every}, "evaluation": {"curve": curve}}
    study = with_scores(raw_study, tmp_path, change)
    assert len(curves_of(study)) == rows


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
            chart_of(Artefacts(study, tmp_path), "accuracy")
    # The table reads none of them.
    read_scores(study, CURVE["decoding"], tmp_path)


def test_accuracies_of_several_seeds_are_shown_as_their_mean(raw_study, tmp_path):
    raw_study["run"]["seeds"] = [0, 1]
    study = with_scores(raw_study, tmp_path, {"evaluation": {"curve": CURVE}})
    (panel,) = panels(chart_of(Artefacts(study, tmp_path), "accuracy"))
    each, mean = panel.lines(pale=True), panel.lines()
    for method in study.run.methods:
        title = study.method(method).title
        both = np.mean([[y for _, y in each[title, seed]] for seed in (0, 1)], axis=0)
        assert [y for _, y in mean[title, None]] == pytest.approx(both, rel=1e-5)
