"""The answer is the last box; several boxes are one answer only for a gold with as many parts."""

import time

import pytest

from stapo.evaluation.boxes import final_answer, last_boxed, parts


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{1} then \boxed{2}.", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{}", ""),
        (r"\boxed{1} and \boxed{2", "1"),
        (r"\boxed{\frac{1}{2} and \boxed{", None),
        (r"} } { \boxed{1} }", "1"),
        ("boxed{1}", None),
        ("", None),
        (r"\boxed{a \boxed{b} c}", "b"),
    ],
)
def test_last_boxed(text, content):
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("gold", "count"),
    [
        ("7", 1),
        ("1,3", 2),
        ("$69$,$84$", 2),
        ("$-1$,$2$,$-2$", 3),
        ("(2,4)", 1),
        ("(3,4]", 1),
        ("(1,1), (3,2)", 2),
        (r"(0,9)\cup(9,36)", 1),
        (r"\frac{1}{2},\sqrt{3}", 2),
        ("58,500", 1),
        (r"10,\!080", 1),
        (r"11,\! 111,\! 111,\! 100", 1),
        ("2400, 1350, 864", 3),
    ],
)
def test_parts_are_counted_outside_of_brackets(gold, count):
    assert parts(gold) == count


@pytest.mark.parametrize(
    "response",
    [
        r"So \boxed{2} and \boxed{3}.",
        r"$\boxed{2}$, $\boxed{3}$.",
        r"\(\boxed{2}\) or \(\boxed{3}\).",
        r"\[\boxed{2} \quad \text{and} \quad \boxed{3}\]",
        "$$\\boxed{2}$$\n\n$$\\boxed{3}$$",
        r"First \boxed{7}, no: \boxed{2} and \boxed{3}",
    ],
)
def test_joined_boxes_are_the_parts_of_a_list(response):
    assert final_answer("2,3", response) == "2, 3"
    for gold in ("2", "3", "2,3,5", "(2,3)", "23"):
        assert final_answer(gold, response) == "3"


@pytest.mark.parametrize(
    ("gold", "response", "answer"),
    [
        ("2,3", r"\boxed{2}, \boxed{3} and \boxed{5}", "5"),
        ("2,3", r"\boxed{2} but not \boxed{3}", "3"),
        ("2,3", r"\boxed{2}" + " " * 100 + r"\boxed{3}", "3"),
        ("2,3", r"\boxed{2} and \boxed{3", "2"),
        ("2,3", r"\boxed{1} and \boxed{2,3}", "2,3"),
        ("58,500", r"\boxed{58} and \boxed{500}", "500"),
        ("1234,1", r"\boxed{1}, \boxed{234}", "1, 234"),
    ],
)
def test_other_boxes_are_not(gold, response, answer):
    assert final_answer(gold, response) == answer


@pytest.mark.parametrize(
    "response",
    [
        "{" * 200_000,
        r"\boxed{1} and " * 20_000 + r"\boxed{2}",
        r"\boxed{1}" + "and" * 100_000 + r"\boxed{2}",
        r"\boxed{" * 20_000 + "2" + "}" * 20_000,
        r"\boxed{1}" + r"\text{" * 50_000 + r"\boxed{2}",
        r"\boxed{" + "," * 200_000 + r"} and \boxed{2}",
        r"\boxed{1} and \boxed{\text{" + " " * 200_000 + "}}",
        r"\boxed{1} \text" + " " * 54 + r"\boxed{2}",
        r"\boxed{" + "9," * 100_000 + r"} and \boxed{2}",
    ],
)
def test_hostile_boxes_take_linear_time(response):
    start = time.process_time()
    final_answer("1,2", response)
    # Measured: 0.1 s at most. Anything quadratic takes minutes.
    assert time.process_time() - start < 2.0
