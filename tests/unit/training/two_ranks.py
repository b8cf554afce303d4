"""Program of the distributed tests: train on given responses and save what each step computed.

Usage: python two_ranks.py WORLD OUT MASKS CASE...   (also under `accelerate launch`)

MASKS is the OUT of an earlier run, or `-`. Its masks replace this run's own, which are saved all the same:
so the selections are compared, and then everything else under one selection. With PACKED=1 in the
environment, passes have no padding.
"""

import os
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

sys.path += [str(Path(__file__).parents[2]), str(Path(__file__).parent)]
import fsdp_on_cpu  # noqa: F401  Before anything starts Accelerate.
import torch
from safetensors.torch import load_file, save_file
from training_jobs import run, with_settings
from trl.generation.vllm_generation import VLLMGeneration

from stapo.training import update as update_module
from stapo.training.run import leave
from stapo.training.trainer import StapoTrainer

CASES: dict[str, dict[str, Any]] = {
    "stapo": {},
    "grpo": {},
    "20-entropy": {"statistics": "current"},
    "stapo-v2": {"statistics": "current", "micro_batch_tokens": 100_000},
    # A checkpoint would divide weights again that a pass has gathered.
    "justrl": {"checkpoint_every": 6},
}
FLAT = {"justrl": (2, 3)}
"""Case -> steps of the rollout in which all rewards are equal, so that there is no gradient."""
SAVED = "saved.safetensors"
SEEN = ("logps", "entropies", "advantages", "mask", "keep")
"""By a selection, and what it chose; everything else that is saved of a step is a gradient."""


def completions(self: StapoTrainer, prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
    """Random tokens that depend on the row of the rollout alone, so that any ranks train on the same."""
    if self.is_fsdp_enabled:
        # vLLM would get the weights here.
        sync = SimpleNamespace(
            accelerator=self.accelerator, _fix_param_name_to_vllm=lambda name, **_: name
        )
        weights = dict(VLLMGeneration._iter_fsdp2_params(sync, self.model))
        assert all(type(weight) is torch.Tensor for weight in weights.values())
    vocabulary = len(self.processing_class)
    first = self.accelerator.process_index * len(prompt_ids)
    found = []
    for row in range(first, first + len(prompt_ids)):
        generator = torch.Generator().manual_seed(1000 * self.state.global_step + row)
        length = int(torch.randint(1, 24, (), generator=generator))
        found.append(torch.randint(5, vocabulary, (length,), generator=generator).tolist())
    return found, None


def rewards(completions: Any, flat: int | None = None, **given: Any) -> list[float]:
    """Some groups without variance, whose sequences the update leaves out; all where the step is `flat`."""
    if given["trainer_state"].global_step == flat:
        return [1.0] * len(completions)
    texts = [conversation[-1]["content"] for conversation in completions]
    return [1.0 if len(text) % 3 == 0 else -1.0 for text in texts]


def main(world: str, out: str, masks: str, *cases: str) -> None:
    for case in cases:
        directory = Path(out) / case
        directory.mkdir(parents=True, exist_ok=True)
        saved: dict[str, torch.Tensor] = {}
        given = {} if masks == "-" else load_file(Path(masks) / case / SAVED)
        norm, select = StapoTrainer._get_grad_norm, update_module.select

        def keep_gradients(self: Any, model: Any, grad_norm: Any = None, saved=saved, norm=norm):
            for name, parameter in model.named_parameters():
                gradient = parameter.grad
                whole = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
                saved[f"{self.state.global_step}/{name.removeprefix('module.')}"] = whole.clone()
            return norm(self, model, grad_norm)

        def keep_mask(
            method: Any, logps: Any, entropies: Any, advantages: Any, mask: Any, step: int,
            saved=saved, given=given, select=select,
        ):  # fmt: skip
            # The seed of the trainings here is 0, so that of a step is its number.
            kept = select(method, logps, entropies, advantages, mask, step)
            if f"{step}/keep" in saved:
                return kept  # The meter's parts come after the mini-batch.
            seen = (logps, entropies, advantages, mask, kept)
            for name, values in zip(SEEN, seen, strict=True):
                saved[f"{step}/{name}"] = values.clone()
            return given.get(f"{step}/keep", kept)

        with (
            patch.object(StapoTrainer, "_generate_single_turn", completions),
            patch.object(StapoTrainer, "_get_grad_norm", keep_gradients),
            patch.object(update_module, "select", keep_mask),
            patch("training_jobs.parity_reward", partial(rewards, flat=FLAT.get(case, [None])[0])),
            with_settings(packed=os.environ.get("PACKED") == "1"),
        ):
            # A clip that large changes no gradient; tau_p is such that there are candidates.
            run(Path(world), directory, case, gradient_clip=1e9, **CASES[case])
        if os.environ.get("RANK", "0") == "0":
            save_file({k: v.contiguous() for k, v in saved.items()}, directory / SAVED)
    # As a training does: threads of a connection that is open at exit may end a process with a signal.
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
