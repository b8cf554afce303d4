"""Peak memory of a training as torch's own trackers see it: shapes only, no GPU, nothing allocated.

The model, its sharding and its head are those of a training on GPUs: Accelerate's groups of FSDP2, TRL's
head in tiles, gradient checkpointing, packed sequences, AdamW in float32. A tracked number leaves out
what a tracker cannot see: CUDA's context, NCCL's buffers, fragmentation, vLLM.

Triton's kernels write into what they are given, so they are replaced by functions that do nothing; their
substitute in torch for CPUs would allocate.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed import fsdp
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker, _FSDPModMemStats
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn.attention.varlen import varlen_attn
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from trl.kernels import chunked_logprob
from trl.trainer.utils import add_fused_lm_head

from stapo.models.shapes import Shape
from stapo.training import head
from stapo.training.head import log_probs_of

UNSEEN = ("reserved", "responses", "vLLM", "vLLM asleep")
"""Parts of the estimate that a tracker of tensors of the model does not see."""
CPU = torch.device("cpu")
PACKED = "packed-for-tracking"


def packed_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """Attend within one packed row, as an attention function of Transformers."""
    rows = (states.squeeze(0).transpose(0, 1).to(value.dtype) for states in (query, key, value))
    ends, tokens = torch.zeros(2, dtype=torch.int32), query.shape[2]
    causal: dict[str, Any] = {"window_size": (-1, 0), "scale": scaling, "enable_gqa": True}
    return varlen_attn(*rows, ends, ends, tokens, tokens, **causal).unsqueeze(0), None


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, lambda *_, **__: None)


@contextmanager
def ranks(number: int) -> Iterator[DeviceMesh | None]:
    """Pretend to be rank 0 of a process group; None for one process."""
    if number == 1:
        yield None
        return
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=number)
    try:
        yield init_device_mesh("cpu", (number,), mesh_dim_names=("fsdp",))
    finally:
        dist.destroy_process_group()


@contextmanager
def like_triton() -> Iterator[None]:
    """Let the tiles of TRL's head allocate as little as its kernels on GPUs do."""
    nothing = dict.fromkeys(("_forward_tile", "_backward_tile", "_addmm_fp32"), _nothing)
    with patch.multiple(chunked_logprob, **nothing), patch.object(head, "_multiply", _nothing):
        yield


def _nothing(*_: Any, **__: Any) -> None:
    return None


def qwen3(shape: Shape, dtype: torch.dtype = torch.float32) -> Qwen3ForCausalLM:
    """Return a model of that shape, with the attention of packed rows."""
    config = Qwen3Config(
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=32768,
        attn_implementation=PACKED,
    )
    model: Qwen3ForCausalLM = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model


def sharded(model: Qwen3ForCausalLM, mesh: DeviceMesh | None) -> Qwen3ForCausalLM:
    """Shard a model as Accelerate does: bf16 parameters in passes, gradients reduced in float32."""
    if mesh is None:
        return model
    policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        reshard_after_forward=True,
        mixed_precision_policy=policy,
    )
    accelerator = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision="bf16",
        is_main_process=False,
        device=CPU,
    )
    original = fsdp.fully_shard

    def on_mesh(module: Any, **settings: Any) -> Any:
        return original(module, **{**settings, "mesh": mesh})

    with patch.object(fsdp, "fully_shard", on_mesh):
        prepared: Qwen3ForCausalLM = fsdp2_prepare_model(accelerator, model)
    return prepared


class Tracked:
    """A model whose passes are tracked.

    Args:
        model: the policy, or the reference model.
        mesh: ranks over which it is sharded; None for one GPU.
        tokens: of one micro-batch.
        outputs: of TRL's head.
    """

    def __init__(
        self,
        model: Qwen3ForCausalLM,
        mesh: DeviceMesh | None,
        tokens: int,
        outputs: tuple[str, ...],
    ) -> None:
        add_fused_lm_head(model, outputs=outputs)
        self.model, self.alone = sharded(model, mesh), mesh is None
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-6)
        self.ids = torch.zeros(1, tokens, dtype=torch.long)

    def after_a_micro_batch(self) -> None:
        """Make Adam's moments, and the gradients that a micro-batch leaves to the next."""
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.optimiser.step()

    @contextmanager
    def tracking(self) -> Iterator[MemTracker]:
        """Track what is done within, and count what there is already."""
        if self.alone:
            tracker = MemTracker()
            tracker.track_external(self.model, self.optimiser)
        else:
            tracker = FSDPMemTracker(self.model, self.optimiser)
            # Accelerate makes one group of several modules; those that are not called have no record.
            for name in ("lm_head", "model.embed_tokens"):
                module = self.model.get_submodule(name)
                tracker.memory_tracking[module] = _FSDPModMemStats(name)
        with tracker:
            yield tracker

    def forward(self) -> Tensor:
        """Run one micro-batch forward, and return its log-probs."""
        with torch.autocast("cpu", torch.bfloat16) if self.alone else nullcontext():
            output = log_probs_of(self.model, input_ids=self.ids, labels=self.ids)
        logps: Tensor = output.log_probs
        return logps


def tracked(shape: Shape, gpus: int, tokens: int) -> dict[str, float]:
    """Return the tracked peak in bytes of each phase of a training with a KL term, on one of `gpus` GPUs.

    Args:
        shape: shape of the model.
        gpus: number of GPUs over which it is sharded.
        tokens: tokens of one micro-batch.

    Returns:
        `update`, `reference`, and `rollout` without vLLM itself.
    """
    with ranks(gpus) as mesh, like_triton(), FakeTensorMode(allow_non_fake_inputs=True):
        model = qwen3(shape)
        model.gradient_checkpointing_enable({"use_reentrant": False})
        policy = Tracked(model.train(), mesh, tokens, ("log_probs", "entropy"))
        frozen = qwen3(shape, torch.bfloat16 if gpus > 1 else torch.float32).eval()
        if mesh is not None:
            # Otherwise Accelerate makes its parameters float32; the tracker of one process needs them so.
            frozen.requires_grad_(False)
        reference = Tracked(frozen, mesh, tokens, ("log_probs",))
        policy.after_a_micro_batch()
        with policy.tracking() as tracker:
            policy.forward().sum().backward()
            policy.model.zero_grad()
            update, kept = peak(tracker), peak(tracker, "current")
        with reference.tracking() as tracker, torch.no_grad():
            beside = peak(tracker, "current")
            reference.forward()
            passed = peak(tracker)
        gathered = largest_gathered(policy.model)
    # The reference model lies beside the policy during all phases, and the policy's moments beside it.
    return {
        "update": update + beside,
        "reference": kept + passed,
        "rollout": kept + beside + gathered,
    }


def peak(tracker: MemTracker, when: str = "peak") -> int:
    """Return the bytes that were held at the peak, or that are held now."""
    return int(tracker.get_tracker_snapshot(when)[CPU]["Total"])


def largest_gathered(model: Qwen3ForCausalLM) -> int:
    """Return the bytes of the largest parameter: weights are gathered one by one on their way to vLLM."""
    most = 0
    for parameter in model.state_dict().values():
        if isinstance(parameter, DTensor):
            whole = parameter.full_tensor()
            most = max(most, whole.numel() * whole.element_size())
    return most
