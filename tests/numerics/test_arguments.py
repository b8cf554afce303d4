"""What every function of the objective and of the mini-batch asks of its arguments, and keeps of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from stapo.core.methods.parts import PARTS
from stapo.core.objective import (
    SELECTIONS,
    at_resolution,
    clipped_surrogate,
    gradient_norm_bounds,
    group_advantages,
    kl_k3,
    logit_gradient_norm_sq,
    spurious_candidates,
    token_mean,
    token_weights,
)
from stapo.core.objective.penalties import PENALTIES
from stapo.core.objective.surrogates import SURROGATES
from stapo.core.objective.weightings import WEIGHTINGS

STATISTICS = ("logps", "entropies", "advantages", "mask")
CLIP = {"clip_low": 0.2, "clip_high": 0.28}


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "clipped_surrogate": (partial(clipped_surrogate, **CLIP), ("logps", "old_logps", "advantages")),
    "kl_k3": (kl_k3, ("logps", "ref_logps")),
    "token_mean": (token_mean, ("values", "keep")),
    "norm": (logit_gradient_norm_sq, ("weights", "logps", "collision")),
    "bounds": (partial(gradient_norm_bounds, vocab_size=9), ("weights", "logps", "entropies")),
    "candidates": (partial(spurious_candidates, tau_p=0.1), ("logps", "advantages", "mask")),
    **{f"SELECTIONS {name}": (select, STATISTICS) for name, select in SELECTIONS.items()},
    **{f"WEIGHTINGS {name}": (weigh, STATISTICS) for name, weigh in WEIGHTINGS.items()},
    **{
        f"PENALTIES {name}": (one.coefficients, (*STATISTICS, *["proxy"] * one.against_proxy))
        for name, one in PENALTIES.items()
    },
    **{
        f"SURROGATES {name}": (
            partial(one, **{k: v for k, v in CLIP.items() if k in PARTS["surrogate"][name].clips}),
            ("logps", "old_logps", "advantages", "mask"),
        )
        for name, one in SURROGATES.items()
    },
}


def tensor(name: str, rows: int = 2, columns: int = 3) -> Tensor:
    """Return a tensor that is right as the argument of that name, for these sizes."""
    if name == "advantages":
        return torch.ones(rows)
    if name in ("mask", "keep"):
        return torch.ones(rows, columns, dtype=torch.bool)
    return torch.full((rows, columns), -9.0)  # Rare, so that there are candidates.


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_would_broadcast_is_refused(name: str) -> None:
    """A tensor of a single row or column computes silently with the others."""
    function, names = FUNCTIONS[name]
    function(**{each: tensor(each) for each in names})
    for wrong in names:
        for sizes in ((1, 3), *[(2, 1)] * (wrong != "advantages")):  # They have no columns.
            args = {each: tensor(each) for each in names} | {wrong: tensor(wrong, *sizes)}
            # Of two that do not fit either may be named.
            with pytest.raises(ValueError, match=rf"^({'|'.join(names)}): expected shape"):
                function(**args)


MASKS = {n: mask for n, (_, names) in FUNCTIONS.items() for mask in {"mask", "keep"} & {*names}}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_of_numbers_is_refused_with_the_remedy(name: str) -> None:
    (function, names), mask = FUNCTIONS[name], MASKS[name]
    args = {each: tensor(each) for each in names} | {mask: torch.ones(2, 3)}
    remedy = rf"{mask}: expected dtype torch.bool, found torch.float32; use {mask}.bool\(\)"
    with pytest.raises(ValueError, match=remedy):
        function(**args)


def test_probabilities_in_place_of_log_probabilities_are_refused() -> None:
    logps, mask = torch.tensor([[-1.0, 0.02, 5.0]]).double(), torch.tensor([[True, True, False]])
    # Rounding may put a certain token a little above 0, and padding may hold anything.
    spurious_candidates(logps, torch.ones(1), mask, 0.1)
    spurious_candidates(logps[:0], torch.ones(0), mask[:0], 0.1)
    said = "logps: expected .* at most 0, found 0.03; take the logarithm of probabilities"
    with pytest.raises(ValueError, match=said):
        spurious_candidates(logps + 0.01, torch.ones(1), mask, 0.1)


def test_numbers_out_of_range_are_refused_with_what_was_found() -> None:
    values = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="vocab_size: expected at least 2, found 1"):
        gradient_norm_bounds(values, values, values, 1)
    for dual_clip in (1.0, 0.5):
        with pytest.raises(ValueError, match=f"dual_clip: .* above 1, found {dual_clip}"):
            clipped_surrogate(values, values, values[:, 0], 0.2, 0.28, dual_clip)
    clipped_surrogate(values, values, values[:, 0], 0.2, 0.28, 1.5)
    with pytest.raises(ValueError, match=r"rewards: expected shape \(n,\), found \(2, 3\)"):
        group_advantages(values, 2)
    for group_size in (0, 1, 4):
        expected = f"group_size: expected a divisor of 6 .* {group_size}"
        with pytest.raises(ValueError, match=expected):
            group_advantages(values.flatten(), group_size)
    with pytest.raises(ValueError, match="group_size: 2 responses are not a multiple of 3"):
        token_weights(tensor("keep"), "group_token_mean", 3)
    for name in ("silence_spurious", "silence_high_entropy"):
        with pytest.raises(ValueError, match="scope: expected 'candidates' or 'all', found 'rank'"):
            SELECTIONS[name](*(tensor(each) for each in STATISTICS), scope="rank")


@pytest.mark.parametrize("kind", ["int64", "int8", "bfloat16", "float32", "float64"])
def test_advantages_are_at_least_in_single_precision(kind: str) -> None:
    rewards = torch.tensor([1, 0, 0, 1, 0, 0], dtype=getattr(torch, kind))
    advantages = group_advantages(rewards, 3)
    assert advantages.dtype == (torch.float64 if kind == "float64" else torch.float32)
    # 2/3 over the sample's deviation 1/sqrt(3), in single precision.
    assert advantages[0].item() == pytest.approx(2 / 3**0.5, rel=2e-6)


def test_entropies_are_rounded_in_double_precision_to_the_nearest_multiple() -> None:
    # Single precision holds 2^-23 of a value near 1, a thousandth of the resolution's 2^-10.
    entropies = torch.tensor([1.0, 1.0 + 0.4 * 2**-10, 1.0 + 0.6 * 2**-10, 0.0])
    rounded = at_resolution(entropies)
    assert rounded.dtype == torch.float64
    assert rounded.tolist() == [1.0, 1.0, 1.0 + 2**-10, 0.0]
    assert at_resolution(entropies, 0.5).tolist() == [1.0, 1.0, 1.0, 0.0]
