"""Where numbers come from: code, packages, hardware."""

import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from stapo.core.checksums import file_sha256
from stapo.suite.repository import ROOT

PACKAGES = (
    "torch", "transformers", "trl", "accelerate", "datasets", "lm-eval", "math-verify",
    "latex2sympy2-extended", "sympy", "numpy", "snakemake", "stapo",
)  # fmt: skip
CODE = ("stapo", "benchmarks", "workflows", "requirements", "Snakefile", "pyproject.toml")
LOCK = ROOT / "requirements" / "lock.txt"


@cache
def provenance() -> dict[str, Any]:
    """Return the record that every score contains: commit, packages, hardware."""
    # Results, studies and files beside them are no code: records have the content of what was used.
    changed = _git("status", "--porcelain", "--", *CODE, ":!workflows/studies")
    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty": None if changed is None else bool(changed),
        "packages": {name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": processor(),
    }


def version(package: str) -> str:
    """Return the version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # A training needs none for evaluation.
        return "not installed"


def environment() -> dict[str, Any]:
    """Return the record of a run or a study: `provenance`, all packages, lock file, GPUs and driver."""
    import torch

    from stapo.core.attempts import ask_driver

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    driver = ask_driver(lambda nvml: str(nvml.nvmlSystemGetDriverVersion())) if names else None
    installed = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    return {
        **provenance(),
        "packages": dict(sorted(installed.items())),
        "lock": file_sha256(LOCK) if LOCK.exists() else None,
        "host": platform.node(),
        "platform": platform.platform(),
        "gpus": names,
        "driver": driver,
        "cuda": torch.version.cuda,
    }


def _git(*args: str) -> str | None:
    """Return git's output for the source tree; None if it is not a checkout."""
    command = ["git", "-C", str(ROOT), *args]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
