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


def test_what_trl_does():
    lines, holds = report(*find_trainer("trl-dapo")[:1], "trl-dapo", "justrl")
    assert holds
    assert "divisor: kept tokens of the mini-batch" in lines
    with pytest.raises(ValueError, match=r"--trainer: expected ours, .*, found nothing"):
        find_trainer("nothing")
    assert conventions(TRAINERS["trl-dapo"][0], "stapo")["threshold over"] == "no selection"
