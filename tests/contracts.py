"""Contracts: checks of the names that we use of other packages; see `docs/private-names.md`.

`contracts_trl`, `contracts_training` and `contracts_evaluation` fill the list. No contract trains. A
contract uses a tiny real object if possible, otherwise a signature, otherwise the source code.
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
"""Package and name, as on the page -> check that raises an error if the name is missing or changed."""


def contract(package: str, *names: str) -> Callable[[Check], Check]:
    """Register a contract for some names; it is called with one of them."""

    def register(check: Check) -> Check:
        CONTRACTS.update({(package, name): check for name in names})
        return check

    return register


def rows_of_page() -> dict[tuple[str, str], str]:
    """Return package and name -> files where the page says that it is used."""
    rows, package = {}, ""
    for line in PAGE.read_text().splitlines():
        if heading := re.match(r"## (\S+) \S+$", line):
            package = heading[1]
        elif found := re.match(r"\| `([^|]+)` \| ([^|]+) \| [^|]+ \| [^|]+ \|$", line):
            assert (package, found[1]) not in rows, f"{found[1]} is on the page twice"
            rows[package, found[1]] = found[2]
    return rows


def hold(package: str, name: str) -> None:
    """Run a contract; an error becomes a failure with the package, its version, the name and its uses."""
    if package == "vllm":
        pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-vllm` runs this")
    try:
        CONTRACTS[package, name](name)
    except Exception as error:
        version = sys.version.split()[0] if package == PYTHON else metadata.version(package)
        where = rows_of_page().get((package, name), "files missing on the page")
        fault = f"{type(error).__name__}: {error}"
        pytest.fail(f"{package} {version}: {name}, used in {where}, is missing or differs: {fault}")


@cache
def source(thing: Any) -> str:
    return inspect.getsource(thing)


def expect(condition: Any, what: str) -> None:
    if not condition:
        raise LookupError(what)


def reads(thing: Any, *parts: str) -> None:
    """Check that the source contains these parts in this order."""
    text, place = source(thing), 0
    for part in parts:
        place = text.find(part, place)
        expect(place >= 0, f"`{part}` is missing in its source, or in another order")


def takes(function: Any, *parameters: str) -> None:
    """Check that these are the first parameters, which we pass by position."""
    found = [name for name in inspect.signature(function).parameters if name != "self"]
    expect(found[: len(parameters)] == list(parameters), f"its parameters are {found}")


def accepts(function: Any, *parameters: str) -> None:
    """Check that these parameters exist, which we pass by name."""
    missing = set(parameters) - set(inspect.signature(function).parameters)
    expect(not missing, f"it has no parameter {', '.join(sorted(missing))}")


def attribute(package: str, name: str) -> Any:
    """Return the object with a dotted name in a package."""
    found = import_module(package)
    for part in name.split("."):
        found = getattr(found, part)
    return found
