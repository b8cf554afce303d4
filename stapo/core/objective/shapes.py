"""Check of the arguments of public functions."""

import torch
from torch import Tensor


def check_shapes(advantages: Tensor | None = None, **tensors: Tensor) -> None:
    """Check that all tensors are (B, T), `mask` and `keep` boolean, and `advantages` (B,).

    Raises:
        ValueError: an argument has another shape or type; the message says what is expected.
    """
    shape = next(iter(tensors.values())).shape
    for name, tensor in tensors.items():
        if name in ("mask", "keep") and tensor.dtype != torch.bool:
            raise ValueError(
                f"{name}: expected dtype torch.bool, found {tensor.dtype}; use {name}.bool()"
            )
        if tensor.dim() != 2 or tensor.shape != shape:
            raise ValueError(
                f"{name}: expected shape (B, T) = {tuple(shape)}, found {tuple(tensor.shape)}"
            )
    if advantages is not None and advantages.shape != shape[:1]:
        raise ValueError(
            f"advantages: expected shape (B,) = ({shape[0]},), found {tuple(advantages.shape)}"
        )
