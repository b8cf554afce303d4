"""Report on a trainer in plain text, and loading of the trainer. A trainer of one's own needs torch alone."""

import argparse
import importlib
import sys
from typing import Any

from stapo.conformance.batches import Trainer
from stapo.conformance.kit import run_checks
from stapo.conformance.recognition import conventions
from stapo.methods import CONFORMANCE_METHODS


def find_trainer(name: str) -> tuple[Trainer, str]:
    """Return a shipped trainer or the function of a module, and the method that it is meant to implement.

    Raises:
        ValueError: there is no such trainer.
    """
    module, colon, function = name.partition(":")
    if not colon:
        return _shipped_trainer(name)
    sys.path.append("")  # Search the working directory too, after all other directories.
    try:
        found: Any = getattr(importlib.import_module(module), function)
    except Exception as error:  # The import of a module may raise anything.
        raise ValueError(f"--trainer: {name}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ValueError(f"--trainer: {name}: expected a function, found {type(found).__name__}")
    return found, "stapo"


def _shipped_trainer(name: str) -> tuple[Trainer, str]:
    try:
        from stapo.conformance.trainers import TRAINERS
    except ModuleNotFoundError as absent:
        reason = f"{name} needs {absent.name}: pip install 'stapo[suite]', or give module:function"
        raise ValueError(f"--trainer: {reason}") from absent
    if name not in TRAINERS:
        expected = ", ".join(TRAINERS)
        raise ValueError(f"--trainer: expected {expected} or module:function, found {name}")
    return TRAINERS[name]


def report(trainer: Trainer, name: str, method: str) -> tuple[list[str], bool]:
    """Return lines with all checks and conventions, and whether all checks hold.

    Raises:
        ValueError: the method has no fixtures.
    """
    if method not in CONFORMANCE_METHODS:
        raise ValueError(f"--method: expected {', '.join(CONFORMANCE_METHODS)}, found {method}")
    checks = run_checks(trainer, method)
    holds = all(check.holds for check in checks)
    width = max(len(check.name) for check in checks)
    lines = [f"{name} as {method}", ""]
    lines.append(f"{'check':{width}}  {'verdict':13}  largest difference, relative")
    for one in checks:
        verdict = "holds" if one.holds else "does not hold"
        lines.append(f"{one.name:{width}}  {verdict:13}  {one.detail}".rstrip())
    try:
        found = conventions(trainer, method)
    except Exception as error:  # A trainer may raise anything; its checks are printed above.
        return [*lines, "", f"conventions: {type(error).__name__}: {error}"], False
    lines += ["", *(f"{question}: {answer}" for question, answer in found.items())]
    return lines, holds


def main() -> int:
    """Print the report on a trainer; return 0 if all checks hold, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m stapo.conformance",
        description="Compare a trainer's loss with a method's update, and print its conventions. "
        "stapo/conformance/batches.py describes the interface of a trainer.",
    )
    trainers = "ours, one of TRL's such as trl-dapo, or package.module:function for torch alone"
    parser.add_argument("--trainer", default="ours", help=trainers)
    methods = f"what it is meant to be: {', '.join(CONFORMANCE_METHODS)}"
    parser.add_argument("--method", help=methods)
    given = parser.parse_args()
    try:
        trainer, meant = find_trainer(given.trainer)
        lines, holds = report(trainer, given.trainer, given.method or meant)
    except ValueError as error:
        parser.exit(2, f"stapo: {error}\n")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if holds else 1
