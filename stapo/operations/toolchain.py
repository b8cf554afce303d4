"""What GPUs need besides packages: a driver, a C compiler and Python's headers.

Only the standard library: `make setup-gpu` runs this before it downloads anything.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

DRIVERS = {12: 525, 13: 580}
"""CUDA's major version -> the oldest driver that runs it; NVIDIA's table of minor-version compatibility."""
CUDA_LOCK = Path(__file__).parents[2] / "requirements" / "cuda.txt"
Fault = tuple[str, str]
"""What is wrong, and its remedy."""


def driver() -> str | None:
    """Return the version of NVIDIA's driver, None without one."""
    path = Path("/proc/driver/nvidia/version")
    text = path.read_text() if path.is_file() else ""
    if not text and shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        text = f" {subprocess.run(command, capture_output=True, text=True, check=False).stdout} "
    found = re.search(r"\s(\d+\.\d+[\d.]*)\s", text)
    return found[1] if found else None


def driver_fault(version: str, cuda: int) -> Fault | None:
    """Return what is wrong with a driver for a major version of CUDA."""
    needed = DRIVERS.get(cuda, 0)
    if int(version.split(".")[0]) >= needed:
        return None
    return f"driver {version} is too old", f"CUDA {cuda} needs driver {needed} or newer"


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
    locked = re.search(r"^cuda-toolkit==(\d+)", CUDA_LOCK.read_text(), re.MULTILINE)
    assert locked
    found, cuda, faults = driver(), int(locked[1]), compiler_faults()
    if found is None:
        needed = f"the nodes need {DRIVERS[cuda]} or newer"
        print(f"install: no NVIDIA driver here, so it was not checked; {needed}", file=sys.stderr)  # noqa: T201
    elif fault := driver_fault(found, cuda):
        faults.insert(0, fault)
    for what, remedy in faults:
        print(f"install: {what}; {remedy}", file=sys.stderr)  # noqa: T201
    sys.exit(2 if faults else 0)


if __name__ == "__main__":
    main()
