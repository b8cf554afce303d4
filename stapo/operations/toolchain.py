"""What vLLM on GPUs needs besides packages: a C compiler and Python's headers.

Only the standard library: `make setup-gpu` runs this before it downloads anything.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

Fault = tuple[str, str]
"""What is wrong, and its remedy."""


def compiler_faults() -> list[Fault]:
    """Return what is missing for Triton, which compiles C at run time."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("gcc", "clang")), None)
    faults = []
    if compiler is None or shutil.which(compiler) is None:
        what = f"CC={compiler} is not there" if compiler else "no C compiler (gcc, clang)"
        faults += [(what, "install gcc, or load its module; Triton compiles with it at run time")]
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if not headers.is_file():
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
        remedy = f"install Python's headers ({package}), or use a Python that has them"
        faults += [(f"{headers} is missing", remedy)]
    return faults


def main() -> None:
    """Print what is missing here for GPUs; end with an error if there is anything."""
    faults = compiler_faults()
    for what, remedy in faults:
        print(f"install: {what}; {remedy}", file=sys.stderr)  # noqa: T201
    sys.exit(2 if faults else 0)


if __name__ == "__main__":
    main()
