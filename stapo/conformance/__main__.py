"""`python -m stapo.conformance` is `stapo conformance` without the packages of the command line."""

import sys

from stapo.conformance.report import main

if __name__ == "__main__":
    sys.exit(main())
