"""Every selection declares what it needs, and everything that uses one reads the declaration."""

import inspect

import pytest

from stapo.methods import SELECTION_SPECS
from stapo.objective import SELECTIONS

TABLES = ["logps", "entropies", "advantages", "mask"]


def test_every_selection_has_a_declaration_and_every_declaration_a_selection() -> None:
    assert SELECTION_SPECS.keys() == SELECTIONS.keys()


@pytest.mark.parametrize("name", SELECTION_SPECS)
def test_the_declared_arguments_are_those_of_the_function_with_its_defaults(name: str) -> None:
    spec, parameters = SELECTION_SPECS[name], inspect.signature(SELECTIONS[name]).parameters
    assert list(parameters)[:4] == TABLES
    own = {key: parameters[key].default for key in list(parameters)[4:]}
    assert ("seed" in own) == spec.draws
    own.pop("seed", None)
    assert {key: one.default for key, one in spec.arguments.items()} == own
