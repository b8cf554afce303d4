"""The training methods as data, each with its source. This module does not import torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Args = Mapping[str, float | str]
"""Argument of a token selection -> value."""

Rows = Literal["none", "positive", "all"]
"""Responses whose probabilities and entropies a selection reads; positive: those with A > 0."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of a token selection, with its allowed values."""

    default: float | str
    description: str = ""
    choices: tuple[str, ...] = ()
    """Allowed values, for a text."""
    bounds: Mapping[str, float] = field(default_factory=dict)
    """Bounds of a number, by the names that pydantic has for them: gt, ge, lt, le."""


@dataclass(frozen=True, kw_only=True)
class SelectionSpec:
    """Declaration of a token selection: its inputs, and known properties of its result."""

    arguments: Mapping[str, Argument] = field(default_factory=dict)
    """Name in the function -> argument; the function has the same defaults."""
    reads: Rows | Callable[[Args], Rows] = "all"
    """Rows that it reads; the values of other rows may be zeros."""
    has_threshold: bool = False
    """Whether its result depends on all tokens of its scope; the metrics then contain `mask_scope`."""
    draws: bool = False
    """Whether it draws random numbers; it then has an argument `seed`."""
    silenced: Literal["candidates"] | None = None
    """What it silences, if that is candidates (A > 0, probability below tau_p) alone."""
    recipe: int = 1
    """Raised when the same arguments select other tokens than before."""


def _scope_reads(args: Args) -> Rows:
    return "all" if args["scope"] == "all" else "positive"


ARGUMENTS = {
    "tau_p": Argument(
        default=0.002,
        description="Probability below which a token is rare",
        bounds={"gt": 0, "lt": 1},
    ),
    "quantile": Argument(
        default=0.75,
        description="Quantile of the entropies that is the threshold",
        bounds={"gt": 0, "lt": 1},
    ),
    "scope": Argument(
        default="candidates",
        description="Tokens whose entropies give the threshold",
        choices=("candidates", "all"),
    ),
    "fraction": Argument(
        default=0.2,
        description="Share of tokens that 20-Entropy keeps",
        bounds={"gt": 0, "le": 1},
    ),
}
"""The arguments of all selections: settings of a method in a study."""


def _named(*names: str) -> dict[str, Argument]:
    return {name: ARGUMENTS[name] for name in names}


SELECTION_SPECS: dict[str, SelectionSpec] = {
    "keep_all": SelectionSpec(reads="none"),
    "silence_spurious": SelectionSpec(
        arguments=_named("tau_p", "quantile", "scope"),
        reads=_scope_reads,
        has_threshold=True,
        silenced="candidates",
    ),
    "silence_high_entropy": SelectionSpec(
        arguments=_named("tau_p", "quantile", "scope"),
        reads=_scope_reads,
        has_threshold=True,
        silenced="candidates",
    ),
    "silence_random": SelectionSpec(
        arguments=_named("tau_p", "quantile"),
        reads="positive",
        draws=True,
        silenced="candidates",
    ),
    "silence_candidates": SelectionSpec(
        arguments=_named("tau_p"),
        reads="positive",
        silenced="candidates",
    ),
    "keep_high_entropy": SelectionSpec(
        arguments=_named("fraction"),
        recipe=2,  # ties: of all responses, not of the first
        has_threshold=True,
    ),
}
"""Name of a function in `stapo.objective.SELECTIONS` -> its declaration."""


AggregationName = Literal["token_mean", "group_token_mean", "sequence_mean"]
"""Kept tokens that the divisor counts: of the mini-batch, of each group, or of each response.

The means of groups or responses are then averaged.
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
    selection: str = "keep_all"
    """Name in `SELECTION_SPECS`, or `FILE.py:function` of a study's own."""
    selection_args: Args = field(default_factory=dict)
    selection_sha256: str = ""
    """SHA-256 of the file of a selection of a study's own."""
    kl_coefficient: float = 0.0
    """Coefficient of the k3 estimate of the KL divergence from the base model."""
    dual_clip: float | None = None
    s2t: Args = field(default_factory=dict)
    """Arguments with which S2T would silence tokens in its trainings, for a method without S2T; empty: those
    of STAPO (v5)."""

    @property
    def is_own(self) -> bool:
        """Whether its selection is a function of a study's own."""
        return ":" in self.selection

    @property
    def spec(self) -> SelectionSpec:
        """Declaration of its selection; of a study's own, only its arguments are known.

        Raises:
            ValueError: the selection is not declared.
        """
        if self.is_own:
            own = {name: Argument(default=value) for name, value in self.selection_args.items()}
            return SelectionSpec(arguments=own)
        if self.selection not in SELECTION_SPECS:
            known = ", ".join(SELECTION_SPECS)
            raise ValueError(f"selection: expected one of {known}, found {self.selection}")
        return SELECTION_SPECS[self.selection]

    @property
    def arguments(self) -> dict[str, float | str]:
        """All arguments of its selection, including defaults."""
        defaults = {name: one.default for name, one in self.spec.arguments.items()}
        return {**defaults, **self.selection_args}

    @property
    def reads(self) -> Rows:
        """Responses whose probabilities and entropies its selection reads."""
        reads = self.spec.reads
        return reads if isinstance(reads, str) else reads(self.arguments)


