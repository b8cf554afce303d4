"""A sample of the tokens of a mini-batch, stratified by what S2T does with them.

The sample follows from the selection, seed and step alone: it is the same on every rank, for any number of
ranks and for any micro-batches.

B sequences of the whole mini-batch, T response positions, n sampled tokens; entropies in nats.
"""

from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from stapo.methods import Method, s2t_arguments
from stapo.objective import at_resolution, spurious_candidates, spurious_threshold
from stapo.objective.selection import Scope
from stapo.records.tokens import KINDS, Kind, sample_sizes


@dataclass(frozen=True)
class TokenSample:
    """Some tokens of a mini-batch, ordered by kind, sequence and position."""

    rows: Tensor
    """(n,) sequence of each token, on the CPU."""
    positions: Tensor
    """(n,) position in the response, on the CPU."""
    kinds: list[Kind]
    """n kinds."""
    weights: list[float]
    """n numbers of tokens that a token stands for: those of its kind in the mini-batch / sampled ones."""
    threshold: float | None
    """Entropy below which S2T silences a candidate; None without a candidate."""


def token_kinds(
    method: Method, logps: Tensor, entropies: Tensor, advantages: Tensor, mask: Tensor
) -> tuple[dict[Kind, Tensor], float | None]:
    """Return the tokens of each kind, and the threshold of S2T.

    Args:
        method: method of the training, whose arguments are used if its selection has them.
        logps: (B, T) log-probs that select tokens.
        entropies: (B, T) entropies that select tokens.
        advantages: (B,) advantages.
        mask: (B, T) bool, response tokens.

    Returns:
        Kind -> (B, T) bool, which together are `mask`; the threshold in nats, None without a candidate.
    """
    args = s2t_arguments(method)
    rounded = at_resolution(entropies)
    candidates = spurious_candidates(logps, advantages, mask, float(args["tau_p"]))
    scope: Scope = "all" if args["scope"] == "all" else "candidates"
    threshold = spurious_threshold(rounded, candidates, mask, float(args["quantile"]), scope)
    silenced = torch.zeros_like(mask) if threshold is None else candidates & (rounded < threshold)
    kinds: dict[Kind, Tensor] = {
        "silenced": silenced,
        "retained": candidates & ~silenced,
        "other": mask & ~candidates,
    }
    return kinds, None if threshold is None else threshold.item()


def sample_tokens(
    kinds: dict[Kind, Tensor], threshold: float | None, size: int, seed: int, step: int
) -> TokenSample:
    """Return a uniform sample of each kind, without replacement.

    Args:
        kinds: tokens of each kind, (B, T) bool.
        threshold: threshold of S2T, in nats.
        size: number of tokens of all kinds, at most.
        seed: seed of the training.
        step: optimiser step, from 1.
    """
    counts = {kind: int(kinds[kind].sum()) for kind in KINDS}
    sizes = sample_sizes(counts, size)
    rows, positions = [], []
    for kind in KINDS:
        # Python's generator, which is the same for all versions of torch and devices.
        random = Random(f"tokens {seed} {step} {kind}")
        chosen = torch.tensor(
            sorted(random.sample(range(counts[kind]), sizes[kind])), dtype=torch.long
        )
        places = kinds[kind].flatten().nonzero().flatten()
        places = places[chosen.to(places.device)].cpu()
        width = kinds[kind].shape[1]
        rows.append(places // width)
        positions.append(places % width)
    return TokenSample(
        rows=torch.cat(rows),
        positions=torch.cat(positions),
        kinds=[kind for kind in KINDS for _ in range(sizes[kind])],
        weights=[counts[kind] / sizes[kind] for kind in KINDS for _ in range(sizes[kind])],
        threshold=threshold,
    )
