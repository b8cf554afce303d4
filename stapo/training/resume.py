"""Attempts to train: each resumes from the newest step checkpoint that is complete and can be loaded."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from stapo.files import append_jsonl, read_jsonl, replace_file
from stapo.provenance import damaged_file, energy_joules
from stapo.training.ranks import say
from stapo.training.step_checkpoints import (
    UnreadableCheckpointError,
    newest_whole,
    step_checkpoints,
    step_of,
)
from stapo.training.trainer import StapoTrainer

ATTEMPTS = "attempts.jsonl"


def train_from_newest(
    trainer: StapoTrainer, work: Path, kept: Mapping[int, Path], study: dict[str, Any] | None = None
) -> None:
    """Train from the newest checkpoint that can be loaded, or from the base model without any checkpoint.

    Args:
        trainer: trainer of the run.
        work: directory of the run.
        kept: step -> directory of the weights that are kept after it.
        study: the resolved study, for the record of attempts; the command names its file, which is not kept.

    Raises:
        RuntimeError: there are complete checkpoints, but none of them can be loaded.
    """
    resume = _newest(trainer, work, before=_step_to_repeat(kept, work))
    while True:
        _restore_logs(trainer.logs, resume, work, trainer.args.max_steps)
        try:
            with _attempt(work, step_of(resume) if resume else 0, study):
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


def _restore_logs(logs: tuple[Path, ...], resume: Path | None, work: Path, steps: int) -> None:
    """Print the step after which the training continues, and remove the records of later steps."""
    if not PartialState().is_main_process:
        return
    for log in logs:
        # A checkpoint has none of what is recorded only since a later step.
        if resume and (resume / log.name).exists():
            with replace_file(log, "wb") as stream:
                stream.write((resume / log.name).read_bytes())
        else:
            log.unlink(missing_ok=True)
    if resume is None:
        if step_checkpoints(work):
            say("no checkpoint can be used: training starts at step 0")
        return
    done, all_done = step_of(resume), step_of(resume) >= steps
    nothing = f"all {done} steps were done before: nothing to train, publishing the result"
    say(nothing if all_done else f"resuming after step {done} of {steps}")


@contextmanager
def _attempt(work: Path, first_step: int, study: dict[str, Any] | None) -> Iterator[None]:
    """Record an attempt to train: a line at the start, and another with time and energy at the end.

    An attempt that is killed leaves only the first line.
    """
    state = PartialState()
    started, before = time.monotonic(), energy_joules()
    record: dict[str, Any] = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "after_step": first_step,
        "command": [Path(sys.executable).name, "-m", "stapo", *sys.argv[1:]],
        "host": os.uname().nodename,
        "processes": state.num_processes,
        **({} if study is None else {"study": study}),
    }
    if state.is_main_process:
        attempts(work)  # Report a damaged line now, not after the last step.
        append_jsonl(work / ATTEMPTS, record)
    yield
    after = energy_joules()
    used = None if before is None or after is None else after - before
    everywhere: list[float | None] = gather_object([used])
    if state.is_main_process:
        joules = [part for part in everywhere if part is not None]
        record["seconds"] = time.monotonic() - started
        # With one rank without an energy meter, the sum would be too small.
        record["joules"] = sum(joules) if len(joules) == len(everywhere) else None
        append_jsonl(work / ATTEMPTS, record)


def attempts(work: Path) -> list[dict[str, Any]]:
    """Return one record for each attempt; attempts that were killed have no `seconds`."""
    found: dict[str, dict[str, Any]] = {}
    for record in read_jsonl(
        work / ATTEMPTS,
        "remove this line; its attempt is then not counted, and `stapo verify` may report it as missing",
    ):
        found[f"{record['started']} {record['after_step']}"] = record
    return list(found.values())
