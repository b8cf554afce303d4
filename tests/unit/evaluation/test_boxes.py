"""Several boxes are one answer of a gold with as many parts, and of no other."""

import os
import time

import pytest

from stapo.evaluation import grading
from stapo.evaluation.boxes import final_answer, last_boxed, parts
from stapo.evaluation.grading import grade
from stapo.evaluation.task import load_rows
from stapo.tasks import benchmark_definitions


@pytest.fixture(autouse=True, scope="module")
def _no_worker_left():
    yield
    grading._stop_idle()


@pytest.mark.parametrize(
    ("gold", "count"),
    [
        ("7", 1),
        ("1,3", 2),
        ("$69$,$84$", 2),
        ("2 and 3", 2),
        (r"2\text{ or }3", 2),
        ("1, 2, and 3", 3),
        ("$-1$,$2$,$-2$", 3),
        ("(2,4)", 1),
        ("(3,4]", 1),
        ("(1,1), (3,2)", 2),
        (r"\{1,2\}", 2),
        (r"\left\{1,2\right\}", 2),
        ("{1,2,3}", 3),
        (r"\{1,2\},\{3,4\}", 2),
        (r"(0,9)\cup(9,36)", 1),
        (r"f(x)=x,f(x)=-x", 2),
        (r"\frac{1}{2},\sqrt{3}", 2),
        ("58,500", 1),
        (r"10,\!080", 1),
        (r"\$32,\!348", 1),
        (r"11,\! 111,\! 111,\! 100", 1),
        ("1,234.5", 1),
        (r"10\,\text{cm}", 1),
        (r"x\;=\;2", 1),
        (r"2\,\text{m}, 3\,\text{m}", 2),
        (r"2\text{ , and }3", 2),
        ("2400, 1350, 864", 3),
        ("android", 1),
        ("", 0),
    ],
)
def test_parts_are_counted_outside_of_brackets(gold, count):
    assert parts(gold) == count


TWO = [
    r"So \boxed{2} and \boxed{3}",
    r"So \boxed{3} and \boxed{2}.",
    r"$\boxed{2}$, $\boxed{3}$.",
    r"\(\boxed{2}\) and \(\boxed{3}\).",
    r"\[\boxed{2} \quad \text{and} \quad \boxed{3}\]",
    r"$\boxed{2}$ or $\boxed{3}$",
    r"\boxed{2}, and \boxed{3}. Both are prime.",
    "$$\\boxed{2}$$\n\n$$\\boxed{3}$$",
    r"First \boxed{7}, no: \boxed{2} and \boxed{3}",
    r"**\boxed{2}** and **\boxed{3}**",
]


@pytest.mark.parametrize("response", TWO)
def test_joined_boxes_are_the_parts_of_a_list(response):
    assert grade("2,3", response).correct
    assert grade(r"\{2,3\}", response).correct
    # For every other gold the last box is the answer, as ever.
    for gold in ("2", "3", "2,3,5", "(2,3)", "23"):
        assert final_answer(gold, response) == last_boxed(response)
    assert grade("2", response).correct == (last_boxed(response) == "2")


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("2,3", r"\boxed{2} and \boxed{4}"),
        ("2,3", r"\boxed{2} and \boxed{2}"),
        ("2,2", r"\boxed{2} and \boxed{3}"),
        ("2,3", r"\boxed{2}, \boxed{3} and \boxed{5}"),
        ("2,3", r"\boxed{1}, \boxed{2} and \boxed{3}"),
        ("2,3", r"\boxed{2} but not \boxed{3}"),
        ("2,3", r"\boxed{2} and of course \boxed{3}"),
        ("2,3", r"\boxed{2} and not \boxed{3}"),
        ("2,3", r"\boxed{2}" + " " * 100 + r"\boxed{3}"),
        ("2,3", r"\boxed{2} and \boxed{3"),
        ("2,3", r"\boxed{2,3} and \boxed{3}"),
        ("1,2,3", r"\boxed{1,2} and \boxed{3}"),
        ("2,3", r"\boxed{} and \boxed{3}"),
        ("2,3", r"\boxed{2 \text{ or } 5} and \boxed{3}"),
        ("2,3", r"\boxed{\boxed{2} and \boxed{3}} and \boxed{5}"),
        ("58,500", r"\boxed{58} and \boxed{500}"),
        ("58500,2", r"\boxed{58}, \boxed{500} and \boxed{2}"),
        ("1234", r"\boxed{1} and \boxed{234}"),
        ("1234,1", r"\boxed{1}, \boxed{234}"),
        ("3", r"\boxed{2}, \boxed{3} and \boxed{4}"),
        ("(1,2)", r"\boxed{1} and \boxed{2}"),
    ],
)
def test_other_boxes_are_not(gold, response):
    assert not grade(gold, response).correct


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("2,3", r"\boxed{4} and \boxed{2,3}"),
        ("3", r"\boxed{2} and \boxed{3}"),
        ("(1,1), (3,2)", r"\boxed{(3,2)} and \boxed{(1,1)}"),
        (r"$90^{\circ}$,$60^{\circ}$", r"\boxed{60^\circ} and \boxed{90^\circ}"),
        (r"\frac{1}{2},\sqrt{12}", r"\boxed{0.5} and \boxed{2\sqrt{3}}"),
        ("-2,-2", r"\boxed{-2} and \boxed{-2}"),
        (r"10\,x", r"\boxed{3x} and \boxed{10x}"),
        ("2,3", r"\boxed{x\,=\,2} and \boxed{x\,=\,3}"),
        ("1, 2, and 3", r"\boxed{1}, \boxed{2}, and \boxed{3}"),
    ],
)
def test_what_is_right_is_accepted(gold, response):
    assert grade(gold, response).correct


@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{1}" * 20_000,
        r"\boxed{1} and " * 20_000 + r"\boxed{2}",
        r"\boxed{1}" + "and" * 100_000 + r"\boxed{2}",
        r"\boxed{" * 20_000 + "2" + "}" * 20_000,
        r"\boxed{1}" + r"\text{" * 50_000 + r"\boxed{2}",
        r"\boxed{1}" + "$ " * 34 + r"\text{and\boxed{2}",
        r"\boxed{" + "," * 200_000 + r"} and \boxed{2}",
        r"\boxed{1} and \boxed{\text{" + " " * 200_000 + "}}",
    ],
    ids=["boxes", "joined", "words", "nested", "texts", "joint", "commas", "spaces"],
)
def test_hostile_boxes_take_linear_time(response):
    start = time.process_time()
    final_answer("1,2", response)
    # Measured: 0.1 s at most. Anything quadratic takes minutes.
    assert time.process_time() - start < 2.0


def test_how_many_golds_have_several_parts(monkeypatch):
    if not (directory := os.environ.get("STAPO_BENCHMARK_ROWS")):
        pytest.skip("STAPO_BENCHMARK_ROWS names no directory with the benchmarks' rows")
    monkeypatch.setenv("STAPO_DATA_DIR", directory)
    expected = {
        "aime24": 0,
        "aime25": 0,
        "amc23": 0,
        "math500": 4,
        "minerva": 1,
        "olympiadbench": 92,
    }
    for name, count in expected.items():
        rows = load_rows(**benchmark_definitions()[name]["metadata"])["test"]
        assert sum(parts(row["answer"]) > 1 for row in rows) == count
