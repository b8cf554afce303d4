"""What a contract about a name of another package is: see `docs/private-names.md`.

`contracts_trl`, `contracts_training` and `contracts_evaluation` fill the list. No contract trains; where
possible it asks a tiny real object, else a signature, else the source.
"""

import inspect
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module, metadata
from typing import Any

import pytest

from stapo.repository import ROOT

PAGE = ROOT / "docs" / "private-names.md"
PYTHON = "Python"

Check = Callable[[str], None]
CONTRACTS: dict[tuple[str, str], Check] = {}
"""Package and name, as on the page -> what raises when the name is gone or means something else."""


def contract(package: str, *names: str) -> Callable[[Check], Check]:
    """Register a contract, which is given the name that it is asked about."""

    def register(check: Check) -> Check:
        CONTRACTS.update({(package, name): check for name in names})
        return check

    return register


def rows_of_page() -> dict[tuple[str, str], str]:
    """Return package and name -> where it is used, file by file."""
    rows, package = {}, ""
    for line in PAGE.read_text().splitlines():
        if heading := re.match(r"## (\S+) \S+$", line):
            package = heading[1]
        elif found := re.match(r"\| `([^|]+)` \| ([^|]+) \| [^|]+ \| [^|]+ \|$", line):
            assert (package, found[1]) not in rows, f"{found[1]} stands on the page twice"
            rows[package, found[1]] = found[2]
    return rows


def hold(package: str, name: str) -> None:
    """Run a contract; what it raises becomes a failure that says all that one needs to know."""
    if package == "vllm":
        pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-vllm` runs this")
    try:
        CONTRACTS[package, name](name)
    except Exception as error:
        version = sys.version.split()[0] if package == PYTHON else metadata.version(package)
        where = rows_of_page().get((package, name), "nothing that the page names")
        fault = f"{type(error).__name__}: {error}"
        pytest.fail(f"{package} {version}: {name} is not what we rely on in {where}: {fault}")


@cache
def source(thing: Any) -> str:
    return inspect.getsource(thing)


def expect(condition: Any, what: str) -> None:
    if not condition:
        raise LookupError(what)


def reads(thing: Any, *parts: str) -> None:
    """Expect these parts in the source, in this order."""
    text, place = source(thing), 0
    for part in parts:
        place = text.find(part, place)
        expect(place >= 0, f"its source has no `{part}` here")


def takes(function: Any, *parameters: str) -> None:
    """Expect these parameters first, which are given by position."""
    found = [name for name in inspect.signature(function).parameters if name != "self"]
    expect(found[: len(parameters)] == list(parameters), f"its parameters are {found}")


def accepts(function: Any, *parameters: str) -> None:
    """Expect these parameters anywhere, which are given by name."""
    missing = set(parameters) - set(inspect.signature(function).parameters)
    expect(not missing, f"it has no parameter {', '.join(sorted(missing))}")


def attribute(package: str, name: str) -> Any:
    """Return what a dotted name of a package is."""
    found = import_module(package)
    for part in name.split("."):
        found = getattr(found, part)
    return found
