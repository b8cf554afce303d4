"""lm-eval's number for stored responses: only for the questions that were answered."""

from dataclasses import replace

import pytest

from stapo.evaluation.replay import regrade
from stapo.models.arithmetic import benchmark_problems
from stapo.records.responses import AnsweredProblem, write_responses
from stapo.study import StudyError


def answered(count: int) -> list[AnsweredProblem]:
    """Two responses to each of the first problems of chain-3, the second one wrong."""
    return [
        AnsweredProblem(
            i, one.question, str(one.answer), [rf"\boxed{{{one.answer}}}", "?"], [1, 1], [False] * 2, ["x"]
        )
        for i, one in enumerate(benchmark_problems("chain-3", count))
    ]  # fmt: skip


def test_all_problems_or_the_first_ones(tmp_path):
    for count in (100, 7):
        write_responses(tmp_path / "r.jsonl", answered(count))
        assert regrade(tmp_path / "r.jsonl", "chain-3") == 0.5


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [replace(rows[0], gold="10"), *rows[1:]],
        lambda rows: [*rows[:-1], replace(rows[-1], question="chain:1+1?")],
        lambda rows: [*rows, replace(rows[0], problem=100)],
    ],
)
def test_other_questions_and_golds_are_refused(tmp_path, change):
    write_responses(tmp_path / "r.jsonl", change(answered(100)))
    with pytest.raises(StudyError, match="not the questions and answers of chain-3; name with"):
        regrade(tmp_path / "r.jsonl", "chain-3")


def test_another_benchmark_is_refused(tmp_path):
    write_responses(tmp_path / "r.jsonl", answered(100))
    with pytest.raises(StudyError, match="not the questions and answers of chain-2"):
        regrade(tmp_path / "r.jsonl", "chain-2")
