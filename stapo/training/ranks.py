"""What the ranks of a distributed training tell each other.

After a rollout every rank holds all of it: threshold, divisor and mask of a mini-batch are then the
same numbers everywhere, the composition of a mini-batch does not depend on the number of ranks, and
its sequences can be dealt so that all ranks have about the same work.
"""

import torch
from accelerate import Accelerator
from torch import Tensor

PADDED_ON_THE_LEFT = ("prompt_ids", "prompt_mask")


def whole_rollout(
    accelerator: Accelerator, rollout: dict[str, Tensor], pad_token_id: int
) -> dict[str, Tensor]:
    """Return a rollout's tensors with the rows of all ranks, in the order of the data.

    Args:
        accelerator: of the training.
        rollout: (b, P) prompts padded on the left, (b, T) responses padded on the right; P and T are
            each rank's own.
        pad_token_id: for the ids; everything else is padded with 0.

    Returns:
        The same names with (B, longest P) and (B, longest T), B = ranks x b.
    """
    if accelerator.num_processes == 1:
        return rollout
    gathered = {}
    # All ranks in the same order: the gathering waits for the others.
    for name in sorted(rollout):
        padded = accelerator.pad_across_processes(
            rollout[name],
            dim=1,
            pad_index=pad_token_id if name.endswith("_ids") else 0,
            pad_first=name in PADDED_ON_THE_LEFT,
        )
        gathered[name] = accelerator.gather(padded)
    return gathered


def sum_over_ranks(accelerator: Accelerator, values: Tensor) -> Tensor:
    """Return the sum of a tensor of the same shape on every rank."""
    if accelerator.num_processes == 1:
        return values
    total: Tensor = accelerator.reduce(values, reduction="sum")
    return total


def largest_over_ranks(accelerator: Accelerator, value: int) -> int:
    """Return the largest of the ranks' numbers."""
    if accelerator.num_processes == 1:
        return value
    return int(accelerator.gather(torch.tensor([value], device=accelerator.device)).max())
