"""Grading: every verdict, known traps of math-verify, and hostile answers."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stapo.evaluation.grading import (
    failure_fraction,
    grade,
    grade_all,
    last_boxed,
    normalise_gold,
)
from stapo.evaluation.grading_worker import judge


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{1}", "1"),
        (r"\boxed{1} then \boxed{2}.", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{}", ""),
        (r"\boxed{1} and \boxed{2", "1"),
        (r"\boxed{\frac{1}{2} and \boxed{", None),
        ("boxed{1}", None),
        ("", None),
        (r"\boxed{a \boxed{b} c}", "b"),
    ],
)
def test_last_boxed(text, content):
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("gold", "normal"),
    [
        ("4.5e33", r"4.5\times10^{33}"),
        ("-2.0E+07", r"-2.0\times10^{7}"),
        ("1e-5", r"1\times10^{-5}"),
        (" x^2 ", "x^2"),
        ("2e", "2e"),
        (r"e^{33}", r"e^{33}"),
        ("3e2x", "3e2x"),
    ],
)
def test_scientific_notation_is_rewritten(gold, normal):
    assert normalise_gold(gold) == normal


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        ("132", "132", "correct"),
        ("132", " 132 ", "correct"),
        ("132", "0132", "correct"),
        ("132", "133", "wrong"),
        ("0.5", r"\frac12", "correct"),
        (r"\frac{1}{2}", "0.5", "correct"),
        ("4.5e33", r"4.5\times10^{33}", "correct"),
        ("4.5e33", r"4.5\times10^{32}", "wrong"),
        ("1000", "1,000", "correct"),
        ("x=5", "5", "correct"),
        ("(1,2)", "(1, 2)", "correct"),
        (r"\{1,2\}", r"\{2,1\}", "correct"),
        ("1", "", "unparsable"),
        # What math-verify 0.9.0 takes for equal.
        ("4", r"4\sqrt{2}", "wrong"),
        (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}", "wrong"),
        ("3*x-1*y+13=0", "3x+4y+14=0", "wrong"),
        ("(1,2)", r"\{1,2\}", "wrong"),
    ],
)
def test_verdicts(gold, answer, verdict):
    assert grade(gold, rf"So \boxed{{{answer}}}.").verdict == verdict


def test_no_box_is_not_wrong():
    assert grade("5", "the answer is 5").verdict == "no_box"


HOSTILE = {
    "tower": "9^{9^{9^{9}}}",
    "factorial": "100000!!!",
    "digits": "7" * 200_000,
    "roots": r"\sqrt{" * 300 + "2" + "}" * 300,
    "braces": "{" * 5000 + "}" * 5000,
    "control": "\x00\x1b[31m\x07\u202e",
    "newlines": '1\n["correct"]\n"correct"',
    "code": "__import__('os').system('touch executed')",
    "surrogate": "\ud800",
}


def test_hostile_answers_neither_hang_nor_change_their_neighbours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = []
    for text in HOSTILE.values():
        pairs += [("5", rf"\boxed{{{text}}}"), (r"\frac{10}{4}", r"\boxed{2.5}")]
    grades = grade_all(pairs, seconds=1.0)
    assert [g.verdict for g in grades[1::2]] == ["correct"] * len(HOSTILE)
    assert "correct" not in [g.verdict for g in grades[::2]]
    assert grades[0].verdict == "timeout"
    assert list(tmp_path.iterdir()) == []


def test_many_boxes_are_read_once():
    assert grade("4", r"\boxed{4}" * 20_000).correct
    assert grade("4", r"\boxed{" * 20_000).verdict == "no_box"


def test_too_much_memory_is_a_crash_or_a_limit_not_ours():
    (one,) = grade_all([("5", r"\boxed{2^{2^{40}}}")], seconds=4.0, memory_bytes=2**28)
    assert one.verdict in ("crash", "timeout", "wrong")
    assert grade(r"\frac{10}{4}", r"\boxed{2.5}").correct


def test_order_is_kept_and_equal_answers_agree():
    pairs = [("2", r"\boxed{2}"), ("2", "none"), ("2", r"\boxed{3}"), ("3", r"\boxed{3}")] * 50
    verdicts = [g.verdict for g in grade_all(pairs)]
    assert verdicts == ["correct", "no_box", "wrong", "correct"] * 50


def test_the_share_of_failures_counts_the_graders_own():
    grades = grade_all([("5", r"\boxed{9^{9^{9^{9}}}}"), ("5", r"\boxed{4}")], seconds=0.5)
    assert failure_fraction(grades) == 0.5
    assert failure_fraction([]) == 0.0


@pytest.mark.skipif(
    "STAPO_BENCHMARK_ROWS" not in os.environ, reason="STAPO_BENCHMARK_ROWS names no directory"
)
def test_every_gold_answer_of_the_real_benchmarks_grades_itself():
    failed = []
    for path in sorted(Path(os.environ["STAPO_BENCHMARK_ROWS"]).glob("*.parquet")):
        golds = [row["reward_model"]["ground_truth"] for row in pq.read_table(path).to_pylist()]
        # Past the comparison of strings: math-verify itself must agree.
        failed += [
            (path.stem, gold)
            for gold in golds
            if judge(normalise_gold(gold), normalise_gold(gold)) != "correct"
        ]
    assert failed == []
