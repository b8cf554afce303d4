"""The conformance kit where torch alone is installed; elsewhere `stapo conformance` is the same."""

import sys

from stapo.core.conformance.kit import find_trainer, report

USAGE = "usage: python -m stapo.core.conformance MODULE:FUNCTION [METHOD]"


def main(arguments: list[str]) -> int:
    """Print the checks of a trainer and return the exit code: 1 if a check fails, 2 for wrong arguments."""
    trainer, method = [*arguments, "", ""][:2]
    try:
        if ":" not in trainer:  # The shipped trainers need TRL.
            raise ValueError(USAGE)
        implementation, meant = find_trainer(trainer)
        lines, holds = report(implementation, trainer, method or meant)
    except ValueError as error:
        sys.stderr.write(f"stapo: {error}\n")
        return 2
    sys.stdout.write("\n".join([*lines, ""]))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
