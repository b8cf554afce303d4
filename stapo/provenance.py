"""Where numbers come from: code, packages, hardware, and the checksums of files."""

import hashlib
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from stapo.files import DamagedFileError, open_file, text_of, write
from stapo.repository import ROOT

PACKAGES = (
    "torch", "transformers", "trl", "accelerate", "datasets", "lm-eval", "math-verify",
    "latex2sympy2-extended", "sympy", "numpy", "snakemake", "stapo",
)  # fmt: skip
SUMS = "SHA256SUMS"
"""File of checksums in every directory of weights written here, in the format of `sha256sum --check`."""
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

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    driver = _asked_of_nvml(lambda nvml: str(nvml.nvmlSystemGetDriverVersion())) if names else None
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


def energy_joules() -> float | None:
    """Return the energy that this process's GPU has used since its driver was loaded; None if unknown."""
    import torch

    def energy(nvml: Any) -> float:
        uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000

    found: float | None = _asked_of_nvml(energy) if torch.cuda.is_available() else None
    return found


def _asked_of_nvml(question: Callable[[Any], Any]) -> Any:
    """Return an answer of the driver, None without one: older GPUs measure no energy, MIG slices may not."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return question(pynvml)
    except Exception:
        return None


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_hidden(path: Path) -> bool:
    """Return whether a relative path or one of its directories begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def checksums(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """Return path relative to `root` -> SHA-256 of files and of the visible files below directories."""
    files = [
        file
        for path in paths
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.is_file() and not is_hidden(file.relative_to(root))
    ]
    return {os.path.relpath(file, root): file_sha256(file) for file in files}


def file_sums(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Return name -> SHA-256 of files below a directory; several files are hashed in parallel."""
    names = list(names)
    with ThreadPoolExecutor() as pool:  # Hashing releases the GIL.
        return dict(zip(names, pool.map(lambda name: file_sha256(root / name), names), strict=True))


def changed_files(root: Path, stated: Mapping[str, str]) -> list[str]:
    """Return the files below a directory that are missing or whose SHA-256 is not the stated one."""
    found = file_sums(root, [name for name in stated if (root / name).is_file()])
    return [name for name, sha in stated.items() if found.get(name) != sha]


def write_sums(directory: Path) -> None:
    """Write the checksums of all files of a directory into it, so that later damage is detected."""
    files = [path for path in directory.rglob("*") if path.is_file() and path != directory / SUMS]
    names = sorted(path.relative_to(directory).as_posix() for path in files)
    lines = (f"{sha}  {name}\n" for name, sha in file_sums(directory, names).items())
    write(directory / SUMS, "".join(lines))


def damaged_file(directory: Path) -> str | None:
    """Return the first file that differs from its checksum; None if none does or checksums are missing."""
    path = directory / SUMS
    if not path.exists():
        return None
    pairs = [line.partition("  ") for line in text_of(path).splitlines()]
    stated = {name: sha for sha, _, name in pairs}
    changed = changed_files(directory, stated) if stated else [SUMS]
    return (changed[0] or SUMS) if changed else None  # A damaged line may contain no name.


def sums_of(directory: Path) -> str | None:
    """Return one checksum for all files of a directory of weights; None if it has no `SHA256SUMS`."""
    path = directory / SUMS
    return file_sha256(path) if path.exists() else None


def require_whole(directory: Path) -> None:
    """Check a directory of weights against the checksums that it contains.

    Raises:
        DamagedFileError: a file is missing, truncated or corrupt.
    """
    if name := damaged_file(directory):
        remedy = f"remove {directory} and run snakemake again, which writes it again"
        if directory.parts[:1] != ("results",):
            # Nothing writes it again, and it may be the only copy.
            remedy = f"copy it again; if you changed it yourself, remove {directory / SUMS}"
        raise DamagedFileError(
            f"{directory / name}: missing, truncated or corrupt (not the SHA-256 in {SUMS}); {remedy}"
        )


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
