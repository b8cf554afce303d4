"""Callbacks of a training: progress bar, stop after a signal, kept weights."""

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from tqdm import tqdm
from transformers import TrainerCallback

from stapo.bars import bar
from stapo.records.step import StepRecord
from stapo.text import visible
from stapo.training.launch import NOTICE
from stapo.training.ranks import say


class Progress(TrainerCallback):  # type: ignore[misc]
    """A progress bar with time left and numbers of the last step."""

    def __init__(self, title: str) -> None:
        self.title = visible(title)
        self.bar: tqdm[Any] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the bar at the step that training resumes from; one bar for all ranks."""
        if not state.is_world_process_zero:
            return
        self.bar = bar(self.title, state.max_steps, "step", state.global_step)

    def show(self, record: StepRecord) -> None:
        """Advance the bar by one step."""
        if self.bar is not None:
            kept = f"kept {record.kept_fraction:.1%}, silenced {record.num_silenced}"
            self.bar.set_postfix_str(f"reward {record.reward:+.2f}, {kept}", refresh=False)
            self.bar.update()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Close the bar; its last state stays visible."""
        if self.bar is not None:
            self.bar.close()


class StopBetweenSteps(TrainerCallback):  # type: ignore[misc]
    """Finishes the current step after a signal to any rank, saves a checkpoint, and stops.

    The signals are SIGTERM and SIGINT, of which a second one ends the training at once, and the notice of
    a time limit.
    """

    def __init__(self) -> None:
        self.asked = False
        """Whether all ranks stop after this step."""
        self._signalled = False
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._ask)
        signal.signal(NOTICE, self._notice)

    def _ask(self, *_: Any) -> None:
        if self._signalled:
            raise KeyboardInterrupt
        self._signalled = True

    def _notice(self, *_: Any) -> None:
        # A scheduler may send it more than once.
        self._signalled = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop all ranks after this step, with a checkpoint of it."""
        self.asked = _any_rank(self._signalled)
        if self.asked:
            control.should_training_stop = control.should_save = True
            say(f"told to stop: saving step {state.global_step}")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Wait for all ranks: after the first one has ended, the launcher kills those that still save."""
        if self.asked:
            PartialState().wait_for_everyone()


def _any_rank(asked: bool) -> bool:
    """Return whether any rank was signalled: ranks may get a signal at different steps, or not at all."""
    state = PartialState()
    if state.num_processes == 1:
        return asked
    flag = torch.tensor(float(asked), device=state.device)
    torch.distributed.all_reduce(flag)
    return bool(flag > 0)


class KeepWeights(TrainerCallback):  # type: ignore[misc]
    """Writes the weights after the steps in `paths`, before the checkpoint of the step is written.

    `write` writes them to a directory; all ranks must call it.
    """

    def __init__(self, write: Callable[[Path], None], paths: Mapping[int, Path]) -> None:
        self.write, self.paths = write, paths

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the weights if they are kept after this step."""
        if state.global_step in self.paths:
            self.write(self.paths[state.global_step])
