"""The grader ceiling counts what is accepted, by notation."""

import pytest

from stapo.evaluation.audit import NOTATIONS, ceilings, coincidences, print_audit
from stapo.evaluation.grading import grade, without_full_stop
from stapo.study import StudyError


def test_notations_apply_where_they_exist():
    forms = {name: write(r"\frac{1}{4}") for name, write in NOTATIONS.items()}
    assert forms["fractions as decimals"] == "0.25"
    assert forms["fractions as a/b"] == "(1)/(4)"
    assert forms["with .0"] is None
    assert NOTATIONS["fractions as decimals"](r"\frac{1}{3}") is None
    assert NOTATIONS["powers of ten"]("4.5e33") == r"4.5\times10^{33}"


def test_the_ceiling_is_counted_from_the_grader():
    found = {c.notation: c for c in ceilings(["12", r"\frac{1}{4}", "4.5e33"], workers=2)}
    assert (found["as given"].applicable, found["as given"].accepted) == (3, 3)
    # These failed before answers were rewritten as golds are.
    for notation in ("with a full stop", "in dollars", "powers of ten"):
        assert found[notation].accepted == found[notation].applicable, notation
    assert coincidences(["1", "1.0", "2"], workers=2) == [("1", "1.0")]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("12.", "12"),
        ("0.5", "0.5"),
        ("0.5. ", "0.5"),
        ("12..", "12.."),
        (".", "."),
        (r"a\.", r"a\."),
    ],
)
def test_a_full_stop_at_the_end_is_no_part_of_the_answer(answer, expected):
    assert without_full_stop(answer) == expected
    assert grade("12", r"\boxed{12.}").correct
    assert not grade("12", r"\boxed{12.5}").correct
    assert grade("4.5e33", r"\boxed{4.5e33 }").correct
    assert grade("4.5e33", r"\boxed{4.50e+33}").correct
    assert not grade("4.5e33", r"\boxed{4.5e32}").correct


def test_it_prints_a_row_per_notation(capsys):
    print_audit(["chain-2"])
    assert "as given" in capsys.readouterr().out
    with pytest.raises(StudyError, match="--benchmark: no task nothing"):
        print_audit(["nothing"])
