"""Resuming a training from its newest step checkpoint that is complete and can be loaded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from stapo.files import replace_file
from stapo.paths import METRICS_FILE, TOKENS_LOG
from stapo.provenance import damaged_file
from stapo.training.record import attempt
from stapo.training.step_checkpoints import (
    UnreadableCheckpointError,
    newest_whole,
    step_checkpoints,
    step_of,
)
from stapo.training.trainer import StapoTrainer

LOGS = (METRICS_FILE, TOKENS_LOG)
"""Logs of the completed steps, which every checkpoint contains as they were after its step."""


def train_from_newest(
    trainer: StapoTrainer, work: Path, kept: Mapping[int, Path], study: dict[str, Any] | None = None
) -> None:
    """Train from the newest checkpoint that can be loaded, or from the base model without any checkpoint.

    Args:
        trainer: trainer of the run.
        work: directory of the run.
        kept: step -> directory of the weights that are kept after it.
        study: the resolved study, for the record of attempts.

    Raises:
        RuntimeError: there are complete checkpoints, but none of them can be loaded.
    """
    resume = _newest(trainer, work, before=_step_to_repeat(kept, work))
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
                # Its checksums are correct: it was written with other packages, or the machine has a
                # temporary problem. This must not restart days of training from step 0.
                raise RuntimeError(
                    f"{resume}: {error}; there is no older checkpoint: use the package versions that wrote "
                    "it, or remove it to train from step 0"
                ) from error
            resume = older


def _step_to_repeat(kept: Mapping[int, Path], work: Path) -> int | None:
    """Return the first step whose kept weights are missing or damaged, so that it must be done again."""
    if not PartialState().is_main_process:
        return None
    for step, path in sorted(kept.items()):
        fault = f"{path} is missing"
        if path.exists():
            name = damaged_file(path)
            fault = f"{path / name} is truncated or corrupt" if name else ""
        if fault:
            if any(step_of(checkpoint) >= step for checkpoint in step_checkpoints(work)):
                which = f"{work}: checkpoints from step {step} on"
                say(f"{which}: skipped, step {step} must be done again: {fault}")
            return step
    return None


def _newest(trainer: StapoTrainer, work: Path, before: int | None) -> Path | None:
    """Return the checkpoint to resume from, chosen by the main process for all processes."""
    found: list[Path | None] = [None]
    if trainer.accelerator.is_main_process:
        found = [newest_whole(work, trainer.checkpoint_identity(), say, before)]
    broadcast_object_list(found)
    return found[0]


def _announce(resume: Path | None, work: Path, steps: int) -> None:
    """Print the step after which the training continues, and remove the records of later steps."""
    if not PartialState().is_main_process:
        return
    if resume is None:
        for name in LOGS:
            (work / name).unlink(missing_ok=True)
        if step_checkpoints(work):
            say("no checkpoint can be used: training starts at step 0")
        return
    for name in LOGS:
        if (resume / name).exists():
            with replace_file(work / name, "wb") as stream:
                stream.write((resume / name).read_bytes())
        else:  # Tokens are recorded only since a later step.
            (work / name).unlink(missing_ok=True)
    done = step_of(resume)
    say(
        f"resuming after step {done} of {steps}"
        if done < steps
        else f"all {done} steps were done before: nothing to train, publishing the result"
    )


def say(line: str) -> None:
    """Print a line on the main process only."""
    if PartialState().is_main_process:
        print(line, flush=True)  # noqa: T201
