"""Driver, compiler and headers are checked before anything is downloaded, and without any package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stapo.operations import toolchain
from stapo.repository import ROOT

NO_DRIVER = pytest.mark.skipif(
    os.path.exists("/proc/driver/nvidia/version") or os.path.exists("/usr/bin/nvidia-smi"),
    reason="a driver is here",
)
UNCHECKED = "install: no NVIDIA driver here, so it was not checked; the nodes need 580 or newer\n"
TOO_OLD = "install: driver 570.86.15 is too old; CUDA 13 needs driver 580 or newer\n"


def program(directory: Path, name: str, prints: str = "") -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)


@NO_DRIVER
@pytest.mark.skipif(toolchain.compiler_faults() != [], reason="no compiler or headers here")
@pytest.mark.parametrize(
    ("programs", "environment", "code", "said"),
    [
        ({}, {}, 2, "no C compiler (gcc, clang); install gcc"),
        ({"gcc": ""}, {}, 0, UNCHECKED),
        ({"gcc": "", "nvidia-smi": "570.86.15"}, {}, 2, TOO_OLD),
        ({"gcc": "", "nvidia-smi": "580.65.06"}, {}, 0, ""),
    ],
)
def test_what_is_missing_comes_with_what_would_do(tmp_path, programs, environment, code, said):
    """Run as `setup-gpu` does, with the programs of one directory."""
    for name, prints in programs.items():
        program(tmp_path, name, prints)
    command = [sys.executable, "-I", str(ROOT / "stapo" / "operations" / "toolchain.py")]
    environment = {"PATH": str(tmp_path), **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stderr
