"""Mutation testing of the objective and the update (`make mutants`).

mutmut makes one change to a function at a time (an operator, a number, an argument, an assignment) in
a copy under `mutants/`, and runs the tests that call the function until one fails. A mutant that no
test detects survives: either a test is missing, or the change has no effect, which
`tests/mutants.yaml` then explains in one line. Settings of mutmut are in pyproject.toml.

Usage: mutants.py [PATTERN...], with patterns of the printed mutant names. The environment variable MINUTES
limits the run (default 90); mutants that were not reached are counted.
"""

import ast
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from shutil import rmtree
from types import FrameType

import libcst as cst
import yaml
from mutmut.__main__ import cli
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.mutators import mutation_operators
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

EXPLAINED = Path(__file__).with_suffix(".yaml")
PATTERNS = (
    "stapo.objective.*",
    "stapo.training.minibatch.*",
    "stapo.training.update.*",
    "stapo.training.trainer.xǁStapoTrainerǁ_accumulate_gradients__*",
)
"""Mutants to test; of the training only the update, since the rest needs whole trainings to test."""
TURNED = {
    cst.LessThan: cst.GreaterThan,
    cst.LessThanEqual: cst.GreaterThanEqual,
    cst.GreaterThan: cst.LessThan,
    cst.GreaterThanEqual: cst.LessThanEqual,
}
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor"}


@dataclass(frozen=True)
class Change:
    """The difference of a mutant from the code, its place, and the outcome of its tests."""

    name: str
    file: str
    line: int
    function: str
    old: str
    new: str
    status: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Key of its explanation, without line numbers, which change."""
        return self.function, self.old, self.new


def turn_comparison(node: cst.ComparisonTarget) -> Iterator[cst.ComparisonTarget]:
    """Reverse an inequality; mutmut itself only changes strict to non-strict and back."""
    if type(node.operator) in TURNED:
        yield node.with_changes(operator=TURNED[type(node.operator)]())


def swap_name(node: cst.Name) -> Iterator[cst.Name]:
    """Swap similar names, such as min and max."""
    if node.value in SWAPPED:
        yield node.with_changes(value=SWAPPED[node.value])


def run(patterns: list[str], minutes: float) -> None:
    """Let mutmut create all mutants and test those that match the patterns, until the time is over.

    Raises:
        SystemExit: the tests fail without any mutant.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    mutation_operators.append((cst.ComparisonTarget, turn_comparison))
    mutation_operators.append((cst.Name, swap_name))
    rmtree("mutants", ignore_errors=True)
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        cli(["run", "--max-children", "1", *patterns], standalone_mode=False)
    except KeyboardInterrupt:
        print("The time was over before the first mutant.")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def outcome(exit_code: int | None) -> str:
    """Return killed, survived, timed out or not reached."""
    status = status_by_exit_code[exit_code]
    if status in ("survived", "no tests"):
        return "survived"
    return {"not checked": "not reached", "timeout": "timed out"}.get(status, "killed")


def changes(patterns: list[str]) -> list[Change]:
    """Return all mutants of the patterns, in the order of the code."""
    found = []
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        first_lines = {
            node.name: node.lineno
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef)
        }
        for name, exit_code in data.exit_code_by_key.items():
            if any(fnmatch(name, pattern) for pattern in patterns):
                function, _ = orig_function_and_class_names_from_key(name)
                offset, old, new = difference(get_diff_for_mutant(name, path=path))
                line = first_lines[function] + offset
                found.append(Change(name, str(path), line, function, old, new, outcome(exit_code)))
    return sorted(found, key=lambda change: (change.file, change.line))


def difference(diff: str) -> tuple[int, str, str]:
    """Return the first changed line of a function, counted from 0, and the text before and after."""
    _, _, head, *lines = diff.splitlines()
    start = int(head.split()[1].lstrip("-").split(",")[0]) - 1
    offset = next(i for i, line in enumerate(lines) if line[0] in "+-")
    old, new = (" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
    return start + offset, old, new


def table(found: list[Change]) -> list[str]:
    """Return a line per module, and one for all, with the number of mutants by outcome."""
    columns = ("killed", "timed out", "explained", "survived", "not reached")
    rows: dict[str, Counter[str]] = {}
    for change in found:
        rows.setdefault(change.file, Counter())[change.status] += 1
    rows["all"] = sum(rows.values(), Counter())
    lines = [f"{'':34}{'mutants':>8}" + "".join(f"{column:>13}" for column in columns)]
    for name, counts in rows.items():
        cells = "".join(f"{counts[column]:13}" for column in columns)
        lines.append(f"{name:34}{counts.total():8}{cells}")
    return lines


def report(found: list[Change], explanations: list[dict[str, str]]) -> bool:
    """Print the table, the survivors, and explanations without one; return whether all are explained."""
    known = {(each["function"], each["old"], each["new"]) for each in explanations}
    found = [
        replace(change, status="explained")
        if change.status == "survived" and change.key in known
        else change
        for change in found
    ]
    print("\n" + "\n".join(table(found)))
    survivors = [change for change in found if change.status == "survived"]
    for change in survivors:
        print(f"\n{change.file}:{change.line} {change.name}\n  - {change.old}\n  + {change.new}")
    needed = {change.key for change in found if change.status in ("explained", "not reached")}
    reached = {change.function for change in found}
    for key in sorted(known - needed):
        if key[0] in reached:
            print(f"\n{EXPLAINED.name}: no longer survives: {key[0]}: {key[2]}")
    if any(change.status == "not reached" for change in found):
        print("\nNot all were reached; MINUTES=... allows more time.")
    return not survivors


def main(patterns: list[str]) -> int:
    """Return 1 if a mutant without an explanation survives."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    patterns = patterns or list(PATTERNS)
    run(patterns, float(os.environ.get("MINUTES", "90")))
    return 0 if report(changes(patterns), yaml.safe_load(EXPLAINED.read_text()) or []) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
