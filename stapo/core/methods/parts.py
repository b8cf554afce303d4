"""What a method is made of: its declarations, and the functions of `stapo.core.objective` that it names.

A method has a token selection with its divisor, token weights, a surrogate, an advantage estimator and a
penalty. This module does not import torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SEED = "seed"
"""Argument of a token selection that draws random numbers; it is no setting."""

Args = Mapping[str, float | str]
"""Argument of a token selection -> value."""

Rows = Literal["none", "positive", "all", "scope"]
"""Responses whose probabilities and entropies a function reads; positive: those with A > 0; scope: these, or
all if the argument `scope` says so."""


@dataclass(frozen=True)
class Argument:
    """An argument of a function, with its allowed values; the function has the same default."""

    default: float | str
    description: str = ""
    choices: tuple[str, ...] = ()
    """Allowed values, for a text."""
    bounds: Mapping[str, float] = field(default_factory=dict)
    """Bounds of a number, by the names that pydantic has for them: gt, ge, lt, le."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Declaration of a function: its inputs, and known properties of its result."""

    arguments: Mapping[str, Argument] = field(default_factory=dict)
    """Name in the function -> argument."""
    reads: Rows = "none"
    """Rows that it reads of the policy that selects tokens; the values of other rows may be zeros."""
    clips: tuple[str, ...] = ()
    """Fields of the method that it takes too."""
    acts_on_policy: bool = True
    """Whether the method differs from one with the default part if all ratios are 1."""
    of_responses: bool = False
    """Whether a surrogate has one ratio for a whole response, of which no token can be silenced."""
    draws: bool = False
    """Whether it draws random numbers; it then has an argument `seed`."""
    silences_candidates: bool = False
    """Whether a selection silences candidates (A > 0, probability below tau_p) alone."""


def _number(default: float, description: str, **bounds: float) -> Argument:
    return Argument(default, description, bounds=bounds)


ARGUMENTS = {
    "tau_p": _number(0.002, "Probability below which a token is rare", gt=0, lt=1),
    "quantile": _number(0.75, "Quantile of the entropies that is the threshold", gt=0, lt=1),
    "scope": Argument(
        "candidates", "Tokens whose entropies give the threshold", choices=("candidates", "all")
    ),
    "fraction": _number(0.2, "Share of tokens that 20-Entropy keeps", gt=0, le=1),
    "covariance_low": _number(1.0, "Covariance above which Clip-Cov drops tokens", ge=0),
    "covariance_high": _number(5.0, "Covariance below which Clip-Cov drops tokens", gt=0),
    "dropped_share": _number(2e-4, "Share of tokens that Clip-Cov drops", gt=0, lt=1),
}
"""The arguments of all selections: settings of a method in a study."""

PART_ARGUMENTS = {
    "baseline_quantile": _number(0.4, "Quantile of the rewards of a group: QAE", gt=0, lt=1),
    "positive_weight": _number(0.1, "Advantage of right answers: W-REINFORCE", ge=0),
    "alpha": _number(0.2, "Weight of p in the factor of a token", ge=0, le=1),
    "surprising_share": _number(0.1, "Share of rarest tokens that STARE amplifies", gt=0, lt=1),
    "amplification": _number(1.1, "Factor of these tokens", gt=0),
    "entropy_gate": _number(0.3, "Mean entropy below which STARE acts, nats", gt=0),
    "ratio_cap": _number(5.0, "Largest weight of a token: CISPO", gt=0),
    "gate_positive": _number(1.0, "Sharpness of SAPO's gate for A > 0", gt=0),
    "gate_negative": _number(1.05, "Sharpness of SAPO's gate for A < 0", gt=0),
    "kept_low": _number(0.75, "Share of gradient that CE-GPPO keeps for A < 0", ge=0),
    "kept_high": _number(1.0, "Share of gradient that CE-GPPO keeps for A > 0", ge=0),
    "divergence": _number(0.15, "Change of a probability at which DPPO stops", gt=0, lt=1),
    "covariant_share": _number(2e-3, "Share of tokens that KL-Cov penalises", gt=0, lt=1),
    "penalty_coefficient": _number(1.0, "Coefficient of the penalty of a token", ge=0),
    "unlikely_share": _number(0.01, "Share of rarest tokens that Lp-Reg holds", gt=0, lt=1),
    "min_p": _number(0.02, "Smallest p / max p of Lp-Reg's proxy", gt=0, lt=1),
    "entropy_coefficient": _number(1e-3, "Coefficient of the entropy bonus", ge=0),
    "entropy_target": _number(0.2, "Entropy up to which the bonus acts, nats", gt=0),
    "entropy_step": _number(1e-4, "Change of its coefficient per step", gt=0),
    "entropy_limit": _number(5e-3, "Its largest coefficient", gt=0),
}
"""The arguments of all other parts: settings of a method in a study."""


