"""Communication between the ranks of a distributed training.

After a rollout, its tensors are gathered on every rank. Each rank then computes the same threshold, divisor
and mask of a mini-batch, the composition of a mini-batch does not depend on the number of ranks, and its
sequences can be divided so that all ranks have about the same work.

Under FSDP2 and bfloat16 mixed precision, the policy's weights are float32, divided among the ranks, and are
gathered in bfloat16, one layer at a time: all of a layer, and the residual stream between the layers, is
computed in bfloat16. Log-probs, entropies and the sum of the ranks' gradients are float32.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, fsdp2_prepare_model
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from transformers import AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

TIMEOUT = timedelta(hours=1)
"""How long a rank waits for the others before it fails: while one rank writes 59 GB of weights (14B), that is
more than the default of 10 minutes. If a rank dies, the launcher stops the others at once."""


def whole_rollout(
    accelerator: Accelerator, rollout: dict[str, Tensor], pad_token_id: int
) -> dict[str, Tensor]:
    """Return the tensors of a rollout with the rows of all ranks, in the order of the data.

    Prompts (b, P) are padded on the left, responses (b, T) on the right, each to the longest of all ranks.
    """
    if accelerator.num_processes == 1:
        return rollout
    gathered = {}
    for name in sorted(rollout):  # All ranks must gather the tensors in the same order.
        filler = pad_token_id if name.endswith("_ids") else 0
        padded = accelerator.pad_across_processes(
            rollout[name], dim=1, pad_index=filler, pad_first=name.startswith("prompt_")
        )
        gathered[name] = accelerator.gather(padded)
    return gathered


class AcceleratorRanks:
    """The `Ranks` of an update, for a policy as wrapped by the Accelerator."""

    def __init__(self, accelerator: Accelerator, model: Any = None) -> None:
        self.accelerator, self.model = accelerator, model
        self.index, self.number = accelerator.process_index, accelerator.num_processes

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over ranks."""
        if self.number == 1:
            return values
        total: Tensor = self.accelerator.reduce(values, reduction="sum")
        return total

    def largest(self, value: int) -> int:
        """Return the largest of the ranks' numbers."""
        if self.number == 1:
            return value
        local = torch.tensor([value], device=self.accelerator.device)
        return int(self.accelerator.gather(local).max())

    def backward(self, loss: Tensor) -> None:
        """Accumulate a gradient: Accelerate averages over ranks, and a factor turns the mean into a sum."""
        self.accelerator.backward(loss * self.number)

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """Return the context of a pass: replicas exchange gradients only in the last one.

        Sharded gradients are exchanged in every pass, since unsharded ones would not fit into memory.
        """
        replicated = (DistributedType.MULTI_GPU, DistributedType.MULTI_CPU)
        if last or self.accelerator.distributed_type not in replicated:
            return nullcontext()
        context: AbstractContextManager[Any] = self.accelerator.no_sync(self.model)
        return context


def say(line: str) -> None:
    """Print a line on the main process only."""
    if PartialState().is_main_process:
        print(line, flush=True)  # noqa: T201


def sum_in_float32(accelerator: Accelerator) -> None:
    """Make FSDP2 reduce gradients in float32 and return the model's outputs as they are.

    By default, Accelerate does both in the type of the computation: log-probs and entropies would be
    rounded to bfloat16, which has 8 bits, and so would be each rank's gradient and the sum of two. This must
    come before any model is prepared.
    """
    if (precision := _precision(accelerator)) is not None:
        accelerator.state.fsdp_plugin.mixed_precision_policy = replace(
            precision, reduce_dtype=torch.float32, output_dtype=None
        )


def residual_dtype(policy: Any, accelerator: Accelerator) -> torch.dtype:
    """Return the type of the residual stream of policy and reference model.

    FSDP2 casts all weights and the input of every layer. Autocast, on a single GPU, casts only in products of
    matrices, so that the stream has the type of the weights, float32.
    """
    precision = _precision(accelerator)
    dtype: torch.dtype = policy.dtype if precision is None else precision.param_dtype
    return dtype


def reference_model(policy: Any, accelerator: Accelerator, **head: Any) -> Any:
    """Return the reference model of a KL term: the weights that the policy was loaded from, frozen.

    TRL would distribute it over all GPUs that a process sees, and shard it as a single group, so that each
    rank would gather all of its weights at once.

    Its weights have the type of the residual stream, to which FSDP2 casts the policy's float32 ones before a
    forward pass: the same numbers, in half the memory. On a single GPU they are float32, as the policy's.
    The policy is not yet prepared, and not updated; `head` are arguments of TRL's fused head.
    """
    path, dtype = policy.config.name_or_path, residual_dtype(policy, accelerator)
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, use_safetensors=True, trust_remote_code=False
    )
    model.set_attn_implementation(policy.config._attn_implementation)
    model.requires_grad_(False)  # Otherwise Accelerate would cast it to float32.
    add_fused_lm_head(model, **head)
    if accelerator.state.is_fsdp2:
        return fsdp2_prepare_model(accelerator, model)
    return accelerator.prepare_model(model, evaluation_mode=True)


def reshard(model: Any) -> None:
    """Shard the parameters again that a forward pass has gathered.

    FSDP2 keeps embedding, last norm and head gathered after a forward pass, for the backward pass that
    follows. After a pass without gradient, none does: the optimiser would skip these parameters, and TRL
    could not transfer them to vLLM. Nothing happens without FSDP2.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _precision(accelerator: Accelerator) -> Any:
    """Return FSDP2's MixedPrecisionPolicy; None without one."""
    state = accelerator.state
    return state.fsdp_plugin.mixed_precision_policy if state.is_fsdp2 else None
