"""Group-relative advantages."""

import torch
from torch import Tensor


def group_advantages(rewards: Tensor, group_size: int, eps: float = 1e-6) -> Tensor:
    """Return (R - mean) / (std + eps) within each group of consecutive rewards.

    The standard deviation is that of the sample (divisor n - 1), the only one that gives the advantages
    printed in the paper. In a group of equal rewards, all advantages are exactly 0.

    Args:
        rewards: (n,) one reward per response; the responses of a prompt are consecutive.
        group_size: G, responses per prompt; at least 2.
        eps: added to the standard deviation.

    Returns:
        (n,) advantages, in the dtype of `rewards` (float32 at least).

    Raises:
        ValueError: `group_size` below 2 or not a divisor of n, or `rewards` not of shape (n,).

    Source: DeepSeekMath, section 4.1.2; sample standard deviation as in STAPO's printed cases.
    """
    if rewards.dim() != 1:
        raise ValueError(f"rewards: expected shape (n,), found {tuple(rewards.shape)}")
    if group_size < 2 or rewards.numel() % group_size:
        raise ValueError(
            f"group_size: expected a divisor of {rewards.numel()} that is at least 2, found {group_size}"
        )
    if not rewards.is_floating_point() or rewards.element_size() < 4:
        rewards = rewards.float()
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    advantages = centred / (groups.std(dim=1, keepdim=True) + eps)
    # The mean of equal numbers may differ from them by rounding, which eps would magnify.
    all_equal = (groups == groups[:, :1]).all(dim=1, keepdim=True)
    return torch.where(all_equal, torch.zeros_like(advantages), advantages).view(-1)
