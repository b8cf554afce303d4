"""Methods of a study that differ from each other only in one number of their token selection."""

from dataclasses import dataclass

from stapo.canonical import canonical
from stapo.methods import ARGUMENTS, METHODS, Method
from stapo.study.code import named
from stapo.study.study import Study


@dataclass(frozen=True)
class Family:
    """Methods with the same settings except for one argument of their token selection."""

    argument: str
    """Name of the argument in `stapo.methods`, such as `quantile`."""
    selection: str
    """Name of their token selection."""
    members: dict[float, str]
    """Value of the argument, ascending -> method."""
    title: str
    """Title of the method of `stapo.methods` from which they descend: the kind of mask."""


def families(study: Study) -> list[Family]:
    """Return all families of at least two methods of a study, by argument and then by the methods' order."""
    found = []
    for argument in (name for name, one in ARGUMENTS.items() if not one.choices):
        groups: dict[str, dict[float, str]] = {}
        for name in study.run.methods:
            method = study.method(name)
            if argument in method.arguments:
                training = study.training_of(name).model_dump()
                key = canonical([_others(method, argument), training])
                # Of methods with equal settings, the first one.
                groups.setdefault(key, {}).setdefault(float(method.arguments[argument]), name)
        for members in groups.values():
            if len(members) > 1:
                found.append(_family(study, argument, dict(sorted(members.items()))))
    return found


def _family(study: Study, argument: str, members: dict[float, str]) -> Family:
    first = next(iter(members.values()))
    method = study.method(first)
    title = named(method.selection) if method.is_own else METHODS[study.origin_of(first)].title
    return Family(argument, method.selection, members, title)


def _others(method: Method, argument: str) -> dict[str, object]:
    """Return all settings of a method except for one argument of its selection and its names."""
    names = {"title", "source", "revision", "selection_args"}
    settings = {key: value for key, value in vars(method).items() if key not in names}
    return {**settings, "arguments": {**method.arguments, argument: None}}
