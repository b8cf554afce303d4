"""Every part declares what it needs, and all that uses one reads the declaration."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stapo.core.methods import PARTS, STAPO
from stapo.core.objective import SELECTIONS
from stapo.core.objective.advantages import ADVANTAGES
from stapo.core.objective.penalties import PENALTIES
from stapo.core.objective.surrogates import SURROGATES
from stapo.core.objective.weightings import WEIGHTINGS

TABLES = ["logps", "entropies", "advantages", "mask"]
FUNCTIONS: dict[str, tuple[list[str], dict[str, Callable[..., Any]]]] = {
    "selection": (TABLES, SELECTIONS),
    "weighting": (TABLES, WEIGHTINGS),
    "penalty": (TABLES, {name: one.coefficients for name, one in PENALTIES.items()}),
    "surrogate": (["logps", "old_logps", "advantages", "mask"], SURROGATES),
    "advantage": (["rewards", "group_size", "eps"], ADVANTAGES),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_declared_arguments_are_those_of_the_function_with_its_defaults(kind: str) -> None:
    leading, functions = FUNCTIONS[kind]
    assert PARTS[kind].keys() == functions.keys()
    for name, function in functions.items():
        spec, parameters = PARTS[kind][name], inspect.signature(function).parameters
        assert list(parameters)[: len(leading)] == leading, name
        own = {key: one.default for key, one in [*parameters.items()][len(leading) :]}
        assert own.keys() & {"seed", "step"} == {*spec.given}, name
        # Given by the caller: the random numbers, clips, the proxy, and what a penalty remembers.
        given = {"seed", "step", "clips", *spec.clips, "proxy"}
        given |= {*PENALTIES[name].initial} if kind == "penalty" else set()
        declared = {key: one.default for key, one in spec.arguments.items()}
        assert {key: one for key, one in own.items() if key not in given} == declared, name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"args": {"tau": 0.1}}, "args: no part takes tau; use tau_p, quantile, "),
        ({"selection_args": {"tau_p": 0.1}}, "selection_args: .* not one of your own; write args"),
    ],
)
def test_arguments_that_would_be_ignored_are_refused(changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(STAPO, **changes)
