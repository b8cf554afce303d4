"""A GRPOTrainer with sealed step checkpoints, which contain the rollout, and attempts to train from them."""

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from safetensors.torch import load_file, save_file
from transformers import Trainer
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from stapo.files import append_jsonl, read_jsonl, replace_file
from stapo.provenance import damaged_file, energy_joules
from stapo.training.ranks import say
from stapo.training.step_checkpoints import (
    ASIDE,
    checksums_of_rank,
    newest_whole,
    put_in_place,
    seal,
    step_of,
)

ATTEMPTS = "attempts.jsonl"
ROLLOUT_FILE = "rollout.safetensors"
"""File with the whole rollout, in checkpoints from the middle of a rollout."""


class ResumableTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer that saves and loads sealed checkpoints.

    TRL's `_step` and `_buffered_inputs` are the position in the rollout. The arguments are those of
    GRPOTrainer; the settings must have a `run_fingerprint`.
    """

    logs: tuple[Path, ...] = ()
    """Files that are copied into every checkpoint, if they exist."""
    _buffered_inputs: Any

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write the checkpoint to a temporary directory, seal and rename it; then remove older ones."""
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
            self._save_rollout(written)
            for log in self.logs:
                if log.exists():
                    shutil.copyfile(log, written / log.name)
        self.accelerator.wait_for_everyone()
        rank, num_processes = self.accelerator.process_index, self.accelerator.num_processes
        files = gather_object([checksums_of_rank(written, rank, num_processes)])
        if main:
            seal(
                written, self.checkpoint_identity(), {k: v for one in files for k, v in one.items()}
            )
            put_in_place(written, output, limit)
            shutil.rmtree(aside, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def _save_rollout(self, checkpoint: Path) -> None:
        """Write the rollout if it has mini-batches left; every rank holds the whole rollout."""
        if self._step % self.args.steps_per_generation:
            parts = self._buffered_inputs
            names = [name for name, value in parts[0].items() if value is not None]
            whole = {name: torch.cat([part[name] for part in parts]) for name in names}
            save_file(whole, checkpoint / ROLLOUT_FILE)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Load the random state, which the Trainer loads last, and the current rollout."""
        super()._load_rng_state(checkpoint)
        if checkpoint is None:
            return
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

    Args:
        trainer: trainer of the run.
        work: directory of the run.
        kept: step -> directory of the weights that are kept after it; a step whose weights are missing or
            damaged is done again.
        study: the resolved study, for the record of attempts; the command names its file, which is not kept.
    """
    found: list[Path | None] = [None]
    if PartialState().is_main_process:  # It chooses for all processes.
        lost = [step for step, path in kept.items() if not path.exists() or damaged_file(path)]
        before = min(lost, default=None)
        found = [newest_whole(work, trainer.checkpoint_identity(), say, before)]
        _restore_logs(trainer.logs, found[0])
        done, steps = step_of(found[0]) if found[0] else 0, trainer.args.max_steps
        say(
            f"resuming after step {done} of {steps}" if done else f"training from step 0 of {steps}"
        )
    broadcast_object_list(found)
    resume = found[0]
    with _attempt(work, step_of(resume) if resume else 0, study):
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)


def _restore_logs(logs: tuple[Path, ...], resume: Path | None) -> None:
    """Remove the records of later steps than that of the checkpoint."""
    for log in logs:
        # A checkpoint has none of what is recorded only since a later step.
        if resume and (resume / log.name).exists():
            with replace_file(log, "wb") as stream:
                stream.write((resume / log.name).read_bytes())
        else:
            log.unlink(missing_ok=True)


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
