"""The check at the border of the public functions."""

import torch
from torch import Tensor


def check_shapes(
    mask: Tensor | None = None, advantages: Tensor | None = None, **tensors: Tensor
) -> None:
    """Check that all tensors are (B, T), `mask` boolean and `advantages` (B,).

    Raises:
        ValueError: naming the argument, what was found and what is expected.
    """
    if mask is not None:
        if mask.dtype != torch.bool:
            raise ValueError(
                f"mask: expected dtype torch.bool, found {mask.dtype}; use mask.bool()"
            )
        tensors = {"mask": mask, **tensors}
    shape = next(iter(tensors.values())).shape
    for name, tensor in tensors.items():
        if tensor.dim() != 2 or tensor.shape != shape:
            raise ValueError(
                f"{name}: expected shape (B, T) = {tuple(shape)}, found {tuple(tensor.shape)}"
            )
    if advantages is not None and advantages.shape != shape[:1]:
        raise ValueError(
            f"advantages: expected shape (B,) = ({shape[0]},), found {tuple(advantages.shape)}"
        )
