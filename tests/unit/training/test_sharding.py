"""Two ranks under FSDP2 as on GPUs: precision of what they compute, groups of both models, timeout."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sharded_ranks import FACTS, SEEN, TENSORS
from test_distributed import finish, sharded, start
from torch import Tensor

from stapo.files import read_json

PROGRAM = Path(__file__).with_name("sharded_ranks.py")

pytestmark = pytest.mark.slow


def in_bfloat16(values: Tensor) -> float:
    """Return the share of values that bfloat16 holds exactly."""
    return (values == values.bfloat16().float()).float().mean().item()


@pytest.mark.parametrize(("precision", "computed"), [("no", "float32"), ("bf16", "bfloat16")])
def test_what_two_ranks_compute_and_have(world, tmp_path, precision, computed) -> None:
    finish(start([*sharded(), "--mixed_precision", precision], world, tmp_path, program=PROGRAM))
    step, facts = load_file(tmp_path / TENSORS), json.loads((tmp_path / FACTS).read_text())
    # Log-probs and entropies are not rounded: of numbers in single precision, one in 2^16 is by chance.
    mask = step["completion_mask"].bool()
    for name in SEEN[1:]:
        assert step[name].dtype == torch.float32
        assert in_bfloat16(step[name][mask]) < 0.01, name
    # Gradients are summed in float32: of two numbers of 8 bits, a third of the sums has 9 or more.
    gradients = [value.flatten() for name, value in step.items() if name.startswith("gradient/")]
    whole = torch.cat(gradients)
    assert whole.dtype == torch.float32
    assert in_bfloat16(whole[whole != 0]) < 2 / 3
    # Before the first update the reference is the policy bit for bit, although its weights have fewer bits.
    assert facts["types"] == [["torch.float32"], [f"torch.{computed}"]]
    assert torch.equal(step["ref_per_token_logps"], step["old_per_token_logps"])
    # The residual stream has the type of the computation, and is recorded.
    assert facts["residual_stream"] == [f"torch.{computed}"]
    assert read_json(tmp_path / "provenance.json")["residual_stream"] == computed
    # No rank gathers a whole model at once.
    policy, reference = facts["groups"]
    assert reference == policy
    assert sum(name.startswith("model.layers.") for name in reference) == 2
