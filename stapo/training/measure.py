"""What is recorded of a mini-batch, and how much the scope of the token selection matters in it.

B sequences of the whole mini-batch, T response positions; shares are of its response tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from stapo.methods import Method
from stapo.objective import spurious_candidates

ENTROPY_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
DIAGNOSTIC_TAU_P = 0.002
"""The paper's tau_p: the candidates of S2T are counted for every method."""
SCOPED = ("silence_spurious", "silence_high_entropy", "keep_high_entropy")
"""The selections with a threshold, hence with a scope."""

Select = Callable[[Tensor], Tensor]
"""(R,) rows of the mini-batch to the (R, T) tokens kept when these rows are all there is."""


def measure(
    batch: Mapping[str, Tensor],
    statistics: tuple[Tensor, Tensor],
    mask: Tensor,
    keep: Tensor,
    method: Method,
    eos_token_ids: Sequence[int],
) -> dict[str, Any]:
    """Return the record of a mini-batch, as far as it is known before the update.

    Args:
        batch: `rewards` and `advantages` (B,), `completion_ids` and `old_entropies` (B, T).
        statistics: (B, T) log-probabilities and entropies that the selection saw.
        mask: (B, T) bool, response tokens.
        keep: (B, T) bool, tokens that contribute to the loss.
        method: of the training.
        eos_token_ids: a response without any of them was cut off.
    """
    num_tokens = max(int(mask.sum()), 1)
    tau_p = float(method.selection_args.get("tau_p", DIAGNOSTIC_TAU_P))
    candidates = spurious_candidates(statistics[0], batch["advantages"], mask, tau_p)
    entropies = batch["old_entropies"][mask].double()
    levels = torch.tensor(ENTROPY_QUANTILES, dtype=torch.double, device=mask.device)
    ends = torch.tensor(eos_token_ids, device=mask.device)
    ended = torch.isin(batch["completion_ids"], ends) & mask
    silenced = int((candidates & ~keep).sum()) if "tau_p" in method.selection_args else 0
    return {
        "reward": batch["rewards"].mean().item(),
        "zero_advantage_fraction": (batch["advantages"] == 0).float().mean().item(),
        "entropy": entropies.mean().item(),
        "entropy_quantiles": dict(
            zip(map(str, ENTROPY_QUANTILES), _quantiles(entropies, levels), strict=True)
        ),
        "num_tokens": num_tokens,
        "num_candidates": int(candidates.sum()),
        "num_silenced": silenced,
        "candidate_fraction": int(candidates.sum()) / num_tokens,
        "silenced_fraction": silenced / num_tokens,
        "kept_fraction": int(keep.sum()) / num_tokens,
        "response_length": mask.sum(dim=1).float().mean().item(),
        "truncated_fraction": 1 - ended.any(dim=1).float().mean().item(),
    }


def _quantiles(values: Tensor, levels: Tensor) -> list[float]:
    """Return quantiles by linear interpolation, without the limit of torch.quantile (2^24 values)."""
    ordered = values.sort().values
    position = levels * (len(ordered) - 1)
    low = position.long()
    high = (low + 1).clamp(max=len(ordered) - 1)
    quantiles: list[float] = torch.lerp(ordered[low], ordered[high], position - low).tolist()
    return quantiles


def mask_scope(
    select: Select, mask: Tensor, keep: Tensor, scopes: Mapping[str, list[Tensor]]
) -> dict[str, dict[str, int]]:
    """Return how far the selection would have differed, had its threshold had a smaller scope.

    Args:
        select: the method's selection, of any rows.
        mask: (B, T) bool, response tokens.
        keep: (B, T) bool, what the mini-batch's own threshold keeps.
        scopes: name of a scope to the parts of the mini-batch that would have had thresholds of their
            own; together they hold every row once.

    Returns:
        Per scope, and for the mini-batch itself, `num_dropped`: response tokens left out, and
        `num_different`: tokens on which it and the mini-batch disagree.
    """
    record = {"mini_batch": {"num_dropped": int((mask & ~keep).sum()), "num_different": 0}}
    for name, parts in scopes.items():
        kept = torch.zeros_like(keep)
        for rows in parts:
            kept[rows] = select(rows)
        record[name] = {
            "num_dropped": int((mask & ~kept).sum()),
            "num_different": int((kept != keep).sum()),
        }
    return record
