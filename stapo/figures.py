"""The figures of a study, each declared once for the rules, the report and what draws them.

Snakemake reads this module: it imports nothing that draws.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PAPER_SILENCED = 0.01
"""Percent of the tokens; the paper stays below it nearly throughout."""


@dataclass(frozen=True)
class Figure:
    """A quantity over the optimizer steps of every training."""

    label: str
    """Of the vertical axis, with the unit."""
    value: Callable[[Mapping[str, Any]], float] | None = None
    """Its value in a record of the metrics, which has the name of the figure as a key; None: it is the
    accuracy of intermediate checkpoints, from their scores."""
    reference: tuple[float, str] | None = None
    """A horizontal line and what it says."""


FIGURES: dict[str, Figure] = {
    "entropy": Figure("policy entropy [nats per token]", lambda r: float(r["entropy"])),
    "reward": Figure("mean reward [-1 to 1]", lambda r: float(r["reward"])),
    "silenced_fraction": Figure(
        "silenced tokens [%]",
        lambda r: 100 * float(r["silenced_fraction"]),
        (PAPER_SILENCED, "paper: below 0.01 % nearly throughout"),
    ),
    "response_length": Figure("response length [tokens]", lambda r: float(r["response_length"])),
    "gradient_norm": Figure("gradient norm", lambda r: float(r["gradient_norm"])),
    "accuracy": Figure("accuracy [%]"),
}
