"""Declarations of what a study shows besides its main tables: figures, and tables of evidence.

Rules, report and `stapo.analysis.exhibits` use them. Snakemake imports this module, so it must not import
matplotlib or pandas.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

PAPER_SILENCED = 0.01
"""Silenced tokens in percent; the paper reports less in nearly all steps."""

Source = Literal["metrics", "scores", "responses", "tokens", "interventions"]
"""Files of a study: metrics of the trainings, scores, responses of the evaluations, token records, results of
interventions."""

Need = Literal["vllm", "checkpoints", "interventions", "full-mask", "ablation"]
"""What not every study has: rollouts with vLLM, intermediate checkpoints, interventions, the methods justrl
and full-mask, methods that differ from each other only in one argument of their token selection."""


NEEDS: dict[Need, str] = {
    "vllm": "rollouts by vLLM (training.rollouts)",
    "checkpoints": "intermediate checkpoints (training.evaluate_every or evaluation.curve)",
    "interventions": "interventions (interventions.checkpoints)",
    "full-mask": "the methods justrl and full-mask (run.methods)",
    "ablation": "methods that differ only in one argument of their token selection (methods, run.methods)",
}
"""What a study must have, in words, with the settings that add it."""


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A figure or table that is computed from files of a study."""

    title: str
    """What it shows, as a heading."""
    sources: frozenset[Source] = frozenset({"metrics"})
    """Files that it is computed from."""
    needs: Need | None = None
    """What a study must have; None if every study has it."""


@dataclass(frozen=True, kw_only=True)
class Figure(Exhibit):
    """A figure; with `value`, a quantity over the optimiser steps of every training."""

    label: str = ""
    """Label of the vertical axis of such a quantity, with the unit."""
    value: Callable[[Mapping[str, Any]], float] | None = None
    """Returns the value in a record of the metrics, which has the name of the figure as a key."""
    reference: tuple[float, str] | None = None
    """Height and label of a horizontal line."""
    log: bool = False
    """Whether the vertical axis is logarithmic."""


def _from(*sources: Source) -> frozenset[Source]:
    return frozenset(sources)


FIGURES: dict[str, Figure] = {
    "entropy": Figure(
        title="Policy entropy",
        label="policy entropy [nats per token]",
        value=lambda r: float(r["entropy"]),
        log=True,
    ),
    "reward": Figure(
        title="Reward", label="mean reward [-1 to 1]", value=lambda r: float(r["reward"])
    ),
    "accuracy": Figure(title="Accuracy", sources=_from("scores"), needs="checkpoints"),
    "pareto": Figure(title="Accuracy and stability", sources=_from("metrics", "scores")),
    "silenced_fraction": Figure(
        title="Silenced candidates",
        label="silenced [% of tokens]",
        value=lambda r: 100 * float(r["silenced_fraction"]),
        reference=(PAPER_SILENCED, "paper: below 0.01 % nearly throughout"),
        log=True,
    ),
    "entropy_quantiles": Figure(title="Entropy of the tokens by quantile"),
    "full_mask": Figure(
        title="JustRL and JustRL-FullMask", sources=_from("metrics", "scores"), needs="full-mask"
    ),
    "ablation": Figure(
        title="Ablation and sensitivity", sources=_from("scores", "metrics"), needs="ablation"
    ),
    "quadrants": Figure(title="Probability and entropy of tokens", sources=_from("tokens")),
    "gradient_bounds": Figure(title="Gradient norms and their bounds", sources=_from("tokens")),
    "token_frequencies": Figure(title="Silenced and retained tokens", sources=_from("tokens")),
    "silenced_by_position": Figure(
        title="Silenced tokens by position", sources=_from("tokens", "metrics")
    ),
    "entropy_change": Figure(
        title="Entropy change of tokens: predicted and measured",
        sources=_from("interventions"),
        needs="interventions",
    ),
    "interventions": Figure(
        title="One update with and without silencing",
        sources=_from("interventions"),
        needs="interventions",
    ),
    "response_length": Figure(
        title="Response length",
        label="response length [tokens]",
        value=lambda r: float(r["response_length"]),
    ),
    "gradient_norm": Figure(
        title="Gradient norm", label="gradient norm", value=lambda r: float(r["gradient_norm"])
    ),
    "rollout_mismatch": Figure(
        title="Mismatch of vLLM and trainer",
        label="mean |log p(vLLM) - log p(trainer)| [nats per token]",
        value=lambda r: float(r["rollout_mismatch"]),
        needs="vllm",
    ),
}
"""Name of a figure -> its declaration, in the order of the report."""

TABLES: dict[str, Exhibit] = {
    "verdicts": Exhibit(title="The paper's claims", sources=_from("metrics", "scores", "tokens")),
    "stability": Exhibit(title="Stability", sources=_from("metrics", "scores", "responses")),
    "ablation": Exhibit(
        title="Ablation and sensitivity", sources=_from("scores", "metrics"), needs="ablation"
    ),
    "quadrants": Exhibit(title="Quadrants of probability and entropy", sources=_from("tokens")),
    "taxonomy": Exhibit(title="Classes of tokens (v4 and v5)", sources=_from("tokens")),
    "taxonomy_v2": Exhibit(title="Classes of tokens (v1 to v3)", sources=_from("tokens")),
    "token_frequencies": Exhibit(
        title="Most frequent silenced and retained tokens", sources=_from("tokens")
    ),
    "cases": Exhibit(title="Silenced tokens in context", sources=_from("tokens")),
    "interventions": Exhibit(
        title="One update with and without silencing",
        sources=_from("interventions"),
        needs="interventions",
    ),
    "hyperparameters": Exhibit(title="Hyperparameters", sources=_from()),
}
"""Name of a table -> its declaration, in the order of the report."""
