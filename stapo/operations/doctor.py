"""Checks whether this machine can run a study: one line per check, with a remedy for each problem.

Only what ends or spoils a run is looked at. Run it where the jobs will run: a login node may differ from the
compute nodes.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.version import Version
from rich.console import Console
from rich.text import Text

from stapo.hub import OFFLINE, reason_unreachable
from stapo.operations import toolchain
from stapo.operations.fetch import needs
from stapo.operations.plan import disk_needed
from stapo.provenance import LOCK
from stapo.study import Study
from stapo.study.reading import resolved_content
from stapo.text import plain, visible
from stapo.training.rewards import reward_fault

BF16_CAPABILITY = 8
"""Lowest compute capability (major) with bf16, in which trainings on GPUs run."""
MIN_SHM_BYTES = 2**30
"""Shared memory for NCCL and vLLM, our assumption; the default of containers, 64 MiB, is too little."""
STYLES = {"ok": "green", "warning": "yellow", "error": "red"}
HOLD = """
import fcntl, sys
with open(sys.argv[1]) as lock:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""
LOOK = """
import json, sys
from stapo.operations.fetch import fetch
from stapo.study import parse_study
fetch(parse_study(json.load(sys.stdin)), print)
"""


@dataclass(frozen=True)
class Check:
    """Result of a check, with a remedy if there is a problem."""

    level: Literal["ok", "warning", "error"]
    what: str
    remedy: str = ""


def diagnose(study: Study) -> Iterator[Check]:
    """Yield the checks of this machine and the working directory for a study."""
    yield from packages()
    yield from reward(study)
    yield from gpus(study)
    if needs_vllm(study):
        yield from vllm()
    yield from disk(disk_needed(study))
    yield from locks(Path())
    yield from hub(study)
    yield from slurm()


def doctor_document(study: Study) -> dict[str, Any]:
    """Return the document of `stapo doctor --json`."""
    checks = list(diagnose(study))
    failed = any(check.level == "error" for check in checks)
    return {"study": study.name, "failed": failed, "checks": [asdict(check) for check in checks]}


def print_diagnosis(study: Study, console: Console) -> bool:
    """Print one line per check as it finishes and one per remedy; return whether there is an error."""
    failed = False
    for check in diagnose(study):
        failed |= check.level == "error"
        level = Text(f"{check.level:8} ", style=STYLES[check.level])
        console.print(level.append(visible(check.what), style="none"), soft_wrap=True)
        if check.remedy:
            console.print(Text(f"         -> {visible(check.remedy)}"), soft_wrap=True)
    return failed


def packages(lock: Path = LOCK) -> Iterator[Check]:
    """Check that the installed versions are the locked ones."""
    # With vLLM for GPUs a second lock replaces some versions of the first.
    locks = [lock, lock.with_name("gpu.txt")] if _version("vllm") else [lock]
    text = "\n".join(path.read_text() for path in locks if path.is_file())
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE))
    # A local version (+cpu) is another build of the same release.
    deviating = [
        f"{name} {found or 'missing'} (lock: {wanted})"
        for name, wanted in pins.items()
        if (found := _version(name)) is None or found.split("+")[0] != wanted.split("+")[0]
    ]
    if deviating:
        what = f"differs from {' and '.join(path.name for path in locks)}: {', '.join(deviating)}"
        remedy = "run `make setup`; results of other versions are not comparable"
        yield Check("warning", what, remedy)
    else:
        yield Check("ok", f"all {len(pins)} packages match the lock file")


def reward(study: Study) -> Iterator[Check]:
    """Check that the reward function of the trainings can be found and is the intended one."""
    if study.run.methods and (fault := reward_fault(study.job_training(study.run.methods[0]))):
        what, _, remedy = fault.rpartition("; ")
        yield Check("error", what, remedy)


def needs_vllm(study: Study) -> bool:
    """Return whether trainings or evaluations of a study run vLLM."""
    return study.training.rollouts.startswith("vllm") or study.evaluation.backend == "vllm"


