"""What a study shows besides its main tables: figures, and tables of evidence.

Each is one file of `stapo/analysis/figures` or `stapo/analysis/tables`, which is found by its folder: it
declares an `EXHIBIT`, and a function `make` that returns the chart or the table. Snakemake imports these
files, so at their top they must not import altair, numpy or pandas.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
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
    order: int = 1000
    """Its place in the report; the lowest comes first."""
    sources: frozenset[Source] = frozenset({"metrics"})
    """Files that it is computed from."""
    needs: Need | None = None
    """What a study must have; None if every study has it."""


@cache
def declared(folder: Literal["tables", "figures"]) -> dict[str, Exhibit]:
    """Return name -> declaration of the files in a folder of `stapo/analysis`, in the order of the report."""
    files = sorted((Path(__file__).parent / "analysis" / folder).glob("[!_]*.py"))
    found: dict[str, Exhibit] = {
        file.stem: import_module(f"stapo.analysis.{folder}.{file.stem}").EXHIBIT for file in files
    }
    return dict(sorted(found.items(), key=lambda one: one[1].order))


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


def __getattr__(name: str) -> dict[str, Exhibit]:
    """Return `TABLES`: name of a table -> its declaration.

    It is read when it is asked for, since the files of the folder import this module.
    """
    if name == "TABLES":
        return declared("tables")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
