"""`python -m stapo.conformance` is `stapo conformance` without the packages of the command line."""

import argparse
import sys

from stapo.conformance.report import find_trainer, report
from stapo.methods import CONFORMANCE_METHODS


def main() -> int:
    """Print the report on a trainer; return 0 if all checks hold, else 1."""
    about = (
        "Compare a trainer's loss with a method's update, and print which conventions it follows. "
        "stapo/conformance/batches.py describes the interface of a trainer."
    )
    parser = argparse.ArgumentParser(prog="python -m stapo.conformance", description=about)
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


if __name__ == "__main__":
    sys.exit(main())
