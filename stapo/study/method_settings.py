"""The settings of methods in a study: deviations from `stapo.methods`, variants, selections of one's own."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StringConstraints, create_model

from stapo.methods import AggregationName, Argument, selection_arguments
from stapo.study.fields import (
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
    unset,
)

Arguments = dict[Annotated[str, StringConstraints(pattern=PYTHON_NAME)], Value]


class AllMethods(Strict):
    """Deviations from the methods of `stapo.methods` that all methods of a study share."""

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


class MethodTraining(Strict):
    """Training settings of one method that differ from those of the study."""

    prompts_per_batch: Prompts | None = Field(None, description="Prompts per rollout")
    group_size: GroupSize | None = Field(None, description="Responses per prompt, G")
    prompts_per_mini_batch: Prompts | None = Field(None, description="Prompts per optimiser step")
    overlong_buffer_tokens: Buffer = None


class _MethodSettings(AllMethods):
    """Deviations from a method of `stapo.methods`; with `base`, a variant with its own name."""

    base: Name | None = Field(
        None, description="Method or variant to start from, with its settings in this study"
    )
    title: Title | None = Field(None, description="Name in tables; default: that of the method")
    training: MethodTraining | None = Field(
        None, description="Training settings that differ from those of the study"
    )
    selection: Code | None = Field(
        None,
        exclude_if=unset,
        description="Token selection of your own: FILE.py:function beside it, package.module:function, "
        "or the name of an entry point in the group stapo.selections",
    )
    selection_args: Arguments | None = Field(
        None,
        max_length=100,
        exclude_if=unset,
        description="Arguments of `selection` other than their defaults",
    )
    selection_sha256: Sha256 | None = Field(
        None,
        exclude_if=unset,
        description="Expected SHA-256 of the file of `selection`, as printed by `stapo check`; default: any",
    )


def _field(argument: Argument) -> Any:
    """Return type and field of an argument of a selection; None in a study keeps the method's value."""
    kind: Any = Literal[argument.choices] if argument.choices else float
    if isinstance(argument.default, int):
        kind = int
    bounds = {name: getattr(argument, name) for name in ("gt", "ge", "lt", "le")}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return Annotated[kind, Field(**given)] | None, Field(None, description=argument.description)


if TYPE_CHECKING:
    MethodSettings = _MethodSettings
else:
    # Adds a field for each argument of a selection in `stapo.methods`.
    MethodSettings = create_model(
        "MethodSettings",
        __base__=_MethodSettings,
        __doc__=_MethodSettings.__doc__,
        **{name: _field(argument) for name, argument in selection_arguments().items()},
    )
