"""The trainers that `stapo conformance` knows by name, ours and TRL's, as the kit sees them."""

import pytest

pytest.importorskip("trl", reason="TRL's trainers are judged here")

from stapo.conformance import conventions, report, run_checks
from stapo.conformance.kit import find_trainer
from stapo.conformance.trainers import TRAINERS
from stapo.methods import CONFORMANCE_METHODS


@pytest.mark.parametrize("method", CONFORMANCE_METHODS)
def test_our_trainer_conforms(method):
    assert [c for c in run_checks(TRAINERS["ours"][0], method) if not c.holds] == []
    found = conventions(TRAINERS["ours"][0], method)
    if method not in ("grpo", "justrl"):
        assert found["threshold over"] == "the mini-batch"
        assert found["probabilities and entropies of"] == "the behaviour policy"
    mean = "kept tokens of each response, then the mean over responses"
    assert found["divisor"] == (mean if method == "grpo" else "kept tokens of the mini-batch")


def failed(name: str) -> list[str]:
    found, method = TRAINERS[name]
    return [check.name for check in run_checks(found, method) if not check.holds]


def test_what_trl_does():
    lines, holds = report(*find_trainer("trl-dapo")[:1], "trl-dapo", "justrl")
    assert holds
    assert "divisor: kept tokens of the mini-batch" in lines
    with pytest.raises(ValueError, match=r"--trainer: expected ours, .*, found nothing"):
        find_trainer("nothing")
    assert conventions(TRAINERS["trl-dapo"][0], "stapo")["threshold over"] == "no selection"
    # The mean of micro-batches' means: another number where they are unequal, or a response is empty.
    assert failed("trl-grpo") == [
        "a response without tokens",
        "the same in unequal micro-batches",
        "the same on ranks of unequal parts",
    ]
    # All tokens in the divisor: wrong everywhere; and it depends on the cut, not on order and padding.
    assert "ordinary" in failed("trl-top-entropy")
    assert [name for name in failed("trl-top-entropy") if name.startswith("the same")] == [
        "the same in micro-batches of two",
        "the same in unequal micro-batches",
        "the same on ranks of unequal parts",
    ]
    assert conventions(*TRAINERS["trl-top-entropy"]) == {
        "threshold over": "a micro-batch of all ranks together",
        "probabilities and entropies of": "the current policy",
        "divisor": "all tokens of the mini-batch",
    }
