"""The settings of methods in a study, and methods as they change them: all of them, single ones, variants."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, create_model

from stapo.core.methods import METHODS, PARENTS, PARTS, Method
from stapo.core.methods.parts import ARGUMENTS, DEFAULTS, AggregationName, Argument
from stapo.suite.study.fields import (
    PYTHON_NAME,
    Buffer,
    Code,
    GroupSize,
    Name,
    Prompts,
    Sha256,
    Strict,
    Title,
    Value,
    off,
)
from stapo.suite.study.functions import named

FORMER_NAMES = {
    "clip_cov": "drop_covariant",
    "qae": "quantile",
    "w_reinforce": "signed",
    "dr_grpo": "centred",
    "advantage_reweighting": "by_probability",
    "stare": "amplify_surprising",
    "cispo": "capped_weights",
    "gspo": "clipped_sequences",
    "sapo": "soft_gate",
    "ce_gppo": "kept_clipped_gradients",
    "dppo": "within_divergence",
    "kl_cov": "log_ratio_of_covariant",
    "lp_reg": "divergence_of_unlikely",
}
"""Name of a part -> the name that it had before, which stays in fingerprints and in the configurations that
results record, so that these remain valid. Study files may use it until the next version, with a warning."""
NEW_NAMES = {former: name for name, former in FORMER_NAMES.items()}

NAMED_PARTS = {kind: names for kind, names in PARTS.items() if kind != "selection"}
"""Parts that a study chooses by name."""

Arguments = dict[Annotated[str, StringConstraints(pattern=PYTHON_NAME)], Value]


class AllMethods(Strict):
    """Deviations from the methods of `stapo.core.methods` that all methods of a study share."""

    clip_low: float | None = Field(
        None, gt=0, le=1, description="Importance ratios below 1 - clip_low are clipped"
    )
    clip_high: float | None = Field(
        None, gt=0, le=1000, description="Importance ratios above 1 + clip_high are clipped"
    )
    aggregation: AggregationName | None = Field(
        None, description="Mean of the loss: over the mini-batch, of each group, of each response"
    )
    kl_coefficient: float | None = Field(
        None, ge=0, le=1000, description="Coefficient of the KL term to the base model; 0: none"
    )
    dual_clip: float | None = Field(
        None, gt=1, le=1e6, description="Bound for A < 0: the surrogate is at least dual_clip A"
    )
    divisor: Literal["kept", "all"] | None = off(
        "Tokens that the divisor of the loss counts: those that the selection keeps, or all"
    )


class MethodTraining(Strict):
    """Training settings of one method that differ from those of the study."""

    prompts_per_batch: Prompts | None = Field(None, description="Prompts per rollout")
    group_size: GroupSize | None = Field(None, description="Responses per prompt, G")
    prompts_per_mini_batch: Prompts | None = Field(None, description="Prompts per optimiser step")
    overlong_buffer_tokens: Buffer = None


class _MethodSettings(AllMethods):
    """Deviations from a method of `stapo.core.methods`; with `base`, a variant with its own name."""

    base: Name | None = Field(
        None, description="Method or variant to start from, with its settings in this study"
    )
    title: Title | None = Field(None, description="Name in tables; default: that of the method")
    training: MethodTraining | None = Field(
        None, description="Training settings that differ from those of the study"
    )
    selection: Code | None = off("Token selection of your own: FILE.py:function")
    selection_args: Arguments | None = off(
        "Arguments of `selection` other than their defaults", max_length=100
    )
    selection_sha256: Sha256 | None = off(
        "Expected SHA-256 of its file, as printed by `stapo check`; default: any"
    )


def _field(argument: Argument) -> Any:
    """Return type and field of an argument; None in a study keeps the method's value."""
    kind: Any = Literal[argument.choices] if argument.choices else float
    bounds: dict[str, Any] = dict(argument.bounds)
    return Annotated[kind, Field(**bounds)] | None, Field(None, description=argument.description)


def _part(kind: str, names: Iterable[str]) -> Any:
    """Return type and field of a part; a former name is read as the new one."""
    known: Any = Literal[tuple(names)]
    present = BeforeValidator(
        lambda name: NEW_NAMES.get(name, name) if isinstance(name, str) else name
    )
    field = off(f"The {kind} of the method: a function of stapo.core.objective")
    return Annotated[known | None, present], field


