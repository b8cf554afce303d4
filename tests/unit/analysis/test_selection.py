"""The choice of checkpoints: the declared rule, and what choosing by the test would have added."""

import pytest
from synthetic import PROBLEMS, write_score

from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.selection import select
from stapo.study import StudyError, merge, parse_study

SHARES = {32: 0.4, 64: 0.6, 96: 0.6}


@pytest.mark.parametrize(("rule", "step"), [("last", 96), ("development", 64), (32, 32)])
def test_rule(rule, step):
    assert select(rule, list(SHARES), SHARES) == step


def test_the_table_shows_the_chosen_checkpoint_and_no_development_benchmark(raw_study, tmp_path):
    raw_study["run"] |= {
        "methods": ["justrl", "stapo"],
        "seeds": [0, 1],
        "decodings": ["t1.0-p1.0"],
        "benchmarks": ["chain-2"],
    }
    raw_study["training"]["evaluate_every"] = 32
    raw_study["evaluation"] |= {"select": "development", "development": ["chain-3"]}
    study = parse_study(raw_study)
    for checkpoint in study.checkpoints():
        for benchmark in study.evaluated():
            write_score(tmp_path, study, checkpoint, benchmark)
    scores = read_scores(study, "t1.0-p1.0", tmp_path)
    table = main_table(study, "t1.0-p1.0", scores)
    assert list(table.samples) == ["chain-2"]
    assert [(c.method, c.seed) for c in table.choices] == [
        (m, s) for m in ("justrl", "stapo") for s in (0, 1)
    ]
    for choice in table.choices:
        assert list(choice.averages) == list(choice.development) == [32, 64, 96]
        assert choice.development[choice.selected] == max(choice.development.values())
    cell = scores.cells["tiny", "stapo", "chain-2"].correct
    assert cell.shape == (2, PROBLEMS, 4)
    own = [c for c in table.choices if c.method == "stapo"]
    assert cell.mean(axis=(1, 2)).tolist() == pytest.approx([c.averages[c.selected] for c in own])
    assert len({c.selected for c in table.choices}) > 1  # Otherwise nothing was chosen here.


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"evaluation": {"select": "development"}, "training": {"evaluate_every": 32}},
            "evaluation.select: development, but evaluation.development is empty; fill it",
        ),
        (
            {"evaluation": {"select": 64}},
            "evaluation.select: needs training.evaluate_every; add it",
        ),
        (
            {"evaluation": {"select": 63}, "training": {"evaluate_every": 32}},
            "evaluation.select: no weights of step 63 are kept; choose a multiple of 32 below 96, or last",
        ),
        (
            {"evaluation": {"development": ["chain-2"]}},
            "evaluation.development: 'chain-2' is also in run.benchmarks; no table may show what "
            "chose its checkpoints",
        ),
        (
            {"evaluation": {"development": ["chain-9"]}},
            "evaluation.development: unknown name 'chain-9'; ",
        ),
    ],
)
def test_a_rule_that_cannot_choose_is_refused(raw_study, change, line):
    with pytest.raises(StudyError) as caught:
        parse_study(merge(raw_study, change))
    assert len(caught.value.errors) == 1
    assert caught.value.errors[0].startswith(line)