V3, V5 = "v1 to v3", "v4 and v5"
"""Revisions of arXiv 2602.15620, grouped by equal definition of the method."""

GRPO = Method(
    title="GRPO",
    clip_low=0.2,
    clip_high=0.2,
    aggregation="sequence_mean",
    kl_coefficient=0.04,
    source="DeepSeekMath, eq. 3 and its KL coefficient 0.04",
)
JUSTRL = Method(
    title="JustRL",
    clip_low=0.2,
    clip_high=0.28,
    aggregation="token_mean",
    source="JustRL's recipe (its dual clip of 10 aside): nothing silenced, token mean, clip-higher",
)
TWENTY_ENTROPY = replace(
    JUSTRL,
    title="20-Entropy",
    selection="keep_high_entropy",
    selection_args={"fraction": 0.2},
    source="arXiv 2506.01939, later revision: divides by the kept tokens; threshold of the mini-batch, our "
    "choice (its code: of the micro-batch)",
)
STAPO = replace(
    JUSTRL,
    title="STAPO",
    selection="silence_spurious",
    selection_args={"tau_p": 0.002, "quantile": 0.75, "scope": "candidates"},
    source="arXiv 2602.15620 v5, Algorithm 1",
    revision=V5,
)
STAPO_V2 = replace(
    STAPO,
    title="STAPO (v2)",
    selection_args={"tau_p": 0.002, "quantile": 0.80, "scope": "all"},
    # v1 to v3 are inconsistent: the settings say "80 %", the sensitivity study says "optimal 20 %" and masks
    # "the bottom 80 %". If the latter counts from the top, both mean the 80th percentile.
    source="arXiv 2602.15620 v1 to v3; tau_h read as the 80th percentile of all response tokens",
    revision=V3,
)
HIGH_ENTROPY = replace(
    STAPO,
    title="High-entropy mask",
    selection="silence_high_entropy",
    source="arXiv 2602.15620 v5, masking ablation; the mirrored threshold is our reading",
)
RANDOM = replace(
    STAPO,
    title="Random mask",
    selection="silence_random",
    selection_args={"tau_p": 0.002, "quantile": 0.75},
    source="arXiv 2602.15620 v5, masking ablation",
)
FULL_MASK = replace(
    STAPO,
    title="JustRL-FullMask",
    selection="silence_candidates",
    selection_args={"tau_p": 0.002},
    source="arXiv 2602.15620 v5, JustRL-FullMask; v1 to v3: probability only",
    revision="",
)

METHODS: dict[str, Method] = {
    "grpo": GRPO,
    "20-entropy": TWENTY_ENTROPY,
    "justrl": JUSTRL,
    "stapo": STAPO,
    "stapo-v2": STAPO_V2,
    "high-entropy": HIGH_ENTROPY,
    "random": RANDOM,
    "full-mask": FULL_MASK,
}
"""Name in study files and paths -> method; schema, help texts and wildcards are derived from this."""

PARENTS = dict.fromkeys(("stapo-v2", "high-entropy", "random", "full-mask"), "stapo")
"""Methods that are STAPO with another selection: a study's changes of STAPO also apply to them."""

BASELINES = ("grpo", "20-entropy", "justrl")
"""Baselines in the paper's main table and headline."""
TARGETS = ("stapo", "stapo-v2")
"""Default targets of comparisons: STAPO in its two revisions."""

CONFORMANCE_METHODS = ("grpo", "justrl", "20-entropy", "stapo", "stapo-v2")
"""Methods with fixtures in `stapo.conformance`."""


S2T = STAPO.selection
"""Name of the selection of S2T."""


def s2t_arguments(method: Method) -> dict[str, float | str]:
    """Return the arguments by which S2T would silence tokens in trainings with a method.

    They are the method's own if it is S2T, otherwise those of the study's S2T, with the method's own tau_p if
    its selection has one.
    """
    own = method.arguments
    if method.selection == S2T:
        return own
    return {**STAPO.arguments, **method.s2t, **({"tau_p": own["tau_p"]} if "tau_p" in own else {})}


def compared(
    run: Sequence[str], targets: Sequence[str] = (), baselines: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Return the targets and the baselines of a comparison.

    Args:
        run: names of the methods that are run.
        targets: targets named by the study; if empty, those of `TARGETS` that are run and not baselines.
        baselines: baselines named by the study; if empty, those of `BASELINES` that are run and not targets.
    """
    found = [name for name in TARGETS if name in run and name not in baselines]
    others = [name for name in BASELINES if name in run and name not in targets]
    return list(targets) or found, list(baselines) or others
