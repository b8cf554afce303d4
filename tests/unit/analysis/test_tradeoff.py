"""Charts of accuracy and entropy hold the numbers of the files."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from synthetic import write_score

from stapo import paths
from stapo.analysis import ablation, tradeoff
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.averages import accuracies, of_trainings
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.draw import draw
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
    study, chart = artefacts.study, tradeoff.pareto(artefacts)
    assert [panel.title for panel in chart.panels] == [
        f"tiny, {study.decodings[name].title}" for name in study.run.decodings
    ]
    for panel, decoding in zip(chart.panels, study.run.decodings, strict=True):
        for series, method in zip(panel.series, study.run.methods, strict=True):
            assert series.group == study.method(method).title
            assert series.text == [f"{series.group}, seed 3", f"{series.group}, seed 5"]
            expected = [
                share(artefacts, f"tiny/{method}/seed{seed}", decoding, BENCHMARKS)
                for seed in (3, 5)
            ]
            assert series.y == pytest.approx(expected)
            assert all(
                low < value < high
                for low, value, high in zip(series.low, series.y, series.high, strict=True)
            )
            # Entropies rise to higher values in later methods and seeds.
            assert series.x[0] < series.x[1]
    draw(chart)


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
    study, chart = artefacts.study, tradeoff.full_mask(artefacts)
    (panel,) = chart.panels
    entropy, accuracy = (
        [one for one in panel.series if one.second == second] for second in (False, True)
    )
    titles = [study.method(name).title for name in ("justrl", "full-mask")]
    # Two seeds, and their mean.
    assert [one.group for one in entropy] == [title for title in titles for _ in range(3)]
    assert [one.group for one in accuracy] == [one.group for one in entropy]
    assert [one.faint for one in (*entropy, *accuracy)] == [True, True, False] * 4
    assert [one.y[-1] for one in entropy[:3]] == pytest.approx([1 + 0 + 3, 1 + 0 + 5, 5])
    assert list(accuracy[0].x) == [0, 10, 20, 30, 40]
    assert accuracy[0].y[-1] == pytest.approx(
        share(artefacts, "tiny/justrl/seed3", "t0.7-p0.9", ["chain-3"])
    )
    assert panel.second is not None
    draw(chart)


def test_full_mask_without_intermediate_checkpoints_has_entropy_alone(artefacts):
    study = artefacts.study
    evaluation = study.evaluation.model_copy(update={"curve": None})
    without = Artefacts(study.model_copy(update={"evaluation": evaluation}), artefacts.root)
    (panel,) = tradeoff.full_mask(without).panels
    assert panel.second is None
    assert not any(one.second for one in panel.series)


def test_the_ablation_has_a_line_per_family_with_the_values_of_the_argument(artefacts):
    study, chart = artefacts.study, ablation.chart(artefacts)
    by_label = {}
    for panel in chart.panels:
        by_label.setdefault(panel.x.label, []).append(panel)
    assert [len(panels) for panels in by_label.values()] == [3, 3]
    assert chart.columns == 3
    for panels, values, methods in zip(
        by_label.values(),
        ([0.002, 0.02], [0.5, 0.75]),
        (["stapo", "rare"], ["half", "stapo"]),
        strict=True,
    ):
        for panel, decoding in zip(panels, [*study.run.decodings, None], strict=True):
            (line,) = panel.series
            assert line.x == values
            assert line.text == [study.method(name).title for name in methods]
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
                assert line.y == pytest.approx(expected)
            assert line.low is not None
            assert [one.label for one in panel.lines] == ["JustRL"]
    assert next(iter(by_label.values()))[0].x.log
    draw(chart)


def test_the_ablation_table_has_the_numbers_of_the_chart(artefacts):
    grid, chart = ablation.table(artefacts), ablation.chart(artefacts)
    assert [(row.argument, row.value) for row in grid.rows] == [
        ("tau_p", 0.002),
        ("tau_p", 0.02),
        ("quantile", 0.5),
        ("quantile", 0.75),
    ]
    first = [row.accuracy["t1.0-p1.0"].value for row in grid.rows[:2]]
    assert first == chart.panels[0].series[0].y
    cells = [column.shown(grid.rows[0]) for column in grid.columns]
    assert cells[:5] == ["tiny", "τ_p", "STAPO", "STAPO", "0.002"]
