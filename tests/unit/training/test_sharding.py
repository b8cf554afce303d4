"""Two ranks under FSDP2 as on GPUs: precision of what they compute, groups of both models, timeout."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from sharded_ranks import FACTS, SEEN, TENSORS
from test_distributed import finish, sharded, start
from torch import Tensor
from transformers import PreTrainedModel

from stapo.models.loading import load_model, load_tokenizer
from stapo.training.config import StapoConfig
from stapo.training.sharding import TIMEOUT
from stapo.training.trainer import StapoTrainer

PROGRAM = Path(__file__).with_name("sharded_ranks.py")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["no", "bf16"])
def ranks(request, world, tmp_path_factory) -> Any:
    """What two ranks have: mixed precision, tensors of the first step, facts."""
    out = tmp_path_factory.mktemp(request.param)
    launch = [*sharded(), "--mixed_precision", request.param]
    finish(start(launch, world, out, program=PROGRAM))
    tensors = load_file(out / TENSORS)
    step = {name[2:]: value for name, value in tensors.items() if name.startswith("0/")}
    return request.param, step, json.loads((out / FACTS).read_text())


def in_bfloat16(values: Tensor) -> float:
    """Return the share of values that bfloat16 holds exactly."""
    return (values == values.bfloat16().float()).float().mean().item()


def test_log_probs_and_entropies_are_not_rounded(ranks) -> None:
    _, step, _ = ranks
    mask = step["completion_mask"].bool()
    for name in SEEN[1:]:
        assert step[name].dtype == torch.float32
        # Of numbers in single precision, one in 2^16 by chance.
        assert in_bfloat16(step[name][mask]) < 0.01, name


def test_gradients_are_summed_in_float32(ranks) -> None:
    """The sum of two numbers of 8 bits has 9 or more in at least a third of the cases."""
    _, step, _ = ranks
    gradients = [value for name, value in step.items() if name.startswith("gradient/")]
    whole = torch.cat([gradient.flatten() for gradient in gradients])
    assert whole.dtype == torch.float32
    assert in_bfloat16(whole[whole != 0]) < 2 / 3


def test_before_the_first_update_the_reference_is_the_policy_bit_for_bit(ranks) -> None:
    """Also in bfloat16, although the policy's weights are float32 and have more bits."""
    precision, step, facts = ranks
    assert facts["types"]["policy"] == ["torch.float32"]
    reference = "torch.bfloat16" if precision == "bf16" else "torch.float32"
    assert facts["types"]["reference"] == [reference]
    assert facts["frozen"]
    assert torch.equal(step["ref_per_token_logps"], step["old_per_token_logps"])


def test_the_residual_stream_has_the_type_of_the_computation_and_is_recorded(ranks) -> None:
    precision, _, facts = ranks
    expected = "bfloat16" if precision == "bf16" else "float32"
    assert facts["residual_stream"] == [f"torch.{expected}"]
    assert facts["record"]["residual_stream"] == expected


def test_the_reference_has_the_groups_of_the_policy(ranks) -> None:
    """No rank gathers a whole model at once."""
    groups = ranks[2]["groups"]
    assert groups["reference"] == groups["policy"]
    layers = [name for name in groups["reference"] if name.startswith("model.layers.")]
    assert len(layers) == 2


def test_every_process_group_has_the_timeout(ranks) -> None:
    assert set(ranks[2]["timeouts"]) == {TIMEOUT.total_seconds()}


def test_no_model_is_distributed_over_the_gpus_of_a_process(world, tmp_path, monkeypatch) -> None:
    """TRL asks for it where a process has a GPU."""
    asked = []
    load = PreTrainedModel.from_pretrained.__func__

    def from_pretrained(kind: Any, *args: Any, **named: Any) -> Any:
        asked.append(named)
        return load(kind, *args, **{**named, "device_map": None})

    policy = load_model(world / "base", torch.float32)
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(from_pretrained))
    on_a_gpu = SimpleNamespace(device=torch.device("cuda"))
    monkeypatch.setattr("trl.trainer.utils.PartialState", lambda: on_a_gpu)
    args = StapoConfig(str(tmp_path), method="grpo", use_cpu=True, bf16=False, report_to=[])
    rows = Dataset.from_list([{"prompt": "1"}] * 8)
    trainer = StapoTrainer(
        policy, lambda **_: [], args, rows, processing_class=load_tokenizer(world / "base")
    )
    assert trainer.beta > 0
    (reference,) = asked
    assert reference.get("device_map") is None
    assert reference["use_safetensors"] is True
    assert not trainer.ref_model.training
    for ours, theirs in zip(trainer.ref_model.parameters(), policy.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert ours is not theirs