if TYPE_CHECKING:
    MethodSettings = _MethodSettings
else:
    # Adds a field for each part that is chosen by name, and for each argument of a part.
    MethodSettings = create_model(
        "MethodSettings",
        __base__=_MethodSettings,
        __doc__=_MethodSettings.__doc__,
        **{name: _field(argument) for name, argument in ARGUMENTS.items()},
        **{kind: _part(kind, names) for kind, names in NAMED_PARTS.items()},
    )


CLIPS = ("clip_low", "clip_high", "dual_clip")
"""Settings of every method, which only some surrogates take."""
Settings = Mapping[str, Any]
"""Field of a method, or argument of its parts -> value; `base` names the method to start from."""


def resolve(
    name: str,
    methods: Mapping[str, Settings],
    all_methods: Settings,
    trained: Settings | None = None,
) -> Method:
    """Return a method with its settings in a study, and a source that says what differs.

    Those of `METHODS` are overridden by the study's for all methods, then by those for this one. A variant
    starts from its `base` in the study; all bases exist, and there is no cycle. `trained` are the training
    settings that differ from the study's.
    """
    origin = origin_of(name, methods)
    if name == origin:
        inherited = METHODS[name]
        if name in PARENTS:
            inherited = _as_variant(name, resolve(PARENTS[name], methods, all_methods))
        else:
            inherited = _changed(inherited, all_methods)
    else:
        inherited = resolve(methods[name]["base"], methods, all_methods)
        inherited = replace(inherited, title=name, revision="")
    given = {key: value for key, value in methods.get(name, {}).items() if key != "base"}
    method = _changed(inherited, given)
    changes = {**differences(METHODS[origin], method), **(trained or {})}
    return replace(method, source=_source(METHODS[origin], changes, is_variant=name != origin))


def origin_of(name: str, methods: Mapping[str, Settings]) -> str:
    """Return the method of `METHODS` that a method or variant is derived from."""
    while (base := methods.get(name, {}).get("base", name)) != name:
        name = base
    return name


def _as_variant(name: str, parent: Method) -> Method:
    """Return a method of `PARENTS`: its parent with the study's settings, and its own differences."""
    variant, usual = METHODS[name], METHODS[PARENTS[name]]
    differing = {key: value for key, value in vars(variant).items() if value != getattr(usual, key)}
    args = dict(differing.pop("args", {}).items() - usual.args.items())
    return _changed(parent, {**differing, **args})


def _changed(method: Method, given: Settings) -> Method:
    args = {key: value for key, value in given.items() if key in ARGUMENTS}
    fields = {key: value for key, value in given.items() if key not in args}
    selection_args = fields.pop("selection_args", {})
    if "selection" in fields:
        # Arguments of another selection are none of this one.
        fields["selection_args"] = selection_args
    return replace(method, **fields, args={**method.args, **args})


def _source(origin: Method, changes: Settings, is_variant: bool) -> str:
    """Return the source of a method, with all differences from it."""
    written = ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in changes.items()
    )
    if not is_variant:
        return f"{origin.source}; here {written}" if written else origin.source
    # A title such as "STAPO (v2)" contains the revision already.
    complete = "(" in origin.title or not origin.revision
    start = f"as {origin.title}" if complete else f"as {origin.title} ({origin.revision})"
    return f"{start}, but {written}" if written else start


def differences(origin: Method, method: Method) -> dict[str, Any]:
    """Return the settings of a method that have an effect and differ from those of another."""
    before, after = (vars(each) | each.effective for each in (origin, method))
    given = {**method.args, **method.selection_args}
    # In an order that does not depend on that of the keys in a file.
    names = sorted(given, key=lambda name: (name not in origin.args, name))
    names += ["selection", "clip_low", "clip_high", "aggregation", "kl_coefficient", "dual_clip"]
    changed = {
        name: after[name]
        for name in dict.fromkeys((*names, *DEFAULTS))
        if name in {*method.effective, *DEFAULTS} and after[name] != before.get(name)
    }
    return changed | ({"selection": named(method.selection_name)} if "selection" in changed else {})
