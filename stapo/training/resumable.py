"""A GRPOTrainer with sealed step checkpoints, which contain the rollout and load on all ranks or on none."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.api import CheckpointException
from transformers import Trainer
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from stapo.training.step_checkpoints import (
    ASIDE,
    STATES_PER_PARAMETER,
    UnreadableCheckpointError,
    checksums_of_rank,
    put_in_place,
    require_space,
    seal,
    step_of,
)

ROLLOUT_FILE = "rollout.safetensors"
"""File with the whole rollout, in checkpoints from the middle of a rollout."""
NOT_THE_CHECKPOINTS = (
    MemoryError, torch.OutOfMemoryError, torch.AcceleratorError, torch.distributed.DistError,
)  # fmt: skip
"""Errors of the machine, not of the checkpoint that is loaded; loading an older one would not help."""


class ResumableTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer that saves and loads sealed checkpoints.

    TRL's `_step` and `_buffered_inputs` are the position in the rollout. The arguments are those of
    GRPOTrainer; the settings must have a `run_fingerprint`.
    """

    logs: tuple[Path, ...] = ()
    """Files that are copied into every checkpoint, if they exist."""
    _buffered_inputs: Any

    # Saving

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write the checkpoint to a temporary directory, seal and rename it; then remove older ones."""
        output, main = Path(self.args.output_dir), self.accelerator.is_main_process
        parameters = sum(p.numel() * p.element_size() for p in self.model.parameters())
        require_space(output, STATES_PER_PARAMETER * parameters)
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

    # Resuming

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        load = super()._load_from_checkpoint
        self._load(resume_from_checkpoint, lambda: load(resume_from_checkpoint, model))

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Warn of missing keys, but for those of tied weights, which are saved under another name."""
        tied = self.model._tied_weights_keys if self.model.config.tie_word_embeddings else ()
        missing = [name for name in load_result.missing_keys if name not in (tied or ())]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        load = super()._load_optimizer_and_scheduler
        self._load(checkpoint, lambda: load(checkpoint))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Load the random state, which the Trainer loads last, and the current rollout."""
        load = super()._load_rng_state
        self._load(checkpoint, lambda: load(checkpoint))
        self._load(checkpoint, lambda: self._load_rollout(checkpoint))

    def _load_rollout(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        slices, self._step = self.args.steps_per_generation, step_of(Path(checkpoint))
        self._buffered_inputs = None
        if self._step % slices:
            whole = load_file(Path(checkpoint) / ROLLOUT_FILE, device=str(self.accelerator.device))
            self._buffered_inputs = split_tensor_dict(whole, slices)

    def _load(self, checkpoint: str | None, load: Callable[[], Any]) -> None:
        """Load a part of a checkpoint; if this fails on one rank, raise an error on all of them."""
        fault = None
        try:
            load()
        except NOT_THE_CHECKPOINTS:
            raise
        except (Exception, CheckpointException) as error:  # CheckpointException is no Exception.
            causes = list(getattr(error, "failures", {}).values())  # One for each rank that failed.
            cause = causes[0][0] if causes else error
            fault = f"{type(cause).__name__}: {' '.join(str(cause).split())[:120]}"
        faults = [one for one in gather_object([fault]) if one]
        if faults:
            raise UnreadableCheckpointError(f"cannot be loaded: {faults[0]}")

    def checkpoint_identity(self) -> dict[str, Any]:
        """Return the properties that a checkpoint must have so that this trainer can resume from it."""
        return {
            "fingerprint": self.args.run_fingerprint,
            "layout": "FSDP" if self.is_fsdp_enabled else "whole states",
            "num_processes": self.accelerator.num_processes,
        }
