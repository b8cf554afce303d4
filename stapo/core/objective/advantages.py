"""Group-relative advantages."""

from collections.abc import Callable
from math import ceil

import torch
from torch import Tensor


def group_advantages(rewards: Tensor, group_size: int, eps: float = 1e-6) -> Tensor:
    """Return (R - mean) / (std + eps) within each group of consecutive rewards.

    The standard deviation is that of the sample (divisor n - 1), the only one that gives the advantages
    printed in the paper. In a group of equal rewards, all advantages are exactly 0. Rewards and advantages
    are (n,), in the dtype of `rewards` (float32 at least).

    Raises:
        ValueError: `group_size` below 2 or not a divisor of n, or `rewards` not of shape (n,).

    Source: DeepSeekMath, section 4.1.2; sample standard deviation as in STAPO's printed cases.
    """
    groups = _groups(rewards, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    return _zero_if_equal(groups, centred / (groups.std(dim=1, keepdim=True) + eps))


def dr_grpo_advantages(rewards: Tensor, group_size: int, eps: float = 1e-6) -> Tensor:
    """Return R - mean within each group.

    Source: Dr.GRPO (arXiv 2503.20783).
    """
    groups = _groups(rewards, group_size)
    return _zero_if_equal(groups, groups - groups.mean(dim=1, keepdim=True))


def wapo_advantages(rewards: Tensor, group_size: int, eps: float = 1e-6) -> Tensor:
    """Return max(R - mean, 0) within each group: only responses above the mean move.

    Source: WAPO (arXiv 2606.16154), its authors' code.
    """
    return dr_grpo_advantages(rewards, group_size).clamp(min=0)


def qae_advantages(
    rewards: Tensor, group_size: int, eps: float = 1e-6, baseline_quantile: float = 0.4
) -> Tensor:
    """Return (R - quantile) / (std + eps) within each group.

    The quantile is the lowest reward r with at least that share of the group at or below r. If rewards
    have two values, only right answers move where at most 1 - quantile of the group are right, only wrong
    ones elsewhere.

    Source: QAE (arXiv 2509.22611), eqs. 3 and 4; the sample standard deviation is our choice.
    """
    groups = _groups(rewards, group_size)
    rank = max(ceil(round(baseline_quantile * group_size, 9)), 1) - 1
    centred = groups - groups.sort(dim=1).values[:, rank : rank + 1]
    return _zero_if_equal(groups, centred / (groups.std(dim=1, keepdim=True) + eps))


def w_reinforce_advantages(
    rewards: Tensor, group_size: int, eps: float = 1e-6, positive_weight: float = 0.1
) -> Tensor:
    """Return `positive_weight` for rewards above 0, -1 for others; 0 is negative sample reinforcement.

    Source: W-REINFORCE (arXiv 2506.01347).
    """
    groups = _groups(rewards, group_size)
    return torch.where(groups > 0, positive_weight, -1.0).to(groups.dtype).view(-1)


def _groups(rewards: Tensor, group_size: int) -> Tensor:
    if rewards.dim() != 1:
        raise ValueError(f"rewards: expected shape (n,), found {tuple(rewards.shape)}")
    if group_size < 2 or rewards.numel() % group_size:
        raise ValueError(
            f"group_size: expected a divisor of {rewards.numel()} that is at least 2, found {group_size}"
        )
    if not rewards.is_floating_point() or rewards.element_size() < 4:
        rewards = rewards.float()
    return rewards.view(-1, group_size)


def _zero_if_equal(groups: Tensor, advantages: Tensor) -> Tensor:
    """Return (n,) advantages, exactly 0 in a group of equal rewards."""
    # The mean of equal numbers may differ from them by rounding, which eps would magnify.
    all_equal = (groups == groups[:, :1]).all(dim=1, keepdim=True)
    return torch.where(all_equal, torch.zeros_like(advantages), advantages).view(-1)


ADVANTAGES: dict[str, Callable[..., Tensor]] = {
    "group": group_advantages,
    "dr_grpo": dr_grpo_advantages,
    "wapo": wapo_advantages,
    "qae": qae_advantages,
    "w_reinforce": w_reinforce_advantages,
}
"""Name to function, all with the leading arguments (rewards, group_size, eps)."""
