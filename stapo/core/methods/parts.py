"""A method, and the declarations of its parts, functions of `stapo.core.objective`; torch is not imported."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SEED, STEP = "seed", "step"
"""Arguments of token selections that the update gives, and no study: for random numbers; its number."""

Args = Mapping[str, float | str]
"""Argument of a part -> value."""

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
    given: tuple[str, ...] = ()
    """Arguments that the update gives: `SEED`, `STEP`."""
    silences_candidates: bool = False
    """Whether a selection silences candidates (A > 0, probability below tau_p) alone."""


def _number(default: float, description: str, **bounds: float) -> Argument:
    return Argument(default, description, bounds=bounds)


def _share(default: float, description: str) -> Argument:
    return _number(default, description, gt=0, lt=1)


def _part(**declared: Any) -> Part:
    """Return a part: each keyword is an argument of its function, or a field of `Part`."""
    arguments = {key: value for key, value in declared.items() if isinstance(value, Argument)}
    fields = {key: value for key, value in declared.items() if key not in arguments}
    return Part(arguments=arguments, **fields)


TAU_P = _share(0.002, "Probability below which a token is rare")
QUANTILE = _share(0.75, "Quantile of the entropies that is the threshold")
SCOPE = Argument("candidates", "Tokens whose entropies give the threshold", ("candidates", "all"))
S2T: dict[str, Any] = {"tau_p": TAU_P, "quantile": QUANTILE, "scope": SCOPE}
TOWARDS: dict[str, Any] = {
    "target_entropy": _number(0.12, "Mean entropy at which nothing is silenced, nats", gt=0),
    "entropy_width": _number(0.05, "Distance from it at which the quantile would be 1, nats", gt=0),
}
COEFFICIENT = _number(1.0, "Coefficient of the penalty of a token", ge=0)
CLIP = ("clip_low", "clip_high")

PARTS: dict[str, dict[str, Part]] = {
    "selection": {
        "keep_all": _part(),
        "silence_spurious": _part(**S2T, reads="scope", silences_candidates=True),
        "silence_high_entropy": _part(**S2T, reads="scope", silences_candidates=True),
        "silence_random": _part(
            tau_p=TAU_P,
            quantile=QUANTILE,
            reads="positive",
            given=(SEED,),
            silences_candidates=True,
        ),
        "silence_candidates": _part(tau_p=TAU_P, reads="positive", silences_candidates=True),
        "silence_spurious_negative": _part(**S2T, reads="all"),
        "silence_matched": _part(**S2T, reads="scope", given=(SEED,)),
        "silence_above_entropy": _part(**S2T, **TOWARDS, reads="all", silences_candidates=True),
        "silence_towards_entropy": _part(
            **S2T, **TOWARDS, reads="all", negative_tau_p=_share(0.01, "tau_p of wrong answers")
        ),
        "silence_in_updates": _part(
            **S2T,
            reads="scope",
            given=(STEP,),
            silences_candidates=True,
            first_update=_number(1, "First update in which tokens are silenced", ge=1),
            last_update=_number(40, "Last one", ge=1),
        ),
        "keep_high_entropy": _part(
            reads="all", fraction=_number(0.2, "Share of tokens that 20-Entropy keeps", gt=0, le=1)
        ),
        "clip_cov": _part(
            reads="all",
            given=(SEED,),
            covariance_low=_number(1.0, "Covariance above which Clip-Cov drops tokens", ge=0),
            covariance_high=_number(5.0, "Covariance below which Clip-Cov drops tokens", gt=0),
            dropped_share=_share(2e-4, "Share of tokens that Clip-Cov drops"),
        ),
        "clip_b": _part(
            reads="all",
            score_deviations=_number(
                2.5, "Standard deviations below the mean where Clip_B drops tokens", ge=0
            ),
        ),
    },
    "advantage": {
        "group": _part(),
        "dr_grpo": _part(),
        "wapo": _part(),
        "qae": _part(baseline_quantile=_share(0.4, "Quantile of the rewards of a group: QAE")),
        "w_reinforce": _part(
            positive_weight=_number(0.1, "Advantage of right answers: W-REINFORCE", ge=0)
        ),
    },
    "weighting": {
        "none": _part(),
        "advantage_reweighting": _part(
            alpha=_number(0.2, "Weight of p in the factor of a token", ge=-1, le=1)
        ),
        "stare": _part(
            surprising_share=_share(0.1, "Share of rarest tokens that STARE amplifies"),
            amplification=_number(1.1, "Factor of these tokens", gt=0),
            entropy_gate=_number(0.3, "Mean entropy below which STARE acts, nats", gt=0),
        ),
    },
    "surrogate": {
        "clipped": _part(clips=(*CLIP, "dual_clip")),
        "unclipped": _part(acts_on_policy=False),
        "cispo": _part(
            acts_on_policy=False, ratio_cap=_number(5.0, "Largest weight of a token: CISPO", gt=0)
        ),
        "gspo": _part(acts_on_policy=False, clips=CLIP, of_responses=True),
        "sapo": _part(
            acts_on_policy=False,
            gate_positive=_number(1.0, "Sharpness of SAPO's gate for A > 0", gt=0),
            gate_negative=_number(1.05, "Sharpness of SAPO's gate for A < 0", gt=0),
        ),
        "ce_gppo": _part(
            acts_on_policy=False,
            clips=CLIP,
            kept_low=_number(0.75, "Share of gradient that CE-GPPO keeps for A < 0", ge=0),
            kept_high=_number(1.0, "Share of gradient that CE-GPPO keeps for A > 0", ge=0),
        ),
        "dppo": _part(
            acts_on_policy=False, divergence=_share(0.15, "Change of probability where DPPO stops")
        ),
    },
    "penalty": {
        "none": _part(),
        "kl_cov": _part(
            acts_on_policy=False,
            reads="all",
            covariant_share=_share(2e-3, "Share of tokens that KL-Cov penalises"),
            penalty_coefficient=COEFFICIENT,
        ),
        "lp_reg": _part(
            reads="all",
            unlikely_share=_share(0.01, "Share of rarest tokens that Lp-Reg holds"),
            penalty_coefficient=COEFFICIENT,
            min_p=_share(0.02, "Smallest p / max p of Lp-Reg's proxy"),
        ),
        "entropy_bonus": _part(
            entropy_coefficient=_number(1e-3, "Coefficient of the entropy bonus", ge=0)
        ),
        "adaptive_entropy_bonus": _part(
            reads="all",
            entropy_target=_number(0.2, "Entropy up to which the bonus acts, nats", gt=0),
            entropy_step=_number(1e-4, "Change of its coefficient per step", gt=0),
            entropy_limit=_number(5e-3, "Its largest coefficient", gt=0),
        ),
    },
}
"""Kind of part -> name in its registry in `stapo.core.objective` -> declaration.

