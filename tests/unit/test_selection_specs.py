"""Every selection declares what it needs, and everything that uses one reads the declaration."""

import inspect
import subprocess
import sys

import pytest

from stapo.methods import (
    METHODS,
    SELECTION_SPECS,
)
from stapo.objective import SELECTIONS
from stapo.repository import ROOT

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


@pytest.mark.parametrize(
    ("name", "reads"),
    [
        ("grpo", "none"), ("justrl", "none"), ("20-entropy", "all"), ("stapo", "positive"),
        ("stapo-v2", "all"), ("high-entropy", "positive"), ("random", "positive"), ("full-mask", "positive"),
    ],
)  # fmt: skip
def test_what_each_method_reads(name: str, reads: str) -> None:
    assert METHODS[name].reads == reads


def test_how_many_candidates_can_be_silenced() -> None:
    """The quantile of n different entropies: those strictly below, or above the mirrored one."""
    for name, counts in {
        "silence_spurious": [0, 0, 1, 2, 3, 3],
        "silence_high_entropy": [0, 0, 1, 2, 3, 3],
        "silence_random": [0, 1, 2, 2, 3, 4],
        "silence_candidates": [0, 1, 2, 3, 4, 5],
    }.items():
        spec, args = SELECTION_SPECS[name], {"quantile": 0.75, "scope": "candidates"}
        silenced = [spec.silenced(n, args) for n in range(6)]
        assert [one.most for one in silenced] == [one.usual for one in silenced] == counts
        exact = name in ("silence_random", "silence_candidates")
        assert [one.least for one in silenced] == (counts if exact else [0] * 6)
        if not exact:
            assert spec.silenced(5, {**args, "scope": "all"}) == (0, 5, 0)


OWN = """
from dataclasses import replace
from pathlib import Path
from stapo import methods

arguments = {
    "width": methods.Argument(default=3, description="Tokens around a rare one", ge=1, le=9),
    "side": methods.Argument(default="left", description="Of it", choices=("left", "right")),
}
methods.SELECTION_SPECS["silence_around"] = methods.SelectionSpec(arguments=arguments)
methods.METHODS["mine"] = replace(methods.JUSTRL, title="Mine", selection="silence_around")

from stapo.study import StudyError
from stapo.study.reading import read_study

compared = {"run": {"methods": ["mine", "justrl"]}, "compare": {"target": "mine"}}
for settings in (
    {"width": 10, "side": "up"}, {"wdth": 2}, {"tau_p": 0.1}, {"width": 2.5}, {"width": "4"}
):
    try:
        study = read_study(
            Path("workflows/studies/smoke.yaml"), changes={"methods": {"mine": settings}, **compared}
        )
        print(study.method("mine").arguments, study.method("mine").source)
    except StudyError as error:
        print(*error.errors, sep="\\n")
"""


def test_a_selection_of_ones_own_has_settings_of_its_own() -> None:
    """As an edit of `stapo/methods.py` would declare it: before the schema is made."""
    command = [sys.executable, "-c", OWN]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    source = f"{METHODS['justrl'].source}; here width 4"
    assert run.stdout.replace(" (--config)", "").splitlines() == [
        "methods.mine.width: Input should be less than or equal to 9 (found 10)",
        "methods.mine.side: Input should be 'left' or 'right' (found \"up\")",
        "methods.mine.wdth: unknown key; remove it or correct its spelling",
        "methods.mine.tau_p: mine has no such setting; it takes width, side",
        "methods.mine.width: Input should be a valid integer, got a number with a fractional part "
        "(found 2.5)",
        f"{{'width': 4, 'side': 'left'}} {source}",
    ]
