"""The training methods as data: what each one is, with its source. No torch here."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

SelectionName = Literal[
    "keep_all",
    "silence_spurious",
    "keep_high_entropy",
    "silence_high_entropy",
    "silence_random",
    "silence_candidates",
]
"""Names of the functions in `stapo.objective.SELECTIONS`."""

AggregationName = Literal["token_mean", "sequence_mean"]
"""`token_mean`: over the kept tokens of the mini-batch; `sequence_mean`: per response, then over them."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One training method: everything in which the methods of the paper differ."""

    title: str
    """As printed in tables."""
    clip_low: float
    clip_high: float
    aggregation: AggregationName
    source: str
    """Paper, table or equation, revision."""
    selection: SelectionName = "keep_all"
    selection_args: Mapping[str, float | str] = field(default_factory=dict)
    kl_coefficient: float = 0.0
    """Of the k3 estimator of the KL divergence to the base model."""
    dual_clip: float | None = None


GRPO = Method(
    title="GRPO",
    clip_low=0.2,
    clip_high=0.2,
    aggregation="sequence_mean",
    # STAPO does not state the coefficient; 0.001 is that of veRL's GRPO recipe (DeepSeekMath: 0.04).
    kl_coefficient=0.001,
    source="DeepSeekMath, eq. 3; KL coefficient: our choice, veRL's recipe",
)
JUSTRL = Method(
    title="JustRL",
    clip_low=0.2,
    clip_high=0.28,
    aggregation="token_mean",
    source="JustRL's recipe: nothing silenced, token mean, clip-higher",
)
TWENTY_ENTROPY = replace(
    JUSTRL,
    title="20-Entropy",
    selection="keep_high_entropy",
    selection_args={"fraction": 0.2},
    source="arXiv 2506.01939, later revision: divides by the kept tokens",
)
STAPO = replace(
    JUSTRL,
    title="STAPO",
    selection="silence_spurious",
    selection_args={"tau_p": 0.002, "quantile": 0.75, "scope": "candidates"},
    source="arXiv 2602.15620 v5, Algorithm 1",
)
STAPO_V2 = replace(
    STAPO,
    title="STAPO (v2)",
    selection_args={"tau_p": 0.002, "quantile": 0.80, "scope": "all"},
    source="arXiv 2602.15620 v1 to v3",
)

METHODS: dict[str, Method] = {
    "grpo": GRPO,
    "20-entropy": TWENTY_ENTROPY,
    "justrl": JUSTRL,
    "stapo": STAPO,
    "stapo-v2": STAPO_V2,
    "high-entropy": replace(
        STAPO,
        title="High-entropy mask",
        selection="silence_high_entropy",
        selection_args={"tau_p": 0.002, "quantile": 0.75},
        source="arXiv 2602.15620 v5, masking ablation",
    ),
    "random": replace(
        STAPO,
        title="Random mask",
        selection="silence_random",
        selection_args={"tau_p": 0.002, "quantile": 0.75},
        source="arXiv 2602.15620 v5, masking ablation",
    ),
    "full-mask": replace(
        STAPO,
        title="JustRL-FullMask",
        selection="silence_candidates",
        selection_args={"tau_p": 0.002},
        source="arXiv 2602.15620 v5, JustRL-FullMask",
    ),
}
"""Name in study files and paths to method; also the source of schema, help texts and wildcards."""

BASELINES = ("grpo", "20-entropy", "justrl")
"""The methods that the headline compares STAPO with (paper, table 1)."""
