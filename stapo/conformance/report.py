"""Output of `stapo conformance`, and loading of its trainer."""

import importlib
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stapo.conformance.batches import Trainer
from stapo.conformance.kit import run_checks
from stapo.conformance.recognition import conventions
from stapo.methods import CONFORMANCE_METHODS
from stapo.study import StudyError


def find_trainer(name: str) -> tuple[Trainer, str]:
    """Return a shipped trainer or the function of a module, and the method that it is meant to implement.

    Raises:
        StudyError: there is no such trainer.
    """
    from stapo.conformance.trainers import TRAINERS

    if name in TRAINERS:
        return TRAINERS[name]
    module, colon, function = name.partition(":")
    if not colon:
        expected = ", ".join(TRAINERS)
        raise StudyError([f"--trainer: expected {expected} or module:function, found {name}"])
    sys.path.append("")  # Search the working directory too, after all other directories.
    try:
        found: Any = getattr(importlib.import_module(module), function)
    except Exception as error:  # The import of a module may raise anything.
        raise StudyError([f"--trainer: {name}: {type(error).__name__}: {error}"]) from error
    if not callable(found):
        raise StudyError([f"--trainer: {name}: expected a function, found {type(found).__name__}"])
    return found, "stapo"


def print_report(trainer: Trainer, name: str, method: str) -> bool:
    """Print checks and conventions; return whether all checks hold.

    Raises:
        StudyError: the method has no fixtures.
    """
    if method not in CONFORMANCE_METHODS:
        raise StudyError([f"--method: expected {', '.join(CONFORMANCE_METHODS)}, found {method}"])
    checks = run_checks(trainer, method)
    console, table = Console(), Table(title=f"{name} as {method}", box=None, pad_edge=False)
    for column in ("check", "verdict", "largest difference, relative"):
        table.add_column(column)
    for check in checks:
        verdict = "holds" if check.holds else "[bold red]does not hold[/]"
        table.add_row(check.name, verdict, escape(check.detail))
    console.print(table)
    console.print()
    try:
        found = conventions(trainer, method)
    except Exception as error:  # A trainer may raise anything; its checks are printed above.
        console.print(f"conventions: {type(error).__name__}: {error}", markup=False)
        return False
    for question, answer in found.items():
        console.print(f"{question}: {answer}", markup=False, highlight=False)
    return all(check.holds for check in checks)