def _part(*arguments: str, **properties: Any) -> Part:
    known = ARGUMENTS | PART_ARGUMENTS
    return Part(arguments={name: known[name] for name in arguments}, **properties)


S2T_ARGUMENTS = "tau_p", "quantile", "scope"
CLIPS: dict[str, Any] = {"clips": ("clip_low", "clip_high")}
OFF_POLICY: dict[str, Any] = {"acts_on_policy": False}

SELECTION_SPECS: dict[str, Part] = {
    "keep_all": _part(),
    **{
        name: _part(*S2T_ARGUMENTS, reads="scope", silences_candidates=True)
        for name in ("silence_spurious", "silence_high_entropy")
    },
    "silence_random": _part(
        "tau_p", "quantile", reads="positive", draws=True, silences_candidates=True
    ),
    "silence_candidates": _part("tau_p", reads="positive", silences_candidates=True),
    "silence_spurious_negative": _part(*S2T_ARGUMENTS, reads="all"),
    "silence_matched": _part(*S2T_ARGUMENTS, reads="scope", draws=True),
    "clip_cov": _part(
        "covariance_low", "covariance_high", "dropped_share", reads="all", draws=True
    ),
    "keep_high_entropy": _part("fraction", reads="all"),
}  # fmt: skip
"""Name of a function in `stapo.core.objective.SELECTIONS` -> its declaration."""

PARTS: dict[str, dict[str, Part]] = {
    "advantage": {
        "group": _part(),
        "dr_grpo": _part(),
        "qae": _part("baseline_quantile"),
        "w_reinforce": _part("positive_weight"),
    },
    "weighting": {
        "none": _part(),
        "advantage_reweighting": _part("alpha"),
        "stare": _part("surprising_share", "amplification", "entropy_gate"),
    },
    "surrogate": {
        "clipped": _part(clips=("clip_low", "clip_high", "dual_clip")),
        "unclipped": _part(**OFF_POLICY),
        "cispo": _part("ratio_cap", **OFF_POLICY),
        "gspo": _part(**CLIPS, **OFF_POLICY, of_responses=True),
        "sapo": _part("gate_positive", "gate_negative", **OFF_POLICY),
        "ce_gppo": _part("kept_low", "kept_high", **CLIPS, **OFF_POLICY),
        "dppo": _part("divergence", **OFF_POLICY),
    },
    "penalty": {
        "none": _part(),
        "kl_cov": _part("covariant_share", "penalty_coefficient", reads="all", **OFF_POLICY),
        "lp_reg": _part("unlikely_share", "penalty_coefficient", "min_p", reads="all"),
        "entropy_bonus": _part("entropy_coefficient"),
        "adaptive_entropy_bonus": _part(
            "entropy_target", "entropy_step", "entropy_limit", reads="all"
        ),
    },
}
"""Part -> name in its registry in `stapo.core.objective` -> declaration.

The first of each is that of STAPO and its baselines.
"""


