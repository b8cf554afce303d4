"""Two ranks under FSDP2 as on GPUs: precision of what they compute, and groups of both models.

This is also the program of the ranks: two steps with a KL term on given responses.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

if __name__ == "__main__":
    sys.path += [str(Path(__file__).parents[2]), str(Path(__file__).parent)]
    import fsdp_on_cpu  # noqa: F401  Before anything starts Accelerate.
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.fsdp import FSDPModule
from training_jobs import run

from stapo.core.files import read_json
from stapo.core.trainer import StapoTrainer
from stapo.suite.training.run import leave

TENSORS, FACTS = "tensors.safetensors", "facts.json"
SEEN = ("completion_mask", "old_per_token_logps", "old_entropies", "ref_per_token_logps")


def in_bfloat16(values: torch.Tensor) -> float:
    """Return the share of values that bfloat16 holds exactly."""
    return (values == values.bfloat16().float()).float().mean().item()


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "computed"), [("no", "float32"), ("bf16", "bfloat16")])
def test_what_two_ranks_compute_and_have(world, tmp_path, precision, computed) -> None:
    from test_distributed import SHARDED, finish, start

    launch = [*SHARDED, "--mixed_precision", precision]
    finish(start(launch, world, tmp_path, program=Path(__file__)))
    step, facts = load_file(tmp_path / TENSORS), json.loads((tmp_path / FACTS).read_text())
    # Log-probs and entropies are not rounded: of numbers in single precision, one in 2^16 is by chance.
    mask = step["completion_mask"].bool()
    for name in SEEN[1:]:
        assert step[name].dtype == torch.float32
        assert in_bfloat16(step[name][mask]) < 0.01, name
    # Gradients are summed in float32: of two numbers of 8 bits, a third of the sums has 9 or more.
    assert step["gradient"].dtype == torch.float32
    assert in_bfloat16(step["gradient"][step["gradient"] != 0]) < 2 / 3
    # Before the first update the reference is the policy bit for bit, although its weights have fewer bits.
    assert facts["types"] == [["torch.float32"], [f"torch.{computed}"]]
    assert torch.equal(step["ref_per_token_logps"], step["old_per_token_logps"])
    assert read_json(tmp_path / "provenance.json")["residual_stream"] == computed
    # No rank gathers a whole model at once.
    policy, reference = facts["groups"]
    assert reference == policy
    assert sum(name.startswith("model.layers.") for name in reference) == 2


def main(world: str, out: str) -> None:
    from test_distributed import completions, rewards

    saved: dict[str, torch.Tensor] = {}
    found: dict[str, Any] = {}
    norm, accumulate = StapoTrainer._get_grad_norm, StapoTrainer._accumulate_gradients

    def look(self: Any, model: Any, inputs: Any) -> Any:
        if self.state.global_step == 0:
            saved.update({name: inputs[name].contiguous() for name in SEEN})
        return accumulate(self, model, inputs)

    def keep(self: Any, model: Any, grad_norm: Any = None) -> Any:
        if self.state.global_step == 0:
            parts = [one.grad.full_tensor().flatten() for one in model.parameters()]
            saved["gradient"] = torch.cat(parts)
        models = self.model, self.ref_model
        found["types"] = [sorted({str(p.dtype) for p in one.parameters()}) for one in models]
        found["groups"] = [
            [path for path, module in one.named_modules() if isinstance(module, FSDPModule)]
            for one in models
        ]
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
        save_file(saved, Path(out) / TENSORS)
        (Path(out) / FACTS).write_text(json.dumps(found))
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
