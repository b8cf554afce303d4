"""Pairs of gold and answer with our verdict and math-verify's, and which boxes are the answer."""

import time

import pytest

from stapo.suite.answers import final_answer, last_boxed, parts
from stapo.suite.evaluation.grading import grade_all

# Whose case: a benchmark with such a gold, or an issue of huggingface/Math-Verify.
DIFFERENT = [
    # gold, answer, whether we accept it, rule and case
    ("132", "132.", True, "full stop: any gold"),
    ("4.5e33", r"4.5\times10^{33}", True, "scientific notation: Minerva"),
    ("1e-5", "0.00001", True, "scientific notation: Minerva"),
    (r"4.6\times10^{-24}", r"2.88\times10^{-19}", False, "small numbers: Minerva"),
    (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}", False, "small numbers: #14"),
    ("-1./3", r"-\frac{1}{3}", True, "Python's notation: Minerva"),
    ("np.arcsin(10/13)", r"\arcsin\frac{10}{13}", True, "Python's notation: Minerva"),
    ("1.25", r"\text{1.25}", True, "decimals as text: #37 and Minerva"),
    ("10080", r"10\,080", True, "thin space: MATH"),
    ("6+9i", "6+9 i", True, "imaginary unit: MATH"),
    (r"y^{\prime}+r y-r x(t)=0", "y'+ry=rx(t)", True, "apostrophe: Minerva"),
    (r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}", r"\frac{E_1+2E_2}{3}", True, "index of E: Minerva"),
    (r"m_{\max }=n^{2}-n-1", "n^2-n-1", True, "command as index: OlympiadBench"),
    ("2516_8", "2516_7", False, "base: MATH"),
    ("$6m$", "6", False, "variable or unit: OlympiadBench"),
    (r"10:30 \text{ a.m.}", r"10:30 \text{ p.m.}", False, "times: #14"),
    (r"1, 2, \ldots, n", r"1, 3, 5, \ldots, 2n-1", False, "unfinished lists: #14"),
    (r"1, 2, \ldots, n", r"1,2,\dots,n", True, "unfinished lists: #14"),
    ("1, 2, 3, ...", r"1,2,3,\ldots", True, "unfinished lists: #14"),
    (r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}", r"\frac{2}{3}", False, "whole answer: #41 and Minerva"),
    ("f(x) = 0", r"\forall x>0, f(x) = 0", False, "whole answer: #64"),
    (r"(2,\infty)", "x>2", True, "relations and sets: MATH"),
    ("[-2,7]", r"-2\le x\le 7", True, "relations and sets: MATH"),
    (r"\sqrt{4 \pi G \rho_{0} r_{0}^{2}}", r"2 r_0\sqrt{\pi G\rho_0}", True, "positive variables: Minerva"),
    # Equalities that would absorb a difference.
    (r"(\gamma-1)mc^2", r"(\gamma-2)mc^2", False, "a pole: Minerva"),
    (r"(\gamma-1)mc^2", r"mc^2(\gamma-1)", True, "a pole: Minerva"),
    (r"\frac{dM}{dt}=aM^{6}", r"\frac{dM}{dt}=aM^{7}", False, "derivatives: Minerva"),
    (r"\frac{dM}{dt}=aM^{6}", "aM^6", True, "derivatives: Minerva"),
    (r"(a,b)", r"\{a,b\}", False, "types"),
    (r"(-\infty,0]", r"[-\infty,0]", False, "types"),
    ("(312,123)", r"\{312,123\}", False, "types"),
    ("(a,b)", r"\left\{a,b\right\}", False, "types"),
    ("y''=x", "y'=x", False, "apostrophes"),
    ("m R^2", "M r^2", False, "capitals"),
    ("ACB", "ABC", False, "orders of letters"),
    *(("5", text, False, "words that change a number") for text in (
        r"5 \text{ or 6}", r"5 \text{ and a half}", r"5\text{, 6}", r"5 \text{ dozen}",
    )),
    # Notations that are read as LaTeX.
    *(("5", text, True, "decoration") for text in (
        r"\underline{5}", r"\color{red}5", r"{\color{red}5}", r"\textcolor{red}{5}",
        r"\boldsymbol{5}", "**5**", "5,", "5;", "5~",
        "Answer: 5", r"\text{The answer is } 5", "*5*", "`5`", "\uff15",
    )),
    (r"\frac{\sqrt{3}}{2}", "√3/2", True, "Unicode"),
    ("60", "60°", True, "Unicode"),
    ("2x", "2·x", True, "Unicode"),
    ("x^2", "x²", True, "Unicode"),
    ("-5", "\uff0d5", True, "Unicode"),
    (r"2\pi", "2pi", True, "plain words"),
    ("2^n-1", "2**n-1", True, "plain words"),
    (r"\frac{1}{3}", r"0.\overline{3}", True, "repeating decimals"),
    (r"\frac{5}{4}", "1 1/4", True, "mixed numbers"),
    ("36", "36 dollars", True, "units"),
    ("12", r"12\text{ million}", False, "units"),
    (r"60^\circ", r"\frac{\pi}{3}", True, "degrees"),
    ("52_8", r"52_{\text{eight}}", True, "base"),
    (r"(-\infty,-1)\cup(2,\infty)", r"x<-1 \text{ or } x>2", True, "relations and sets: MATH"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)", True, "columns: MATH"),
    ("(1,2)", r"\left\{\begin{array}{l}x=1\\y=2\end{array}\right.", True, "systems"),
    (r"\emptyset", r"\varnothing", True, "names"),
    (r"\ln 2", r"\log_e 2", True, "names"),
    (r"e^{i\pi/3}", r"\frac12+\frac{\sqrt3}{2}i", True, "imaginary unit"),
]  # fmt: skip

