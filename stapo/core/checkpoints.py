"""Step checkpoints, with the rollout in use, and how a training goes on from them.

A checkpoint is written to a temporary directory, sealed, and renamed: a kill at any moment leaves either the
old checkpoint, or the old and the new one. The seal lists every file with its SHA-256, and contains a
checksum of itself. A checkpoint that was truncated or changed later (by a full disk, an interrupted copy, a
flipped bit), or that belongs to another run, is detected and skipped.

These are for resuming; weights for evaluation are written elsewhere.
"""

import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from safetensors.torch import load_file, save_file
from transformers import Trainer
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from stapo.core.attempts import attempt
from stapo.core.checksums import changed_files, damaged_file, file_sums
from stapo.core.files import (
    checkpoint_interval,
    content_of,
    fingerprint,
    json_text,
    read_json,
    sync,
    write,
    write_json,
)
from stapo.core.ranks import say

ROLLOUT_FILE = "rollout.safetensors"
"""File with the whole rollout, in checkpoints from the middle of a rollout."""
STATE_FILE = "penalty.json"
SEAL = "seal.json"
ASIDE = "writing"


class ResumableTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer that saves and loads sealed checkpoints.

    TRL's `_step` and `_buffered_inputs` are the position in the rollout. The arguments are those of
    GRPOTrainer; the settings must have a `run_fingerprint`.
    """

    logs: tuple[Path, ...] = ()
    """Files that are copied into every checkpoint, if they exist."""
    penalty_state: Mapping[str, float] | None = None
    """What the penalty of the method remembers from step to step."""
    _buffered_inputs: Any
    _saved_at: float | None = None
    _saving_seconds = 0.0

    def is_checkpoint_due(self) -> bool:
        """Return whether the last checkpoint, or the first question, is long ago; ranks may differ."""
        now = time.monotonic()
        if self._saved_at is None:
            self._saved_at = now
        return now - self._saved_at >= checkpoint_interval(self._saving_seconds)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write the checkpoint to a temporary directory, seal and rename it; then remove older ones."""
        started = time.monotonic()
        output, main = Path(self.args.output_dir), self.accelerator.is_main_process
        aside = output / ASIDE
        if main:
            shutil.rmtree(aside, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        self.args.output_dir = str(aside)
        try:
            # Not by GRPOTrainer's method, which would add a model card to every checkpoint.
            Trainer._save_checkpoint(self, model, trial)
        finally:
            self.args.output_dir, self.args.save_total_limit = str(output), limit
        written = aside / f"checkpoint-{self.state.global_step}"
        if main:
            if self._step % self.args.steps_per_generation:
                # The rollout has mini-batches left; every rank holds the whole of it.
                parts = self._buffered_inputs
                names = [name for name, value in parts[0].items() if value is not None]
                whole = {name: torch.cat([part[name] for part in parts]) for name in names}
                save_file(whole, written / ROLLOUT_FILE)
            for log in self.logs:
                if log.exists():
                    shutil.copyfile(log, written / log.name)
            if self.penalty_state:
                write_json(written / STATE_FILE, dict(self.penalty_state))
        self.accelerator.wait_for_everyone()
        if main:
            seal(written, self.checkpoint_identity())
            put_in_place(written, output, limit)
            shutil.rmtree(aside, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self._saved_at = time.monotonic()
        self._saving_seconds = self._saved_at - started

    def get_batch_samples(self, *given: Any) -> tuple[list[Any], Any]:
        """Return nothing after the last step; the Trainer would make one more before it looks."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return [], None
        samples: tuple[list[Any], Any] = super().get_batch_samples(*given)
        return samples

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Load the random state, which the Trainer loads last, and the current rollout."""
        super()._load_rng_state(checkpoint)
        if checkpoint is None:
            return
        state = Path(checkpoint) / STATE_FILE
        self.penalty_state = read_json(state) if state.exists() else None
        slices, self._step = self.args.steps_per_generation, step_of(Path(checkpoint))
        self._buffered_inputs = None
        if self._step % slices:
            whole = load_file(Path(checkpoint) / ROLLOUT_FILE, device=str(self.accelerator.device))
            self._buffered_inputs = split_tensor_dict(whole, slices)

    def checkpoint_identity(self) -> dict[str, Any]:
        """Return the properties that a checkpoint must have so that this trainer can resume from it."""
        return {
            "fingerprint": self.args.run_fingerprint,
            "layout": "FSDP" if self.is_fsdp_enabled else "whole states",
            "num_processes": self.accelerator.num_processes,
        }


def train_from_newest(
    trainer: ResumableTrainer,
    work: Path,
    kept: Mapping[int, Path],
    study: dict[str, Any] | None = None,
) -> None:
    """Train from the newest whole checkpoint, or from the base model without any.

    `kept` has the directories of weights by step; a step whose weights are missing or damaged is done again.
    The resolved study is for the record of attempts: the command names its file, which is not kept.
    """
    chosen: list[Path | None] = [None]
    if PartialState().is_main_process:  # It chooses for all processes.
        lost = [step for step, path in kept.items() if not path.exists() or damaged_file(path)]
        chosen = [newest_whole(work, trainer.checkpoint_identity(), min(lost, default=None))]
        for log in trainer.logs:  # Without the records of later steps than that of the checkpoint.
            # A checkpoint has none of what is recorded only since a later step.
            if chosen[0] and (chosen[0] / log.name).exists():
                write(log, (chosen[0] / log.name).read_bytes())
            else:
                log.unlink(missing_ok=True)
    broadcast_object_list(chosen)
    resume = chosen[0]
    done, steps = step_of(resume) if resume else 0, trainer.args.max_steps
    say(f"resuming after step {done} of {steps}" if done else f"training from step 0 of {steps}")
    with attempt(work, done, study):
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)


def step_checkpoints(directory: Path) -> list[Path]:
    """Return the step checkpoints of a directory, the newest last."""
    checkpoints = [path for path in directory.glob("checkpoint-*") if path.name[11:].isdigit()]
    return sorted(checkpoints, key=step_of)


def step_of(checkpoint: Path) -> int:
    """Return the optimiser step after which a checkpoint was written."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def seal(directory: Path, identity: dict[str, Any]) -> None:
    """Flush a completely written checkpoint to the disk, with a seal of its files and the run's identity."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    sums = file_sums(directory, [path.relative_to(directory).as_posix() for path in paths])
    files = {
        name: {"bytes": (directory / name).stat().st_size, "sha256": sha}
        for name, sha in sums.items()
    }
    record = {**identity, "step": step_of(directory), "files": files}
    record["checksum"] = fingerprint(record)
    (directory / SEAL).write_text(json_text(record), encoding="utf-8")
    for path in (*directory.rglob("*"), directory):
        sync(path)


def put_in_place(aside: Path, output: Path, keep: int | None) -> None:
    """Rename a sealed checkpoint into `output`, then remove all but the last `keep` checkpoints.

    Checkpoints of later steps were skipped when the run was resumed: they are neither counted nor removed.
    """
    target = output / aside.name
    shutil.rmtree(target, ignore_errors=True)
    os.replace(aside, target)
    sync(output)
    if keep:
        done = [path for path in step_checkpoints(output) if step_of(path) <= step_of(target)]
        for old in done[:-keep]:
            shutil.rmtree(old)


def newest_whole(
    directory: Path, identity: dict[str, Any], before: int | None = None
) -> Path | None:
    """Return the newest checkpoint to resume from, of a step below `before`; print what is skipped."""
    for checkpoint in reversed(step_checkpoints(directory)):
        if before is not None and step_of(checkpoint) >= before:
            continue
        fault = _fault(checkpoint, identity)
        if fault is None:
            return checkpoint
        say(f"{checkpoint}: skipped, {fault}")
    return None


def _fault(checkpoint: Path, identity: dict[str, Any]) -> str | None:
    """Return why a run cannot be resumed from a checkpoint, None if it can."""
    try:
        record = json.loads(content_of(checkpoint / SEAL).decode())
        checksum = record.pop("checksum")
        files, stored = record["files"], record["layout"]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return "incomplete: it has no seal"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "truncated or corrupt: its seal is unreadable, or of an earlier version"
    if checksum != fingerprint(record):
        return "truncated or corrupt: its seal was changed"
    if (record["fingerprint"], record["step"]) != (identity["fingerprint"], step_of(checkpoint)):
        return "written by another run, or for another step"
    if stored != identity["layout"]:
        raise ValueError(
            f"{checkpoint}: written with {stored}, but this launch uses {identity['layout']}; use the launch "
            "configuration with which the training was started"
        )
    for name, stated in files.items():
        path = checkpoint / name
        if not path.is_file() or path.stat().st_size != stated["bytes"]:
            return f"truncated or corrupt: {name} is missing or has another size"
    changed = changed_files(checkpoint, {name: stated["sha256"] for name, stated in files.items()})
    return f"truncated or corrupt: {changed[0]} was changed" if changed else None
