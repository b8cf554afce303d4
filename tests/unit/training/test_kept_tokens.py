"""A token selection that keeps no token: a warning, and an error if it has never kept one."""

from types import SimpleNamespace
from typing import Any

import pytest
from test_own_functions import own, train  # noqa: F401
from test_trainer import world  # noqa: F401

from stapo.files import read_jsonl
from stapo.training.kept_tokens import KEPT, STEPS, WITHOUT_ADVANTAGE, KeptTokens

EMPTY = {KEPT: 0.0, WITHOUT_ADVANTAGE: 0.5}
NOTHING_TO_KEEP = {KEPT: 0.0, WITHOUT_ADVANTAGE: 1.0}
USUAL = {KEPT: 0.9, WITHOUT_ADVANTAGE: 0.5}
CODE = """
import torch

def length(completions, **_):
    return [float(len(one[-1]["content"]) % 5) for one in completions]

def nothing(logps, entropies, advantages, mask):
    return torch.zeros_like(mask)
"""


def logged(steps: list[dict[str, float]], last: int = 1000) -> None:
    """Log the steps one by one, as a training without interruption does."""
    callback = KeptTokens("own.py:nothing")
    for number in range(1, len(steps) + 1):
        history: list[dict[str, Any]] = [{"loss": 0.0}, *steps[:number]]
        state = SimpleNamespace(global_step=number, max_steps=last, log_history=history)
        callback.on_log(None, state, None)


def test_a_training_that_never_keeps_a_token_ends_with_a_line(world, own):  # noqa: F811
    own.write_text(CODE)
    # At the same step when it is resumed.
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^step 2: own.py:nothing keeps no token, as in all"):
            train(world, own, selection="nothing", steps=2)
    assert len(read_jsonl(own.parent / "work" / "metrics.jsonl")) == 2
    assert not (own.parent / "model").exists()


@pytest.mark.parametrize(
    ("steps", "last"),
    [
        ([EMPTY] * STEPS, 1000),
        ([NOTHING_TO_KEEP] * 3 + [EMPTY] * STEPS, 1000),
        ([EMPTY] * 3, 3),
    ],
    ids=["from the first step on", "without the steps that have nothing to keep", "short"],
)
def test_it_ends_at_the_last_of_these_steps(steps, last):
    with pytest.raises(ValueError, match=f"step {len(steps)}: own.py:nothing .* fix the function"):
        logged(steps, last)
    logged(steps[:-1], last)


def test_single_steps_without_a_kept_token_are_a_warning(capsys):
    logged([USUAL, *[EMPTY] * 2 * STEPS, USUAL, EMPTY], 2 * STEPS + 3)
    warned = capsys.readouterr().out.splitlines()
    assert len(warned) == 1
    assert warned[0].startswith("warning: step 2: own.py:nothing keeps no token: nothing is")


def test_steps_with_nothing_to_keep_are_none(capsys):
    logged([NOTHING_TO_KEEP] * 2 * STEPS)
    assert not capsys.readouterr().out
