"""Settings of StapoTrainer: TRL's, ours, and those of the method."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, make_dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ValidationError, create_model
from trl import GRPOConfig

from stapo.methods import METHODS, Method
from stapo.study.checks import argument_problems
from stapo.study.loader import Problem, lines
from stapo.study.method_settings import MethodSettings, resolve
from stapo.study.schema import TrainingSettings
from stapo.study.validation import field_problems
from stapo.training.unused import UNUSED, default, unused_settings

METHOD_SETTINGS = {
    name: one
    for name, one in MethodSettings.model_fields.items()
    if name not in ("base", "title", "training") and not name.startswith("selection")
}
"""What a study may set in a method; its base is `method` here, and its batches are settings of TRL.

A token selection of one's own is part of a `Method`, which StapoTrainer takes."""


_TRL = {one.name for one in fields(GRPOConfig)}


@dataclass
class _Settings(GRPOConfig):  # type: ignore[misc]
    """TRL's settings and ours; `per_device_train_batch_size` is the part of the mini-batch of one rank.

    The settings of the method, such as `clip_high` and `tau_p`, are those of `methods` in a study; None is
    the method's own value. Settings of TRL that the update does not use are refused, with what to set
    instead.

    Raises:
        TypeError: a name is unknown.
        ValueError: settings have no effect here, or are wrong; one line each.
    """

    _given: ClassVar[frozenset[str]] = frozenset()
    """Names of the settings that were passed."""

    method: str = field(default="stapo", metadata={"help": "Name in stapo.methods.METHODS"})
    statistics: str = field(
        default="behaviour",
        metadata={"help": "Policy whose statistics select tokens: behaviour or current"},
    )
    micro_batch_tokens: int = field(
        default=32768, metadata={"help": "Token budget of one forward and backward pass"}
    )
    packed: bool | None = field(
        default=None,
        metadata={
            "help": "Whether passes have no padding; by default on CUDA, where the model can"
        },
    )
    advantage_epsilon: float = field(default=1e-6, metadata={"help": "Added to the group's std"})
    decayed: str = field(default="matrices", metadata={"help": "Weight decay: matrices or all"})
    rollout_mismatch_limit: float | None = field(
        default=None, metadata={"help": "Mean mismatch with vLLM, in nats, above which it stops"}
    )
    rollout_correction: float | None = field(
        default=None, metadata={"help": "Cap of the importance weights of vLLM's tokens; None: off"}
    )
    token_records_mb: int = field(
        default=0, metadata={"help": "Size limit of the token records, in MB; 0 records no tokens"}
    )
    run_fingerprint: str = field(
        default="", metadata={"help": "Written into checkpoints, to skip those of other runs"}
    )

    def __post_init__(self) -> None:
        if self.use_cpu:
            # Otherwise the device of each of several processes is `cpu:0`, which torch.load cannot map to.
            os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
        super().__post_init__()
        check(self)

    def __repr__(self) -> str:
        """Return the settings that were passed and differ from their defaults; never a token of the Hub."""
        given = [one for one in fields(self) if one.name in self._given]
        shown = {one.name: getattr(self, one.name) for one in given}
        shown = {one.name: shown[one.name] for one in given if shown[one.name] != default(one)}
        shown |= {name: "***" for name in shown if name.endswith("_token")}
        inside = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({inside})"

    __str__ = __repr__


if TYPE_CHECKING:
    StapoConfig = _Settings
else:
    # Adds a field for each setting of a method, among them the arguments of all token selections.
    StapoConfig = make_dataclass(
        "StapoConfig",
        [
            (name, one.annotation, field(default=None, metadata={"help": one.description or name}))
            for name, one in METHOD_SETTINGS.items()
        ],
        bases=(_Settings,),
        namespace={"__doc__": _Settings.__doc__, "__module__": __name__},
        repr=False,
    )
    _generated = StapoConfig.__init__

    @wraps(_generated)
    def _with_hints(self: Any, *args: Any, **named: Any) -> None:
        known = [one.name for one in fields(StapoConfig)]
        useful = [name for name in known if name not in UNUSED]
        unknown = [name for name in named if name not in known]
        if unknown:
            raise TypeError(
                "\n".join(f"{name}: unknown setting{hint(name, useful)}" for name in unknown)
            )
        self._given = frozenset(signature(_generated).bind(self, *args, **named).arguments)
        _generated(self, *args, **named)

    StapoConfig.__init__ = _with_hints


def check(args: StapoConfig) -> None:
    """Check the settings that StapoTrainer does not use, the method, and its settings.

    Raises:
        ValueError: one line for each setting that is wrong or would be ignored.
    """
    errors = [*unused_settings(args), *lines(_problems(args))]
    if errors:
        raise ValueError("\n".join(errors))


def given_settings(args: StapoConfig) -> dict[str, Any]:
    """Return the settings of the method that are set."""
    given = {name: getattr(args, name) for name in METHOD_SETTINGS}
    return {name: value for name, value in given.items() if value is not None}


def method_of(args: StapoConfig) -> Method:
    """Return the method with its settings, as a study with the same ones would have it."""
    settings = MethodSettings.model_validate(given_settings(args))
    return resolve(args.method, {args.method: settings.model_dump(exclude_none=True)}, {})


def hint(name: str, known: list[str]) -> str:
    """Return the known name that resembles another, as the end of a message; empty if none does."""
    meant = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {meant[0]}?" if meant else ""


_OURS: dict[str, Any] = {
    name: (one.annotation, one)
    for name, one in TrainingSettings.model_fields.items()
    if name in {own.name for own in fields(_Settings)} - _TRL
}
"""Our settings that are also settings of a study's `training`, as fields of a model."""
_Checked = create_model("_Checked", __base__=MethodSettings, **_OURS)
"""The checks of a study for these and for the settings of the method."""


def _problems(args: StapoConfig) -> Iterator[Problem]:
    """Yield what a study would report of the method and of the settings."""
    given = {name: getattr(args, name) for name in _Checked.model_fields if hasattr(args, name)}
    try:
        _Checked.model_validate(given, strict=True)
    except ValidationError as error:
        yield from field_problems(error, given, _Checked.model_json_schema())
    if not isinstance(args.method, str) or args.method not in METHODS:
        known = hint(str(args.method), [*METHODS]) or f"; choose from {', '.join(METHODS)}"
        yield ("method",), f"unknown method {str(args.method)!r}{known}"
        return
    for name, about in argument_problems(given_settings(args), args.method):
        yield (name,), about
