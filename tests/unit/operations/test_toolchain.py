"""Compiler and headers are checked before anything is downloaded, and without any package."""

import subprocess
import sys

import pytest

from stapo.operations import toolchain
from stapo.repository import ROOT


@pytest.mark.skipif(toolchain.compiler_faults() != [], reason="no compiler or headers here")
@pytest.mark.parametrize(
    ("programs", "code", "said"),
    [([], 2, "no C compiler (gcc, clang); install gcc"), (["gcc"], 0, "")],
)
def test_what_is_missing_comes_with_what_would_do(tmp_path, programs, code, said):
    """Run as `setup-gpu` does, with the programs of one directory."""
    for name in programs:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    command = [sys.executable, "-I", str(ROOT / "stapo" / "operations" / "toolchain.py")]
    environment = {"PATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stderr