A name is that of a study file and of the function's paper. The first of each kind is that of JustRL.
"""

ARGUMENTS = {
    name: argument
    for parts in PARTS.values()
    for part in parts.values()
    for name, argument in part.arguments.items()
}
"""Arguments of all parts: settings of a method in a study."""
DEFAULTS = {"divisor": "kept", **{kind: next(iter(names)) for kind, names in PARTS.items()}}
"""Parts and divisor of JustRL."""

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
    """Name in `PARTS["selection"]`, or a function like those of `stapo.core.objective.SELECTIONS`; in a study
    also `FILE.py:function`, which is loaded in the jobs that need it."""
    advantage: str = "group"
    """Name in `PARTS["advantage"]`, like the next three in theirs."""
    weighting: str = "none"
    surrogate: str = "clipped"
    penalty: str = "none"
    args: Args = field(default_factory=dict)
    """Arguments of these parts other than their defaults; those of other parts have no effect."""
    selection_args: Args = field(default_factory=dict)
    """Arguments of a selection of one's own."""
    selection_sha256: str = ""
    """SHA-256 of the file of a selection of a study's own."""
    divisor: Literal["kept", "all"] = "kept"
    """Tokens that the divisor of the loss counts: those that the selection keeps, or all."""
    kl_coefficient: float = 0.0
    """Coefficient of the k3 estimate of the KL divergence from the base model."""
    dual_clip: float | None = None

    def __post_init__(self) -> None:
        """Refuse arguments that would be ignored."""
        if self.selection_args and not self.is_own:
            raise ValueError("selection_args: the selection is not one of your own; write args")
        if unknown := sorted(self.args.keys() - ARGUMENTS.keys()):
            raise ValueError(
                f"args: no part takes {', '.join(unknown)}; use {', '.join(ARGUMENTS)}"
            )

    @property
    def is_own(self) -> bool:
        """Whether its selection is a function of one's own."""
        return not isinstance(self.selection, str) or ":" in self.selection

    @property
    def selection_name(self) -> str:
        """Name of its selection."""
        selection = self.selection
        return selection if isinstance(selection, str) else selection.__qualname__

    def part(self, kind: str) -> Part:
        """Return the declaration of one of its parts: a key of `PARTS`."""
        if kind == "selection" and self.is_own:
            return Part(reads="all")
        return PARTS[kind][getattr(self, kind)]

    def arguments_of(self, kind: str) -> dict[str, Any]:
        """Return what the function of a part takes: all its arguments, and fields of the method."""
        if kind == "selection" and self.is_own:
            return dict(self.selection_args)
        part = self.part(kind)
        arguments = {
            name: self.args.get(name, argument.default) for name, argument in part.arguments.items()
        }
        return {**arguments, **{name: getattr(self, name) for name in part.clips}}

    @property
    def reads(self) -> Rows:
        """Responses whose probabilities and entropies its selection or penalty reads."""
        if self.part("penalty").reads == "all":
            return "all"
        if (reads := self.part("selection").reads) != "scope":
            return reads
        return "all" if self.arguments_of("selection")["scope"] == "all" else "positive"

    @property
    def acts_on_policy(self) -> bool:
        """Whether it differs from JustRL if all ratios are 1."""
        return any(self.part(kind).acts_on_policy for kind in PARTS if kind in self.settings)

    @property
    def effective(self) -> dict[str, Any]:
        """Every setting that has an effect, with its value, defaults included."""
        names = ("selection", "aggregation", "kl_coefficient")
        settings = {name: getattr(self, name) for name in names}
        settings |= self.arguments_of("selection") | self.settings
        for kind in PARTS:
            settings |= self.arguments_of(kind)
        return settings

    @property
    def settings(self) -> dict[str, Any]:
        """Its parts and divisor where they are not those of JustRL."""
        values = {name: getattr(self, name) for name in DEFAULTS}
        return {name: value for name, value in values.items() if value != DEFAULTS[name]}