AggregationName = Literal["token_mean", "group_token_mean", "sequence_mean", "constant_length"]
"""Kept tokens that the divisor counts: of the mini-batch, of each group, or of each response.

The means of groups or responses are then averaged. A constant length is the maximum of a response.
"""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One training method: all settings in which the methods of the paper differ."""

    title: str
    """Title in tables."""
    clip_low: float
    clip_high: float
    aggregation: AggregationName
    source: str
    """Paper, table or equation, and the changes to it."""
    revision: str = ""
    """Revision of the paper, if its revisions define the method differently."""
    selection: str | Callable[..., Any] = "keep_all"
    """Name in `SELECTION_SPECS`, or a function like those of `stapo.core.objective.SELECTIONS`; in a study
    also `FILE.py:function`, which is loaded in the jobs that need it."""
    selection_args: Args = field(default_factory=dict)
    selection_sha256: str = ""
    """SHA-256 of the file of a selection of a study's own."""
    kl_coefficient: float = 0.0
    """Coefficient of the k3 estimate of the KL divergence from the base model."""
    dual_clip: float | None = None
    divisor: Literal["kept", "all"] = "kept"
    """Tokens that the divisor of the loss counts: those that the selection keeps, or all."""
    advantage: str = "group"
    """Name in `PARTS["advantage"]`, like the next three in theirs."""
    weighting: str = "none"
    surrogate: str = "clipped"
    penalty: str = "none"
    part_args: Args = field(default_factory=dict)
    """Arguments of these four other than their defaults."""

    @property
    def is_own(self) -> bool:
        """Whether its selection is a function of one's own."""
        return not isinstance(self.selection, str) or ":" in self.selection

    @property
    def selection_name(self) -> str:
        """Name of its selection."""
        selection = self.selection
        return selection if isinstance(selection, str) else selection.__qualname__

    @property
    def spec(self) -> Part:
        """Declaration of its selection; of a study's own, only its arguments are known."""
        if self.is_own:
            arguments = {name: Argument(value) for name, value in self.selection_args.items()}
            return Part(arguments=arguments, reads="all")
        return SELECTION_SPECS[self.selection_name]

    @property
    def arguments(self) -> dict[str, float | str]:
        """All arguments of its selection, including defaults."""
        defaults = {name: argument.default for name, argument in self.spec.arguments.items()}
        return {**defaults, **self.selection_args}

    @property
    def reads(self) -> Rows:
        """Responses whose probabilities and entropies its selection or penalty reads."""
        if self.part("penalty").reads == "all":
            return "all"
        if (reads := self.spec.reads) != "scope":
            return reads
        return "all" if self.arguments["scope"] == "all" else "positive"

    def part(self, kind: str) -> Part:
        """Return the declaration of one of its parts: a key of `PARTS`."""
        return PARTS[kind][getattr(self, kind)]

    def arguments_of(self, kind: str) -> dict[str, Any]:
        """Return what the function of a part takes: all its arguments, and fields of the method."""
        part = self.part(kind)
        arguments = {
            name: self.part_args.get(name, argument.default)
            for name, argument in part.arguments.items()
        }
        return {**arguments, **{name: getattr(self, name) for name in part.clips}}

    @property
    def acts_on_policy(self) -> bool:
        """Whether it differs from the clipped surrogate with nothing silenced if all ratios are 1."""
        others = (kind for kind in PARTS if kind in self.settings)
        return self.selection != "keep_all" or any(
            self.part(kind).acts_on_policy for kind in others
        )

    @property
    def effective(self) -> dict[str, Any]:
        """Every setting that has an effect, with its value, defaults included."""
        settings = {name: value for name, value in self.settings.items() if name != "part_args"}
        common = {
            name: getattr(self, name) for name in ("selection", "aggregation", "kl_coefficient")
        }
        for kind in PARTS:
            settings |= self.arguments_of(kind)
        return {**common, **self.arguments, **settings}

    @property
    def settings(self) -> dict[str, Any]:
        """Every field that is not that of STAPO and its baselines, of what they all share."""
        values = {name: getattr(self, name) for name in PAPER_DEFAULTS}
        return {name: value for name, value in values.items() if value != PAPER_DEFAULTS[name]}


PAPER_DEFAULTS: dict[str, Any] = {
    "divisor": "kept", "advantage": "group", "weighting": "none", "surrogate": "clipped",
    "penalty": "none", "part_args": {},
}  # fmt: skip
"""Fields in which no method of the paper differs from another -> their value there."""
