"""FLOPs of an update beside those of other trainers and the least possible: `make bench`, no GPU needed.

The rollout is made up: log-normal lengths, half of the groups without variance of the reward (the paper
does not say how many there are). FLOPs are counted by torch at the shapes of the models
(tests/counted_flops.py), and our micro-batches are those of `stapo.training.minibatch`.
"""

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from counted_flops import Coefficients, coefficients, parts_of

from stapo.models.shapes import SHAPES
from stapo.training.minibatch import micro_batches, micro_batches_by_rank

SEED = 0
PROMPTS, GROUP, UPDATES = 256, 8, 4
LIMIT, PROMPT_LIMIT = 15360, 1024
MEAN, SIGMA = 5376, 0.8
"""Of the log-normal lengths before they are cut off at the limit: 0.35 of it, as in `stapo plan`; the
spread is our assumption."""
PROMPT_RANGE = (50, 360)
BUDGET, RANKS = 16384, 8


@dataclass(frozen=True)
class Rollout:
    """Lengths and advantages of a rollout, in data order."""

    prompts: Tensor
    """(B,) tokens of each prompt."""
    responses: Tensor
    """(B,) tokens of each response."""
    flat: Tensor
    """(B,) bool, true where all rewards of the group are equal."""

    def mini_batches(self) -> list["Rollout"]:
        """Return the mini-batches of the updates."""
        tables = (table.chunk(UPDATES) for table in (self.prompts, self.responses, self.flat))
        return [Rollout(*part) for part in zip(*tables, strict=True)]


def rollout(share_flat: float) -> Rollout:
    """Return a rollout of the paper's size, the same for the same share."""
    generator = torch.Generator().manual_seed(SEED)
    count = PROMPTS * GROUP
    centre = math.log(MEAN) - SIGMA**2 / 2
    lengths = torch.exp(centre + SIGMA * torch.randn(count, generator=generator))
    prompts = torch.randint(*PROMPT_RANGE, (PROMPTS,), generator=generator)
    # The same number of flat groups in every mini-batch.
    order = torch.rand(UPDATES, PROMPTS // UPDATES, generator=generator).argsort(dim=1)
    flat = order < round(share_flat * PROMPTS / UPDATES)
    return Rollout(
        prompts.repeat_interleave(GROUP),
        lengths.round().long().clamp(8, LIMIT),
        flat.flatten().repeat_interleave(GROUP),
    )


def ours(
    one: Rollout, forward: Coefficients, update: Coefficients, packed: bool
) -> tuple[float, float]:
    """Return the FLOPs of our old log-probs and of our updates."""
    rows = torch.arange(len(one.prompts))
    old = 0.0
    for own in rows.chunk(RANKS):  # Each rank computes the responses that it generated.
        lengths = one.prompts[own], one.responses[own]
        parts = micro_batches(*lengths, torch.arange(len(own)), BUDGET, packed)
        old += parts_of(forward, *lengths, parts, packed)
    spent = 0.0
    for batch in one.mini_batches():
        needed = (~batch.flat).nonzero().flatten()
        by_rank = micro_batches_by_rank(
            batch.prompts, batch.responses, needed, BUDGET, RANKS, packed
        )
        parts = [part for parts in by_rank for part in parts]
        spent += parts_of(update, batch.prompts, batch.responses, parts, packed)
    return old, spent


def ways(
    one: Rollout, forward: Coefficients, update: Coefficients
) -> dict[str, tuple[float, float]]:
    """Return the FLOPs of old log-probs and updates, by who computes them."""
    whole = one.prompts, one.responses
    gradient = one.prompts[~one.flat], one.responses[~one.flat]
    width = int(one.prompts.max() + one.responses.max())
    return {
        "TRL (padded, all rows)": (
            forward.padded(*whole, width=width),
            update.padded(*whole, width=width),
        ),
        "veRL-like (packed, all rows)": (forward.packed(*whole), update.packed(*whole)),
        "ours, padded and sorted (CPU)": ours(one, forward, update, packed=False),
        "ours, packed (GPU)": ours(one, forward, update, packed=True),
        "limit": (forward.packed(*whole), update.packed(*gradient)),
    }


def compare(size: str, share_flat: float, table: Table) -> None:
    """Add the lines of one size."""
    shape = SHAPES[f"Qwen/Qwen3-{size}-Base"]
    found = ways(rollout(share_flat), coefficients(shape, False), coefficients(shape, True))
    limit, packed = found["limit"], found["veRL-like (packed, all rows)"]
    for name, (old, update) in found.items():
        table.add_row(
            size, name, f"{old / 1e15:,.0f}", f"{update / 1e15:,.0f}",
            f"{update / limit[1]:.3f}", f"{(old + update) / sum(limit):.3f}",
            f"{packed[1] / update:.2f}", f"{sum(packed) / (old + update):.2f}",
        )  # fmt: skip


def main() -> None:
    """Print the FLOPs of one rollout with its updates, for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["1.7B", "8B", "14B"])
    parser.add_argument("--flat", type=float, default=0.5, help="share of flat groups")
    arguments = parser.parse_args()
    console, one = Console(width=130), rollout(arguments.flat)
    lengths = one.responses.double()
    table = Table(
        title=f"PFLOP of one rollout of {len(lengths)} responses and its {UPDATES} updates"
    )
    for name in (
        "model", "trainer", "old log-probs", "updates", "updates / limit", "both / limit",
        "veRL-like / updates", "veRL-like / both",
    ):  # fmt: skip
        table.add_column(name, justify="left" if name in ("model", "trainer") else "right")
    for size in arguments.sizes:
        compare(size, arguments.flat, table)
    console.print(table)
    spread = (lengths**2).mean() / lengths.mean() ** 2
    console.print(
        f"responses: log-normal, mean {MEAN} and sigma {SIGMA}, cut off at {LIMIT}: mean "
        f"{lengths.mean():.0f}, mean square over squared mean {spread:.2f}, "
        f"{(lengths == LIMIT).double().mean():.1%} at the limit; {arguments.flat:.0%} of the groups flat "
        f"(our assumptions); seed {SEED}; micro-batches of {BUDGET} tokens on {RANKS} GPUs; attention causal "
        "where there is no padding; statistics of the behaviour policy, without a KL term"
    )


if __name__ == "__main__":
    main()
