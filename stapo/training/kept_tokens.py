"""Trainings whose token selection keeps no token: a warning, and an error if it has never kept one.

With a strict selection, single mini-batches without a kept token can be meant. A training that never keeps
one learns nothing, and would end like any other.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import TrainerCallback

from stapo.training.resume import say

STEPS = 10
"""Steps without a kept token, from the first one on, that end a training; our choice."""
KEPT, WITHOUT_ADVANTAGE = "stapo/kept_fraction", "stapo/zero_advantage_fraction"
"""Names of two fields of `StepRecord` in the history of the Trainer."""


class KeptTokens(TrainerCallback):  # type: ignore[misc]
    """Ends a training whose selection has kept no token in any of its first steps, on every rank alike.

    It reads the history of the Trainer, which step checkpoints contain: a resumed training ends at the same
    step.

    Args:
        selection: the selection, as the study names it.
    """

    def __init__(self, selection: str) -> None:
        self.selection = selection
        self._warned = False

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look at the step that was logged.

        Raises:
            ValueError: no token was kept so far, and this is step `STEPS` with advantages or the last step.
        """
        if KEPT not in state.log_history[-1] or not _is_empty(state.log_history[-1]):
            return
        steps = [entry for entry in state.log_history if KEPT in entry]
        where = f"step {state.global_step}: {self.selection} keeps no token"
        if never_kept(steps, state.max_steps):
            raise ValueError(
                f"{where}, as in all steps before: nothing is learned; fix the function or its "
                "arguments, then run the same command again"
            )
        if not self._warned:
            say(
                f"warning: {where}: nothing is learned in this step; stapo status counts such steps"
            )
        self._warned = True


def never_kept(steps: Sequence[Mapping[str, float]], last: int) -> bool:
    """Return whether a selection has kept no token so far, in enough steps to say so.

    Args:
        steps: the logged steps so far.
        last: number of steps of the training, after which nothing more comes.
    """
    if any(step[KEPT] > 0 for step in steps):
        return False
    return sum(map(_is_empty, steps)) >= STEPS or len(steps) >= last


def _is_empty(step: Mapping[str, float]) -> bool:
    """Return whether no token was kept in a step with advantages; without them, there is nothing to keep."""
    return step[KEPT] == 0 and step[WITHOUT_ADVANTAGE] < 1
