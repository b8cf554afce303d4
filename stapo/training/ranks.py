"""Communication between the ranks of a distributed training.

After a rollout, its tensors are gathered on every rank. Each rank then computes the same threshold, divisor
and mask of a mini-batch, the composition of a mini-batch does not depend on the number of ranks, and its
sequences can be divided so that all ranks have about the same work.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType
from torch import Tensor

PADDED_ON_THE_LEFT = ("prompt_ids", "prompt_mask")


def whole_rollout(
    accelerator: Accelerator, rollout: dict[str, Tensor], pad_token_id: int
) -> dict[str, Tensor]:
    """Return the tensors of a rollout with the rows of all ranks, in the order of the data.

    Prompts (b, P) are padded on the left, responses (b, T) on the right; P and T may differ between ranks.
    The results are (B, longest P) and (B, longest T), B = ranks x b.
    """
    if accelerator.num_processes == 1:
        return rollout
    gathered = {}
    # Sorted, since all ranks must gather the tensors in the same order.
    for name in sorted(rollout):
        padded = accelerator.pad_across_processes(
            rollout[name],
            dim=1,
            pad_index=pad_token_id if name.endswith("_ids") else 0,
            pad_first=name in PADDED_ON_THE_LEFT,
        )
        gathered[name] = accelerator.gather(padded)
    return gathered


class Ranks:
    """The operations on ranks that an update needs: on the processes of an Accelerator, or on a single rank.

    Args:
        accelerator: Accelerator of the training; None for a single rank.
        model: policy, as wrapped by the Accelerator.
    """

    index, number = 0, 1

    def __init__(self, accelerator: Accelerator | None = None, model: Any = None) -> None:
        self.accelerator, self.model = accelerator, model
        if accelerator is not None:
            self.index, self.number = accelerator.process_index, accelerator.num_processes

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor of the same shape on every rank."""
        if self.accelerator is None or self.number == 1:
            return values
        total: Tensor = self.accelerator.reduce(values, reduction="sum")
        return total

    def largest(self, value: int) -> int:
        """Return the largest of the ranks' numbers."""
        if self.accelerator is None or self.number == 1:
            return value
        one = torch.tensor([value], device=self.accelerator.device)
        return int(self.accelerator.gather(one).max())

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of a rank's loss so that the optimiser sees the sum over ranks.

        Accelerate averages gradients over ranks; a factor turns the mean into a sum.
        """
        if self.accelerator is None:
            torch.autograd.backward(loss)
        else:
            self.accelerator.backward(loss * self.number)

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """Return the context of one of several passes with gradient; after the last they agree.

        Replicas exchange gradients only in the last one. Sharded gradients are exchanged in every pass, since
        unsharded ones would not fit into memory.
        """
        replicated = (DistributedType.MULTI_GPU, DistributedType.MULTI_CPU)
        kind = None if self.accelerator is None else self.accelerator.distributed_type
        if self.accelerator is None or last or kind not in replicated:
            return nullcontext()
        context: AbstractContextManager[Any] = self.accelerator.no_sync(self.model)
        return context


def say(line: str) -> None:
    """Print a line on the main process only."""
    if PartialState().is_main_process:
        print(line, flush=True)  # noqa: T201