def gpus(study: Study) -> Iterator[Check]:
    """Check the GPUs, their driver, the build of torch, and shared memory."""
    import torch

    built, driver, count = torch.version.cuda, toolchain.driver(), torch.cuda.device_count()
    what = f"torch {torch.__version__}, driver {driver or 'none'}, {count} GPUs"
    fault = toolchain.driver_fault(driver, int(built.split(".")[0])) if built and driver else None
    if fault:
        yield Check("error", f"{what}: {fault[0]}", fault[1])
    elif needs_vllm(study) and not count:
        remedy = "run this on a machine with GPUs (Slurm: `srun --gpus=1 stapo doctor ...`)"
        if driver and not built:
            remedy = "install the CUDA build of torch: `make setup-gpu`"
        yield Check("error", f"{what}: the study uses vLLM", remedy)
    else:
        yield Check("ok", what)
    for i in range(count):
        found = torch.cuda.get_device_properties(i)
        if found.major < BF16_CAPABILITY:
            remedy = "trainings run in bf16, which it lacks; use a newer GPU"
            yield Check("warning", f"GPU {i}: {found.name}", remedy)
    shm = Path("/dev/shm")
    size = shutil.disk_usage(shm).total if shm.is_dir() else 0
    if count and size < MIN_SHM_BYTES:
        remedy = "give the container more: docker --shm-size=16g; apptainer uses the host's"
        what = f"{shm}: {size / 2**30:.1f} GiB, too little for NCCL and vLLM"
        yield Check("warning", what, remedy)


def vllm() -> Iterator[Check]:
    """Check that vLLM has a version that TRL supports, without importing it, and that Triton can compile."""
    lines = (Requirement(line) for line in metadata.requires("trl") or [])
    wanted = next(line.specifier for line in lines if line.name == "vllm")
    found = _version("vllm") if find_spec("vllm") else None
    remedy = f"run `make setup-gpu`; TRL {_version('trl')} supports vllm{wanted}"
    if found is None:
        yield Check("error", "vLLM is not installed, but the study uses it", remedy)
    elif not wanted.contains(Version(found).base_version):
        yield Check("error", f"vLLM {found} is unsupported by TRL", remedy)
    else:
        yield Check("ok", f"vLLM {found}")
    for what, remedy in toolchain.compiler_faults():
        yield Check("error", what, remedy)


def disk(needed_bytes: int | None, root: Path = Path()) -> Iterator[Check]:
    """Check that there is enough free space for a study; quotas are not considered."""
    named = [root / name if (root / name).is_dir() else root for name in ("results", "work")]
    places = {path.stat().st_dev: path for path in named}.values()
    free = sum(shutil.disk_usage(place).free for place in places)
    needed = f", about {needed_bytes / 1e9:.1f} GB needed" if needed_bytes else ""
    what = f"{free / 1e9:.1f} GB free for results/ and work/{needed}"
    if free < (needed_bytes or 0):
        remedy = "free some space, or start in a directory on a larger disk"
        yield Check("error", what, remedy)
    else:
        yield Check("ok", what)


def locks(directory: Path) -> Iterator[Check]:
    """Check by experiment that locks work in a directory, between processes of this host."""
    where, remedy = directory.resolve(), "mount it with locks (Lustre: -o flock, NFS: version 4)"
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".stapo-doctor-") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            command = [sys.executable, "-I", "-c", HOLD, lock.name]
            child = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        yield Check("error", f"{where}: cannot write or lock ({error.strerror})", remedy)
        return
    if b"BlockingIOError" in child.stderr:
        yield Check("ok", f"{where}: locks work")
    else:
        what = f"{where}: flock has no effect; do not run a study twice at the same time"
        yield Check("warning", what, remedy)


def hub(study: Study) -> Iterator[Check]:
    """Check that the Hub answers or, if it does not, that everything is in the caches."""
    items = [what for what, _ in needs(study)]
    offline = any(os.environ.get(name) for name in OFFLINE)
    reason = f"{OFFLINE[0]} is set" if offline else reason_unreachable() if items else ""
    if not reason:
        what = f"the Hub answers; `stapo fetch` downloads and checks all {len(items)} items"
        yield Check("ok", what if items else "nothing needed from the Hub")
        return
    # The Hub's libraries read the offline variables on import, so this needs a new process.
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOOK],
        input=json.dumps(resolved_content(study)),
        env={**os.environ, **dict.fromkeys(OFFLINE, "1")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
    if done.returncode:
        lines = [plain((done.stderr.splitlines() or ["no output"])[-1])]
    for line in lines:
        remedy = "run `stapo fetch` with internet access and the same HF_HOME and STAPO_DATA_DIR"
        if line.startswith("wrong "):
            remedy = "remove or replace the files (STAPO_DATA_DIR), then run `stapo fetch`"
        yield Check("error", f"{reason}; {line}", remedy)
    if not lines:
        yield Check("ok", f"{reason}; all {len(items)} items are in the caches")


def slurm() -> Iterator[Check]:
    """Check that Snakemake's plugin for Slurm is installed where there is Slurm."""
    if shutil.which("sbatch") and find_spec("snakemake_executor_plugin_slurm") is None:
        what = "the package snakemake-executor-plugin-slurm is missing"
        yield Check("error", what, "run `make setup`")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
