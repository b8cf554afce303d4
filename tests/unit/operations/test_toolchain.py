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


def installing(tmp_path: Path, *arguments: str, gpu: bool = False) -> list[str]:
    """Return what install.sh asks pip for, with a Python that only writes that down."""
    root, tools = tmp_path / "root", tmp_path / "tools"
    for path in (root / "requirements", tools):
        path.mkdir(parents=True, exist_ok=True)
    for name in ("install.sh", "python.sh", "lock.txt", "cuda.txt"):
        (root / "requirements" / name).write_bytes((ROOT / "requirements" / name).read_bytes())
    (root / "requirements" / "install.sh").chmod(0o755)
    (root / "pyproject.toml").touch()
    fake = tools / "python"
    fake.write_text(
        '#!/bin/sh\n[ "$2" = venv ] && mkdir -p .venv/bin && cp "$0" .venv/bin/python\n'
        f'[ "$2" = pip ] && [ "$3" = install ] && echo "$@" >> {tmp_path}/asked\nexit 0\n'
    )
    fake.chmod(0o755)
    if gpu:
        program(tools, "nvidia-smi")
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "PYTHON": str(fake)}
    (tmp_path / "asked").write_text("")
    subprocess.run([root / "requirements" / "install.sh", *arguments], env=environment, check=True)
    return [line.split()[-1] for line in (tmp_path / "asked").read_text().splitlines()]


@NO_DRIVER
def test_without_a_gpu_the_cpu_build_is_asked_for_by_name_with_hashes(tmp_path):
    cuda = ["requirements/lock.txt", "requirements/cuda.txt", "."]
    assert installing(tmp_path) == [".venv/torch.txt", *cuda]
    first, *hashes = (tmp_path / "root" / ".venv" / "torch.txt").read_text().splitlines()
    lock = (ROOT / "requirements" / "lock.txt").read_text()
    assert (first, len(hashes) > 10) == ("torch==2.13.0+cpu \\", True)
    assert all(line.startswith("    --hash=sha256:") and line in lock for line in hashes)
    # Once there, nothing is done; for GPUs it is the ordinary build, which then is good for all.
    assert installing(tmp_path) == []
    assert installing(tmp_path, "cuda") == cuda
    assert installing(tmp_path) == installing(tmp_path, "cuda") == []
    assert installing(tmp_path / "gpu", gpu=True) == cuda
