"""Figures hold the numbers of metrics and scores."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from drawn import panels
from synthetic import write_score

from stapo.core.files import DamagedFileError, read_jsonl
from stapo.suite import paths
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.charts import chart_of, write_figure
from stapo.suite.analysis.curves import moving_mean, smoothed
from stapo.suite.study import Checkpoint, merge, parse_study


def test_a_figure_has_a_line_per_method_with_its_values(study, finished):
    for name, unit in (("entropy", 1), ("silenced_fraction", 100)):
        (panel,) = panels(chart_of(Artefacts(study, finished), name))
        shown = {}
        for run in study.runs():
            path = finished / paths.METRICS.format(study="demo", **run._asdict())
            line = [(one["step"], one[name] * unit) for one in read_jsonl(path)]
            # Only STAPO silences tokens, and a logarithmic axis has no 0.
            if any(y for _, y in line):
                shown[study.title(run.method), run.seed] = line
        pale = panel.lines(pale=True)
        assert len(shown) == (1 if unit == 100 else len([*study.runs()]))
        assert pale.keys() == panel.lines().keys() == shown.keys()
        for key, line in shown.items():
            assert pale[key] == [(x, pytest.approx(y, rel=1e-5)) for x, y in line]


def test_of_several_seeds_there_is_the_mean_and_each_pale_behind_it():
    values = {seed: np.arange(40.0) * (seed + 1) for seed in (0, 1, 2)}
    rows = [*smoothed(values, "STAPO")]
    for seed in values:
        line = [row["y"] for row in rows if row.get("seed") == seed and row["pale"]]
        assert line == moving_mean(values[seed], 2).tolist()
    mean = [row["y"] for row in rows if "seed" not in row]
    assert mean == pytest.approx(moving_mean(np.arange(40.0) * 2, 2), rel=1e-12)


METRICS = "results/demo/runs/tiny/grpo/seed0/metrics.jsonl"


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (Path.unlink, f"{METRICS}: missing; run snakemake"),
        (lambda path: path.write_bytes(b""), f"{METRICS}: not the steps 1 to 96"),
        (
            lambda path: path.write_text(path.read_text().replace('"entropy": 1.0', '"x": 1', 1)),
            f"{METRICS}: no number entropy in every step",
        ),
    ],
)
def test_damaged_metrics_are_one_line(study, finished, damage, cause):
    damage(finished / METRICS)
    with pytest.raises(DamagedFileError) as raised:
        write_figure(Artefacts(study, finished), "entropy")
    (line,) = str(raised.value).splitlines()
    assert cause in line


TESTS = ["chain-2", "chain-3"]
CURVE = {"every": 10, "benchmarks": ["chain-3"], "decoding": "t0.7-p0.9"}
METHODS = {
    "half": {"base": "stapo", "title": "Half", "quantile": 0.5},
    "rare": {"base": "stapo", "title": "Rare", "tau_p": 0.02},
}


def share(artefacts, checkpoint, decoding, benchmarks):
    """Accuracy in percent, straight from the score files."""
    at = {"study": artefacts.study.name, "checkpoint": checkpoint, "decoding": decoding}
    files = [artefacts.root / paths.SCORES.format(**at, benchmark=name) for name in benchmarks]
    return 100 * np.mean([np.mean(pq.read_table(path)["correct"].to_pylist()) for path in files])


@pytest.fixture
def artefacts(raw_study, tmp_path):
    """Two seeds of five methods, with a curve on one benchmark."""
    change = {"methods": METHODS, "evaluation": {"curve": CURVE}}
    change["training"] = {"steps": 40, "evaluate_every": 20}
    methods = ["justrl", "full-mask", "stapo", *METHODS]
    raw_study["run"] |= {"methods": methods, "seeds": [3, 5], "benchmarks": TESTS}
    study = parse_study(merge(raw_study, change))
    for decoding in study.run.decodings:
        for checkpoint, benchmark in study.cells(decoding):
            write_score(tmp_path, study, checkpoint, benchmark, decoding)
    return Artefacts(study, tmp_path)


def test_each_row_of_accuracies_has_the_steps_that_answer_all_of_its_benchmarks(artefacts):
    study = artefacts.study
    found = panels(chart_of(artefacts, "accuracy"))
    expected = [
        ("t1.0-p1.0", TESTS, [20, 40]),
        ("t0.7-p0.9", TESTS, [20, 40]),
        ("t0.7-p0.9", ["chain-3"], [10, 20, 30, 40]),
    ]
    for panel, (decoding, benchmarks, steps) in zip(found, expected, strict=True):
        assert panel.title == f"tiny, {study.decodings[decoding].title}"
        each, mean = panel.lines(pale=True), panel.lines()
        title, values = study.title("stapo"), []
        for seed in (3, 5):
            places = [study.checkpoint("tiny", "stapo", seed, step) for step in steps]
            places = [Checkpoint("tiny"), *places]
            values.append([share(artefacts, one, decoding, benchmarks) for one in places])
            line = zip([0, *steps], values[-1], strict=True)
            assert each[title, seed] == [(x, pytest.approx(y, rel=1e-5)) for x, y in line]
        both = np.mean(values, axis=0)
        assert [y for _, y in mean[title, None]] == pytest.approx(both, rel=1e-5)


def test_the_ablation_has_a_line_per_family_with_the_values_of_the_argument(artefacts):
    found = panels(chart_of(artefacts, "ablation"))
    assert len(found) == 4
    families = {0: {0.002: "stapo", 0.02: "rare"}, 2: {0.5: "half", 0.75: "stapo"}}
    for place, methods in families.items():
        (line,) = found[place].of("line")
        assert [row["x"] for row in line.rows] == [*methods]
        for row, name in zip(line.rows, methods.values(), strict=True):
            shares = [share(artefacts, f"tiny/{name}/seed{s}", "t1.0-p1.0", TESTS) for s in (3, 5)]
            assert row["y"] == pytest.approx(np.mean(shares), rel=1e-5)
