"""The settings of methods in a study: deviations from `stapo.methods`, variants, selections of one's own."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StringConstraints, create_model

from stapo.methods import AggregationName, Argument, selection_arguments
from stapo.study.fields import PYTHON_NAME, Buffer, Code, Name, Real, Sha256, Title, Value, Whole
from stapo.study.schema import Strict, unset


class AllMethods(Strict):
    """Deviations from the methods of `stapo.methods` that all methods of a study share."""

    clip_low: Real | None = Field(None, gt=0, le=1)
    clip_high: Real | None = Field(None, gt=0, le=1000)
    aggregation: AggregationName | None = None
    kl_coefficient: Real | None = Field(None, ge=0, le=1000)
    dual_clip: Real | None = Field(None, gt=1, le=1e6)


class MethodTraining(Strict):
    """Training settings of one method that differ from those of the study."""

    prompts_per_batch: Annotated[Whole, Field(ge=1, le=10**5)] | None = None
    group_size: Annotated[Whole, Field(ge=2, le=1024)] | None = None
    prompts_per_mini_batch: Annotated[Whole, Field(ge=1, le=10**5)] | None = None
    overlong_buffer_tokens: Buffer = None


class _MethodSettings(AllMethods):
    """Deviations from a method of `stapo.methods`; with `base`, a variant with its own name."""

    base: Name | None = Field(
        None, description="Method or variant to start from, with its settings in this study"
    )
    title: Title | None = None
    training: MethodTraining | None = None
    selection: Code | None = Field(
        None,
        exclude_if=unset,
        description="Token selection of your own: FILE.py:function beside it, package.module:function, "
        "or the name of an entry point in the group stapo.selections",
    )
    selection_args: dict[Annotated[str, StringConstraints(pattern=PYTHON_NAME)], Value] | None = (
        Field(
            None,
            max_length=100,
            exclude_if=unset,
            description="Arguments of `selection` other than their defaults",
        )
    )
    selection_sha256: Sha256 | None = Field(
        None,
        exclude_if=unset,
        description="Expected SHA-256 of the file of `selection`, as printed by `stapo check`; default: any",
    )


def _field(argument: Argument) -> Any:
    """Return type and field of an argument of a selection; None in a study keeps the method's value."""
    kind: Any = Literal[argument.choices] if argument.choices else Real
    if isinstance(argument.default, int):
        kind = Whole
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
