"""Charts of accuracy and entropy hold the numbers of the files."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from drawn import panels
from synthetic import write_score

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.averages import accuracies, of_trainings
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.draw import chart_of, image
from stapo.analysis.evidence_tables import evidence_table
from stapo.files import write_jsonl
from stapo.study import merge, parse_study

BENCHMARKS = ("chain-2", "chain-3")
STEPS = 40
METHODS = {
    "half": {"base": "stapo", "title": "Half", "quantile": 0.5},
    "rare": {"base": "stapo", "title": "Rare", "tau_p": 0.02},
}


@pytest.fixture
def artefacts(raw_study, tmp_path):
    """Two seeds of five methods, with a curve on one benchmark."""
    change = {
        "training": {"steps": STEPS},
        "methods": METHODS,
        "evaluation": {"curve": {"every": 10, "benchmarks": ["chain-3"], "decoding": "t0.7-p0.9"}},
    }
    raw_study["run"] |= {
        "methods": ["justrl", "full-mask", "stapo", *METHODS],
        "seeds": [3, 5],
        "benchmarks": [*BENCHMARKS],
    }
    study = parse_study(merge(raw_study, change))
    for decoding in study.run.decodings:
        for checkpoint, benchmark in study.cells(decoding):
            write_score(tmp_path, study, checkpoint, benchmark, decoding)
    for run in study.runs():
        # Of the second half: the number of the method and the seed.
        high = 1 + study.run.methods.index(run.method) + run.seed
        records = [
            {"step": step, "entropy": 1.0 if step <= STEPS / 2 else float(high)}
            for step in range(1, STEPS + 1)
        ]
        write_jsonl(tmp_path / paths.METRICS.format(study=study.name, **run.wildcards), records)
    return Artefacts(study, tmp_path)


def share(artefacts, checkpoint, decoding, benchmarks):
    """Accuracy in percent, straight from the score files."""
    at = {"study": artefacts.study.name, "checkpoint": checkpoint, "decoding": decoding}
    files = [artefacts.root / paths.SCORES.format(**at, benchmark=name) for name in benchmarks]
    return 100 * np.mean([np.mean(pq.read_table(path)["correct"].to_pylist()) for path in files])


def test_the_pareto_chart_has_a_point_per_method_and_seed(artefacts):
    study, chart = artefacts.study, chart_of(artefacts, "pareto")
    found = panels(chart)
    assert [panel.title for panel in found] == [
        f"tiny, {study.decodings[name].title}" for name in study.run.decodings
    ]
    for panel, decoding in zip(found, study.run.decodings, strict=True):
        (points,) = panel.of("point")
        rows = iter(points.rows)
        for method in study.run.methods:
            for seed in (3, 5):
                row = next(rows)
                assert (row["group"], row["seed"]) == (study.method(method).title, seed)
                value = share(artefacts, f"tiny/{method}/seed{seed}", decoding, BENCHMARKS)
                assert row["y"] == pytest.approx(value, rel=1e-5)
                assert row["low"] < row["y"] < row["high"]
        # Entropies rise to higher values in later seeds.
        assert points.rows[0]["x"] < points.rows[1]["x"]
    assert image(chart)["svg"]


def test_accuracy_and_differences_are_those_of_the_main_table(artefacts):
    study, decoding = artefacts.study, "t1.0-p1.0"
    table = main_table(study, decoding, read_scores(study, decoding, artefacts.root))
    found = accuracies(artefacts, decoding, tuple(study.run.benchmarks))
    for row in table.rows:
        assert found.values[row.size, row.method] == row.cells["Avg"]
    (first, *_) = table.comparisons
    ours = found.difference("tiny", first.target, first.baseline)
    theirs = first.difference
    assert [ours.value, ours.low, ours.high] == pytest.approx(
        [100 * theirs.value, 100 * theirs.low, 100 * theirs.high]
    )


def test_the_mean_over_trainings_is_the_methods_accuracy(artefacts):
    decoding = "t1.0-p1.0"
    single = of_trainings(artefacts, decoding, BENCHMARKS)
    whole = accuracies(artefacts, decoding, BENCHMARKS).values["tiny", "stapo"].value
    assert np.mean([single["tiny", "stapo", seed].value for seed in (3, 5)]) == pytest.approx(whole)


def test_full_mask_has_entropy_and_accuracy_of_two_methods(artefacts):
    study, chart = artefacts.study, chart_of(artefacts, "full_mask")
    (panel,) = panels(chart)
    titles = [study.method(name).title for name in ("justrl", "full-mask")]
    entropy = [unit for unit in panel.of("line") if "strokeDash" not in unit.mark]
    accuracy = [unit for unit in panel.of("line") if "strokeDash" in unit.mark]
    for units, ends in ((entropy, [1 + 0 + 3, 1 + 0 + 5, 5]), (accuracy, None)):
        pale, mean = (unit.rows for unit in units)
        assert list(dict.fromkeys((row["group"], row["seed"]) for row in pale)) == [
            (title, seed) for title in titles for seed in (3, 5)
        ]
        assert list(dict.fromkeys(row["group"] for row in mean)) == titles
        last = [
            [row["y"] for row in rows if row["group"] == titles[0]][-1] for rows in (pale, mean)
        ]
        if ends:
            assert last == ends[1:]
    line = [row for row in accuracy[0].rows if (row["group"], row["seed"]) == (titles[0], 3)]
    assert [row["x"] for row in line] == [0, 10, 20, 30, 40]
    value = share(artefacts, "tiny/justrl/seed3", "t0.7-p0.9", ["chain-3"])
    assert line[-1]["y"] == pytest.approx(value, rel=1e-5)
    assert image(chart)["svg"]


def test_full_mask_without_intermediate_checkpoints_has_entropy_alone(artefacts):
    study = artefacts.study
    evaluation = study.evaluation.model_copy(update={"curve": None})
    without = Artefacts(study.model_copy(update={"evaluation": evaluation}), artefacts.root)
    (panel,) = panels(chart_of(without, "full_mask"))
    assert not any("strokeDash" in unit.mark for unit in panel.units)


def test_the_ablation_has_a_line_per_family_with_the_values_of_the_argument(artefacts):
    study, chart = artefacts.study, chart_of(artefacts, "ablation")
    found = panels(chart)
    assert len(found) == 6
    for place, label, values, methods in (
        (0, "τ_p", [0.002, 0.02], ["stapo", "rare"]),
        (3, "q, quantile of the entropies", [0.5, 0.75], ["half", "stapo"]),
    ):
        for panel, decoding in zip(
            found[place : place + 3], [*study.run.decodings, None], strict=True
        ):
            (line,) = panel.of("line")
            assert line.encoding["x"]["title"] == label
            assert (line.encoding["x"]["scale"].get("type") == "log") == (label == "τ_p")
            assert [row["x"] for row in line.rows] == values
            assert [row["text"] for row in line.rows] == [study.method(n).title for n in methods]
            assert all("low" in row for row in line.rows)
            assert panel.of("rule")[0].rows[0]["label"] == "JustRL"
            if decoding:
                expected = [
                    np.mean(
                        [
                            share(artefacts, f"tiny/{name}/seed{seed}", decoding, BENCHMARKS)
                            for seed in (3, 5)
                        ]
                    )
                    for name in methods
                ]
                assert [row["y"] for row in line.rows] == pytest.approx(expected, rel=1e-5)
    assert image(chart)["svg"]


def test_the_ablation_table_has_the_numbers_of_the_chart(artefacts):
    grid, (first_panel, *_) = (
        evidence_table(artefacts, "ablation"),
        panels(chart_of(artefacts, "ablation")),
    )
    assert [(row.argument, row.value) for row in grid.rows] == [
        ("tau_p", 0.002),
        ("tau_p", 0.02),
        ("quantile", 0.5),
        ("quantile", 0.75),
    ]
    first = [row.accuracy["t1.0-p1.0"].value for row in grid.rows[:2]]
    drawn = [row["y"] for row in first_panel.of("line")[0].rows]
    assert drawn == pytest.approx(first, rel=1e-5)
    cells = [column.shown(grid.rows[0]) for column in grid.columns]
    assert cells[:5] == ["tiny", "τ_p", "STAPO", "STAPO", "0.002"]
