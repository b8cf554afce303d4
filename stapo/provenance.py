"""Where numbers come from: code, packages, hardware, and the checksums of files."""

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from stapo.files import DamagedFileError, replace_file
from stapo.repository import ROOT

PACKAGES = (
    "torch", "transformers", "trl", "accelerate", "datasets", "lm-eval", "math-verify",
    "latex2sympy2-extended", "sympy", "numpy", "snakemake", "stapo",
)  # fmt: skip
SUMS = "SHA256SUMS"
"""In every directory of weights that is written here, as `sha256sum --check` reads it."""
LOCK = ROOT / "requirements" / "lock.txt"


@cache
def provenance() -> dict[str, Any]:
    """Return what every score carries: commit, packages, hardware."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain")),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": processor(),
    }


def environment() -> dict[str, Any]:
    """Return what a run or a study carries: `provenance`, all packages, lock, GPUs and their driver."""
    installed = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    return {
        **provenance(),
        "packages": dict(sorted(installed.items())),
        "lock": file_sha256(LOCK) if LOCK.exists() else None,
        "host": platform.node(),
        "platform": platform.platform(),
        **accelerators(),
    }


def accelerators() -> dict[str, Any]:
    """Return names and driver of the GPUs that this process sees; empty and None without any."""
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    driver = None
    if names:
        try:
            import pynvml

            pynvml.nvmlInit()
            driver = str(pynvml.nvmlSystemGetDriverVersion())
        except Exception:  # Without NVML there is no driver version, and nothing else is lost.
            driver = None
    return {"gpus": names, "driver": driver, "cuda": torch.version.cuda}


def energy_joules() -> float | None:
    """Return what this process's GPU has used since its driver was loaded; None where NVML cannot say."""
    import torch

    if not torch.cuda.is_available():
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
    except Exception:  # Older GPUs do not count, and MIG slices may not.
        return None


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_hidden(path: Path) -> bool:
    """Return whether a relative path or one of its directories begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def checksums(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """Return the SHA-256 of files, and of what is visible below directories, by their path from `root`."""
    files = [
        file
        for path in paths
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.is_file() and not is_hidden(file.relative_to(root))
    ]
    return {os.path.relpath(file, root): file_sha256(file) for file in files}


def file_sums(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of files below a directory by name; several files at a time."""
    names = list(names)
    with ThreadPoolExecutor() as pool:  # Hashing releases the interpreter's lock.
        return dict(zip(names, pool.map(lambda name: file_sha256(root / name), names), strict=True))


def changed_files(root: Path, stated: Mapping[str, str]) -> list[str]:
    """Return which files below a directory are missing, or have another SHA-256 than is stated."""
    found = file_sums(root, [name for name in stated if (root / name).is_file()])
    return [name for name, sha in stated.items() if found.get(name) != sha]


def write_sums(directory: Path) -> None:
    """Write the checksums of all files of a directory into it, so that damage is noticed later."""
    files = [path for path in directory.rglob("*") if path.is_file() and path != directory / SUMS]
    names = sorted(path.relative_to(directory).as_posix() for path in files)
    with replace_file(directory / SUMS) as stream:
        stream.writelines(f"{sha}  {name}\n" for name, sha in file_sums(directory, names).items())


def damaged_file(directory: Path) -> str | None:
    """Return the first file that is not what `write_sums` saw; None where all are, or nothing is known."""
    path = directory / SUMS
    if not path.exists():
        return None
    pairs = [line.partition("  ") for line in path.read_text(errors="replace").splitlines()]
    stated = {name: sha for sha, _, name in pairs}
    changed = changed_files(directory, stated) if stated else [SUMS]
    return (changed[0] or SUMS) if changed else None  # A damaged line may name nothing.


def sums_of(directory: Path) -> str | None:
    """Return a checksum over the files of a directory of weights; None where nothing is known of them."""
    path = directory / SUMS
    return file_sha256(path) if path.exists() else None


def require_whole(directory: Path) -> None:
    """Check a directory of weights against the checksums that lie in it.

    Raises:
        DamagedFileError: a file is missing, truncated or corrupt.
    """
    if name := damaged_file(directory):
        raise DamagedFileError(
            f"{directory / name}: missing, truncated or corrupt (not the SHA-256 in {SUMS}); remove "
            f"{directory} and run snakemake again, which writes it again"
        )


def _git(*args: str) -> str | None:
    """Return git's answer about the source tree; None where it is no checkout."""
    command = ["git", "-C", str(ROOT), *args]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