AGREED = [
    # gold, answer, whether both accept it
    ("132", " 0132 ", True),
    (r"\frac{1}{3}", "0.333333", True),
    ("x=5", "5", True),
    ("1,2", "2,1", True),
    ("(1,2)", "(2,1)", False),
    ("[1,2]", "(1,2)", False),
    (r"\text{Evelyn}", "Evelyn", True),
    ("y=2x+1", "2x-y+1=0", True),
    ("9", r"9 \textbf{ meters}", True),
    ("9", r"9 \text{ lengths}", True),
    ("9", "9 months", True),
    ("9", "9 squared", False),
    ("9", "9 fourths", False),
    (r"\frac{37}{4} m", "9.25", True),
    ("2516_8", "x = 2516_{8}", True),
    ("52_8", r"2\cdot(52_8)", False),
    (
        r"\frac{\cos 2t}{15}+C_{1} e^{t}+C_{2} e^{-t}",
        r"C_{2} e^{-t}+C_{1} e^{t}+\frac{\cos 2t}{15}",
        True,
    ),
    (r"\frac{\cos 2t}{15}+C_{1} e^{t}+C_{2} e^{-t}", "C_2", False),
    (r"\left[P_{0}^{2 / 5}-a z\right]^{5 / 2}", "P_0", False),
    ("|x|", "x", False),
    (r"\max(a,0)", "a", False),
    *(
        ("5", text, True)
        for text in (
            *(r"\[5\]", r"\ 5\ ", r"\bf 5", "$5$", r"\mathbf{5}", r"\text{5}"),
            *(r"\mathbf 5", r"\boldsymbol 5", "= 5", r"\therefore x = 5", r"\text 5", r"\approx 5"),
        )
    ),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\{1,2\}", False),
    ("(312,123)", r"\lbrace 312,123\rbrace", False),
    ("-5", "\u22125", True),
    ("10", "10 min", True),
    ("1, 2, 3, ...", "1, 2, 3", False),
    (r"\text{even}", "Even", True),
    ("aM^6", "am^6", True),
    # MATH asks "by what percent" for 10; without the question, the same verdict holds for 1\% and 1.
    ("10", r"10\%", True),
    ("3,4", r"3 \text{ and } 4", True),
    ("4", r"4\sqrt(2)", False),
]


