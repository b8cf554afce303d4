"""Program of the sharding test: two steps with a KL term on given responses, and what a rank then has.

Usage: python sharded_ranks.py WORLD OUT   (under `accelerate launch`, with two processes)
"""

import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path += [str(Path(__file__).parents[2]), str(Path(__file__).parent)]
import fsdp_on_cpu  # noqa: F401  Before anything starts Accelerate.
import torch
from safetensors.torch import save_file
from torch.distributed.fsdp import FSDPModule
from training_jobs import run
from two_ranks import completions, rewards

from stapo.training.run import leave
from stapo.training.trainer import StapoTrainer

TENSORS, FACTS = "tensors.safetensors", "facts.json"
SEEN = ("completion_mask", "old_per_token_logps", "old_entropies", "ref_per_token_logps")


def types(model: Any) -> list[str]:
    return sorted({str(parameter.dtype) for parameter in model.parameters()})


def groups(model: Any) -> list[str]:
    """Return the modules whose weights are gathered together."""
    return [path for path, module in model.named_modules() if isinstance(module, FSDPModule)]


def main(world: str, out: str) -> None:
    saved: dict[str, torch.Tensor] = {}
    found: dict[str, Any] = {}
    outputs: set[str] = set()
    norm, accumulate = StapoTrainer._get_grad_norm, StapoTrainer._accumulate_gradients

    def look(self: Any, model: Any, inputs: Any) -> Any:
        if self.state.global_step == 0:
            saved.update({name: inputs[name].clone() for name in SEEN})
        return accumulate(self, model, inputs)

    def keep(self: Any, model: Any, grad_norm: Any = None) -> Any:
        if self.state.global_step == 0:
            for name, parameter in model.named_parameters():
                saved[f"gradient/{name}"] = parameter.grad.full_tensor().clone()
            # Behind FSDP2's own hook, which could change the type.
            self.model.get_decoder().layers[0].register_forward_hook(
                lambda _, __, output: outputs.add(str(output.dtype))
            )
        models = self.model, self.ref_model
        found["types"], found["groups"] = [*map(types, models)], [*map(groups, models)]
        found["residual_stream"] = sorted(outputs)
        return norm(self, model, grad_norm)

    with (
        patch.object(StapoTrainer, "_generate_single_turn", completions),
        patch.object(StapoTrainer, "_get_grad_norm", keep),
        patch.object(StapoTrainer, "_accumulate_gradients", look),
        patch("training_jobs.parity_reward", rewards),
    ):
        # One pass per rank and step, so that a step's gradient is one sum over ranks.
        run(Path(world), Path(out), "grpo", steps=2, micro_batch_tokens=100_000, gradient_clip=1e9)
    if os.environ["RANK"] == "0":
        save_file({k: v.contiguous() for k, v in saved.items()}, Path(out) / TENSORS)
        (Path(out) / FACTS).write_text(json.dumps(found))
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
