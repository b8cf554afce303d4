"""Where a training goes on: from the newest checkpoint that is whole and can be loaded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from stapo.files import replace_file
from stapo.provenance import damaged_file
from stapo.training.checkpoints import (
    UnreadableCheckpointError,
    checkpoints,
    newest_whole,
    step_of,
)
from stapo.training.record import METRICS, attempt
from stapo.training.trainer import StapoTrainer


def train_from_newest(
    trainer: StapoTrainer, work: Path, kept: Mapping[int, Path], study: dict[str, Any] | None = None
) -> None:
    """Train from the newest checkpoint that can be loaded, or from the base model where there is none.

    Raises:
        RuntimeError: there are whole checkpoints, and none of them can be loaded.
    """
    resume = _newest(trainer, work, before=_again(kept, work))
    while True:
        _announce(resume, work, trainer.args.max_steps)
        try:
            with attempt(work, step_of(resume) if resume else 0, study):
                trainer.train(resume_from_checkpoint=str(resume) if resume else None)
            return
        except UnreadableCheckpointError as error:
            assert resume is not None
            say(f"{resume}: skipped, {error}")
            older = _newest(trainer, work, before=step_of(resume))
            if older is None:
                # Its checksums are right: other packages wrote it, or the machine cannot read it now.
                # Days of training are not started again for that.
                raise RuntimeError(
                    f"{resume}: {error}; no older checkpoint is left: run it again with the packages that "
                    "wrote it, or remove it to train from step 0"
                ) from error
            resume = older


def _again(kept: Mapping[int, Path], work: Path) -> int | None:
    """Return the first step that must be done again, since its weights are wanted and not there."""
    if not PartialState().is_main_process:
        return None
    for step, path in sorted(kept.items()):
        fault = f"{path} is missing"
        if path.exists():
            name = damaged_file(path)
            fault = f"{path / name} is truncated or corrupt" if name else ""
        if fault:
            if any(step_of(checkpoint) >= step for checkpoint in checkpoints(work)):
                which = f"{work}: checkpoints from step {step} on"
                say(f"{which}: skipped, step {step} must be done again: {fault}")
            return step
    return None


def _newest(trainer: StapoTrainer, work: Path, before: int | None) -> Path | None:
    """Return the checkpoint to continue from, the main process's choice for all."""
    found: list[Path | None] = [None]
    if trainer.accelerator.is_main_process:
        found = [newest_whole(work, trainer.checkpoint_identity(), say, before)]
    broadcast_object_list(found)
    return found[0]


def _announce(resume: Path | None, work: Path, steps: int) -> None:
    """Say from where the training goes on, and take back the records of steps that are done again."""
    if not PartialState().is_main_process:
        return
    if resume is None:
        (work / METRICS).unlink(missing_ok=True)
        if checkpoints(work):
            say("no checkpoint is left to continue from: training starts at step 0")
        return
    with replace_file(work / METRICS, "wb") as stream:
        stream.write((resume / METRICS).read_bytes())
    done = step_of(resume)
    say(
        f"resuming after step {done} of {steps}"
        if done < steps
        else f"all {done} steps were done before: nothing to train, publishing their result"
    )


def say(line: str) -> None:
    """Print a line, once for all processes."""
    if PartialState().is_main_process:
        print(line, flush=True)  # noqa: T201