def test_each_rule_changes_the_verdict_on_its_case_and_elsewhere_math_verify_decides():
    rows = [(*row[:3], not row[2]) for row in DIFFERENT] + [(*row, row[2]) for row in AGREED]
    grades = grade_all([(gold, rf"So \boxed{{{answer}}}.") for gold, answer, *_ in rows])
    found = [(*row[:2], one.correct, one.plain) for row, one in zip(rows, grades, strict=True)]
    assert found == rows


def test_an_answer_that_cannot_be_read_is_not_wrong():
    unreadable = ["", "?", r"\text{}", r"\star 4", "a ?? 4", "7" * 2001]
    grades = grade_all([("4", rf"\boxed{{{text}}}") for text in unreadable])
    assert {one.verdict for one in grades} == {"unparsable"}


JOINED = (
    r"So \boxed{2} and \boxed{3}.",
    r"\(\boxed{2}\) or \(\boxed{3}\).",
    r"\[\boxed{2} \quad \text{and} \quad \boxed{3}\]",
    "$$\\boxed{2}$$\n\n$$\\boxed{3}$$",
    r"First \boxed{7}, no: \boxed{2} and \boxed{3}",
)


@pytest.mark.parametrize(
    ("gold", "response", "answer"),
    [
        # The last box whose braces close.
        ("1", r"\boxed{1} then \boxed{2}.", "2"),
        ("1", r"\boxed{\{1,2\}}", r"\{1,2\}"),
        ("1", r"\boxed{1} and \boxed{2", "1"),
        ("1", r"\boxed{\frac{1}{2} and \boxed{", None),
        ("1", r"} } { \boxed{}", ""),
        # As LaTeX reads it.
        ("5", r"\boxed {5} and \$", "5"),
        ("5", r"\boxed5", "5"),
        ("5", r"\boxed x", "x"),
        ("5", r"\fbox{5}", "5"),
        ("5", r"\boxed{5}. I put it within \boxed{}.", "5"),
        (
            "5",
            r"\boxed{\left\{\begin{array}{l}x=1\\y=2\end{array}\right.}",
            r"\left\{\begin{array}{l}x=1\\y=2\end{array}\right.",
        ),
        ("1,2", r"$x=\boxed{1}$ or $x = \boxed{2}$", "1, 2"),
        ("1", "boxed{1}", None),
        ("1", r"\boxed{a \boxed{b} c}", "b"),
        # The parts of a list, for a gold with as many parts.
        *(("2,3", response, "2, 3") for response in JOINED),
        *((gold, response, "3") for gold in ("2", "2,3,5", "(2,3)", "23") for response in JOINED),
        ("2,3", r"\boxed{2}, \boxed{3} and \boxed{5}", "5"),
        ("2,3", r"\boxed{2} but not \boxed{3}", "3"),
        ("2,3", r"\boxed{2}" + " " * 100 + r"\boxed{3}", "3"),
        ("2,3", r"\boxed{1} and \boxed{2,3}", "2,3"),
        ("58,500", r"\boxed{58} and \boxed{500}", "500"),
        ("1234,1", r"\boxed{1}, \boxed{234}", "1, 234"),
    ],
)
def test_the_answer_is_the_last_box_or_a_list_of_boxes(gold, response, answer):
    assert final_answer(gold, response) == answer
    if parts(gold) == 1:
        assert last_boxed(response) == answer


HOSTILE = (
    "{" * 200_000,
    r"\boxed{1} and " * 20_000 + r"\boxed{2}",
    r"\boxed{1}" + "and" * 100_000 + r"\boxed{2}",
    r"\boxed{" * 20_000 + "2" + "}" * 20_000,
    r"\boxed{1}" + r"\text{" * 50_000 + r"\boxed{2}",
    r"\boxed{1} and \boxed{\text{" + " " * 200_000 + "}}",
    r"\boxed{1} \text" + " " * 54 + r"\boxed{2}",
    r"\boxed{" + "9," * 100_000 + r"} and \boxed{2}",
)


def test_hostile_boxes_take_linear_time():
    start = time.process_time()
    for response in HOSTILE:
        final_answer("1,2", response)
    # Measured: 0.1 s at most for each. Anything quadratic takes minutes.
    assert time.process_time() - start < 10.0
