"""Mutation testing of the objective and the update (`make mutants`).

mutmut makes one change to a function at a time (an operator, a number, an argument, an assignment) in
a copy under `mutants/`, and runs the tests that call the function until one fails. A mutant that no
test detects survives: either a test is missing, or the change has no effect, which
`tests/mutants.yaml` then explains in one line. Settings of mutmut are in pyproject.toml.

Usage: mutants.py [PATTERN...], with patterns of the printed mutant names. The environment variable MINUTES
limits the run (default 90); mutants that were not reached are counted.
"""

import os
import signal
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from shutil import rmtree

import libcst as cst
import pandas as pd
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
    "stapo.core.objective.*",
    "stapo.core.minibatch.*",
    "stapo.core.update.*",
    "stapo.core.loss.*",
    "stapo.core.trainer.xǁStapoTrainerǁ_accumulate_gradients__*",
)
"""Mutants to test; of the training only the update, since the rest needs whole trainings to test."""
TURNED = {
    cst.LessThan: cst.GreaterThan,
    cst.LessThanEqual: cst.GreaterThanEqual,
    cst.GreaterThan: cst.LessThan,
    cst.GreaterThanEqual: cst.LessThanEqual,
}
KEY = ["function", "old", "new"]
"""What an explanation names; no line numbers, which change."""
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor"}


def turn_comparison(node: cst.ComparisonTarget) -> Iterator[cst.ComparisonTarget]:
    """Reverse an inequality; mutmut itself only changes strict to non-strict and back."""
    if type(node.operator) in TURNED:
        yield node.with_changes(operator=TURNED[type(node.operator)]())


def swap_name(node: cst.Name) -> Iterator[cst.Name]:
    """Swap similar names, such as min and max."""
    if node.value in SWAPPED:
        yield node.with_changes(value=SWAPPED[node.value])


def run(patterns: list[str], minutes: float) -> None:
    """Let mutmut create all mutants and test those that match the patterns, until the time is over."""
    mutation_operators.append((cst.ComparisonTarget, turn_comparison))
    mutation_operators.append((cst.Name, swap_name))
    rmtree("mutants", ignore_errors=True)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
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
    found = {"no tests": "survived", "not checked": "not reached", "timeout": "timed out"}
    return found.get(status, status if status == "survived" else "killed")


def changes(patterns: list[str]) -> pd.DataFrame:
    """Return all mutants of the patterns: name, file, lines before and after, and outcome of the tests."""
    rows = []
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        for name, exit_code in data.exit_code_by_key.items():
            if any(fnmatch(name, pattern) for pattern in patterns):
                function, _ = orig_function_and_class_names_from_key(name)
                # A diff: three lines of head, then the function with lines taken out and put in.
                diff = get_diff_for_mutant(name, path=path).splitlines()[3:]
                old, new = (
                    " ".join(line[1:].strip() for line in diff if line[0] == sign) for sign in "-+"
                )
                rows.append((name, str(path), function, old, new, outcome(exit_code)))
    return pd.DataFrame(rows, columns=["name", "file", *KEY, "status"])


def report(found: pd.DataFrame, explanations: list[dict[str, str]]) -> bool:
    """Print a table, the survivors, and explanations without one; return whether all are explained."""
    # Without `new`, every change of these lines.
    known = {tuple(each.get(name) for name in KEY) for each in explanations}
    keys = found[KEY].apply(tuple, axis=1)
    lines = keys.map(lambda key: (*key[:2], None))
    is_known = (found.status == "survived") & (keys.isin(known) | lines.isin(known))
    found.loc[is_known, "status"] = "explained"
    print(pd.crosstab(found.file, found.status, margins=True, margins_name="all"))
    for one in (survivors := found[found.status == "survived"]).itertuples():
        print(f"\n{one.file}: {one.name}\n  - {one.old}\n  + {one.new}")
    still = found.status.isin(("explained", "not reached"))
    needed = {*keys[still], *lines[still]}
    for key in sorted(known - needed, key=str):
        if key[0] in {*found.function}:
            print(f"\n{EXPLAINED.name}: no longer survives: {key[0]}: {key[2] or key[1]}")
    if (found.status == "not reached").any():
        print("\nNot all were reached; MINUTES=... allows more time.")
    return survivors.empty


def main(patterns: list[str]) -> int:
    """Return 1 if a mutant without an explanation survives."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    patterns = patterns or list(PATTERNS)
    run(patterns, float(os.environ.get("MINUTES", "90")))
    return 0 if report(changes(patterns), yaml.safe_load(EXPLAINED.read_text()) or []) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
