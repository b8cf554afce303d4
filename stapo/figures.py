"""Declarations of the figures of a study, for the rules, the report and `stapo.analysis.figures`.

Snakemake imports this module, so it must not import matplotlib.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PAPER_SILENCED = 0.01
"""Silenced tokens in percent; the paper reports less in nearly all steps."""


@dataclass(frozen=True)
class Figure:
    """A quantity over the optimizer steps of every training."""

    label: str
    """Label of the vertical axis, with the unit."""
    value: Callable[[Mapping[str, Any]], float] | None = None
    """Function that returns the value in a record of the metrics, which has the name of the figure as a key;
    None for the accuracy of intermediate checkpoints, which is computed from scores."""
    reference: tuple[float, str] | None = None
    """Height and label of a horizontal line."""
    of_vllm: bool = False
    """Whether only trainings whose rollouts are vLLM's have the quantity."""

    @property
    def shows_scores(self) -> bool:
        """Whether it is drawn from scores instead of metrics."""
        return self.value is None


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
    "rollout_mismatch": Figure(
        "mean |log p(vLLM) - log p(trainer)| [nats per token]",
        lambda r: float(r["rollout_mismatch"]),
        of_vllm=True,
    ),
    "accuracy": Figure("accuracy [%]"),
}
