"""A token selection that keeps no token: a warning, and an error if it has never kept one."""

from types import SimpleNamespace
from typing import Any

import pytest

from stapo.training.kept_tokens import KEPT, STEPS, WITHOUT_ADVANTAGE, KeptTokens

EMPTY = {KEPT: 0.0, WITHOUT_ADVANTAGE: 0.5}
NOTHING_TO_KEEP = {KEPT: 0.0, WITHOUT_ADVANTAGE: 1.0}
USUAL = {KEPT: 0.9, WITHOUT_ADVANTAGE: 0.5}


def logged(steps: list[dict[str, float]], last: int = 1000) -> None:
    """Log the steps one by one, as a training without interruption does."""
    callback = KeptTokens("own.py:nothing")
    for number in range(1, len(steps) + 1):
        history: list[dict[str, Any]] = [{"loss": 0.0}, *steps[:number]]
        state = SimpleNamespace(global_step=number, max_steps=last, log_history=history)
        callback.on_log(None, state, None)


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
