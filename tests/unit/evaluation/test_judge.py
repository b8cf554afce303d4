"""Pairs of gold and answer with our verdict, math-verify's, and the rule that makes the difference."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stapo.evaluation.grading import grade_all, last_boxed

# Whose case: a benchmark with such a gold, an issue of huggingface/Math-Verify, or a mistake that we found.
DIFFERENT = [
    # gold, answer, whether we accept it, rule and case
    ("132", "132.", True, "full stop: any gold"),
    ("4.5e33", r"4.5\times10^{33}", True, "scientific notation: Minerva"),
    ("4.5e33", r"45 \cdot 10^{32}", True, "scientific notation: Minerva"),
    ("1e-5", "0.00001", True, "scientific notation: Minerva"),
    ("7.353e14", "735300000000000", True, "scientific notation: Minerva"),
    (r"4.6\times10^{-24}", r"2.88\times10^{-19}", False, "small numbers: Minerva"),
    (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}", False, "small numbers: #14"),
    (r"\frac{1}{2004!}", r"\frac{1}{2006!}", False, "small numbers: #14"),
    (r"\frac{2^{2005}+1}{3 \cdot 2^{2006}}", r"\frac{1}{3 \cdot 2^{2006}}", False, "small numbers: #14"),
    ("-1./3", r"-\frac{1}{3}", True, "Python's notation: Minerva"),
    ("np.arcsin(10/13)", r"\arcsin\frac{10}{13}", True, "Python's notation: Minerva"),
    ("1.25", r"\text{1.25}", True, "decimals as text: #37 and Minerva"),
    ("10080", r"10\,080", True, "thin space: MATH"),
    ("6+9i", "6+9 i", True, "imaginary unit: MATH"),
    (r"y^{\prime}+r y-r x(t)=0", "y'+ry=rx(t)", True, "apostrophe: Minerva"),
    ("E_{1},E_{2}", "E_1, E_2", True, "index of E: Minerva"),
    (r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}", r"\frac{E_1+2E_2}{3}", True, "index of E: Minerva"),
    (r"m_{\max }=n^{2}-n-1", "n^2-n-1", True, "command as index: OlympiadBench"),
    ("12", r"1\text{ }2", False, "empty text: found by a review"),
    ("2516_8", "2516_7", False, "base: MATH"),
    ("204_5", r"\displaystyle 204_{6}", False, "base: MATH"),
    ("$6m$", "6", False, "variable or unit: OlympiadBench"),
    (r"10:30 \text{ a.m.}", r"10:30 \text{ p.m.}", False, "times: #14"),
    (r"1, 2, \ldots, n", r"1, 3, 5, \ldots, 2n-1", False, "unfinished lists: #14"),
    (r"1, 2, \ldots, n", r"1,2,\dots,n", True, "unfinished lists: #14"),
    ("n", r"n \text{ is anything}", False, "statements: found by a review"),
    ("5", r"5\text{ is wrong; it is }\frac{6}{1}", False, "statements: found by a review"),
    ("C", "A=B=C", False, "chains of letters: found by a review"),
    (r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}", r"\frac{2}{3}", False, "whole answer: #41 and Minerva"),
    ("f(x) = 0", r"\forall x>0, f(x) = 0", False, "whole answer: #64"),
    (r"(2,\infty)", "x>2", True, "relations and sets: MATH"),
    ("[-2,7]", r"-2\le x\le 7", True, "relations and sets: MATH"),
    (r"\sqrt{1/n}", r"\frac{1}{\sqrt{n}}", True, "positive variables: #64"),
    (r"\sqrt{4 \pi G \rho_{0} r_{0}^{2}}", r"2 r_0\sqrt{\pi G\rho_0}", True, "positive variables: Minerva"),
]  # fmt: skip

AGREED = [
    # gold, answer, whether both accept it
    ("132", " 0132 ", True),
    ("132", "133", False),
    ("0.5", r"\frac12", True),
    (r"\frac{1}{3}", "0.333333", True),
    (r"\frac{1}{3}", "0.3333", False),
    ("1000", "1,000", True),
    ("x=5", "5", True),
    ("5", "x=5", True),
    (r"\infty", r"+\infty", True),
    ("1,2", "2,1", True),
    ("(1,2)", "(2,1)", False),
    ("[1,2]", "(1,2)", False),
    (r"\text{Evelyn}", "Evelyn", True),
    (r"\text{(B)}", "B", True),
    ("y=2x+1", "2x-y+1=0", True),
    ("9", r"9 \textbf{ meters}", True),
    (r"864 \mbox{ inches}^2", r"864\text{ in}^2", True),
    (r"\frac{37}{4} m", "9.25", True),
    ("2516_8", "2516", True),
    ("2516_8", "x = 2516_{8}", True),
    # MATH asks "by what percent" for 10; without the question, the same verdict holds for 1\% and 1.
    ("10", r"10\%", True),
    (r"8 \%", "0.08", True),
    ("3,4", r"3 \text{ and } 4", True),
    ("6m", "6n", False),
    ("4", r"4\sqrt(2)", False),
    ("1e-8", "2e-8", False),
    # Wrong accepts of math-verify for which we have no rule.
    ("5", "5'", True),
    ("5", r"5\approx 7", True),
    (r"\frac{n(n+1)}{2}", r"\sum_{k=1}^{n}k", True),
    ("(1,2)", r"\{1,2\}", True),
]


def boxed(pairs):
    return [(gold, rf"So \boxed{{{answer}}}.") for gold, answer in pairs]


def test_each_rule_changes_the_verdict_on_its_case():
    grades = grade_all(boxed(row[:2] for row in DIFFERENT))
    for (gold, answer, ours, rule), grade in zip(DIFFERENT, grades, strict=True):
        assert (grade.correct, grade.plain) == (ours, not ours), (rule, gold, answer, grade)


def test_elsewhere_math_verify_decides():
    grades = grade_all(boxed(row[:2] for row in AGREED))
    for (gold, answer, verdict), grade in zip(AGREED, grades, strict=True):
        assert (grade.correct, grade.plain) == (verdict, verdict), (gold, answer, grade)


@pytest.mark.parametrize("answer", ["", "?", r"\text{}", r"\star 4", "a ?? 4", "7" * 2001])
def test_an_answer_that_cannot_be_read_is_not_wrong(answer):
    assert grade_all(boxed([("4", answer)]))[0].verdict == "unparsable"


@pytest.mark.skipif(
    "STAPO_BENCHMARK_ROWS" not in os.environ,
    reason="STAPO_BENCHMARK_ROWS names no directory of parquet files with the benchmarks' rows",
)
def test_every_gold_of_the_six_benchmarks_is_accepted_in_usual_notations():
    rows = [
        row["reward_model"]["ground_truth"]
        for path in Path(os.environ["STAPO_BENCHMARK_ROWS"]).glob("*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    golds = sorted({last_boxed(row) or row for row in rows})
    assert len(golds) > 1000
    notations = [r"\displaystyle {}", "{}.", " {} "]
    pairs = [(gold, form.format(gold)) for gold in golds for form in notations]
    failed = [
        pair for pair, grade in zip(pairs, grade_all(boxed(pairs), workers=2), strict=True)
        if not grade.correct
    ]  # fmt: skip
    # The only gold that itself ends with a full stop, after a dollar sign.
    assert [pair for pair in failed if not pair[0].endswith("$.")] == []
