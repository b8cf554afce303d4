"""Checks whether this machine can run a study: one line per check, with a remedy for each problem.

Only what ends a run is looked at. Run it where the jobs will run: a login node may differ from the compute
nodes. Models and data are checked by `stapo fetch --check`.
"""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from stapo.operations.plan import disk_needed
from stapo.study import Study
from stapo.text import visible

STYLES = {"ok": "green", "error": "red"}


@dataclass(frozen=True)
class Check:
    """Result of a check, with a remedy if there is a problem."""

    level: Literal["ok", "error"]
    what: str
    remedy: str = ""


def diagnose(study: Study) -> Iterator[Check]:
    """Yield the checks of this machine and the working directory for a study."""
    vllm = study.training.rollouts.startswith("vllm") or study.evaluation.backend == "vllm"
    yield gpus(vllm)
    if vllm:
        yield compiler()
    yield disk(disk_needed(study))


def doctor_document(study: Study) -> dict[str, Any]:
    """Return the document of `stapo doctor --json`."""
    checks = [asdict(check) for check in diagnose(study)]
    failed = any(check["level"] == "error" for check in checks)
    return {"study": study.name, "failed": failed, "checks": checks}


def print_diagnosis(study: Study, console: Console) -> bool:
    """Print one line per check as it finishes and one per remedy; return whether there is an error."""
    failed = False
    for check in diagnose(study):
        failed |= check.level == "error"
        level = Text(f"{check.level:6} ", style=STYLES[check.level])
        console.print(level.append(visible(check.what), style="none"), soft_wrap=True)
        if check.remedy:
            console.print(Text(f"       -> {visible(check.remedy)}"), soft_wrap=True)
    return failed


def gpus(vllm: bool) -> Check:
    """Check that GPUs and vLLM are there if the study needs them."""
    import torch

    what = f"torch {torch.__version__}, {torch.cuda.device_count()} GPUs"
    if not vllm or (torch.cuda.device_count() and find_spec("vllm")):
        return Check("ok", what)
    remedy = "`make setup-gpu`, and run this on a machine with GPUs (Slurm: `srun --gpus=1 stapo doctor ...`)"
    return Check("error", f"{what}; the study uses vLLM", remedy)


def compiler() -> Check:
    """Check that Triton can compile C with Python's headers at run time."""
    program = os.environ.get("CC") or next(filter(shutil.which, ("gcc", "clang")), "gcc")
    command = [program, "-E", f"-I{sysconfig.get_path('include')}", "-"]
    try:
        subprocess.run(command, input=b"#include <Python.h>", capture_output=True, check=True)
        return Check("ok", f"{program} finds Python's headers")
    except (OSError, subprocess.SubprocessError):
        pass
    remedy = "install gcc and the headers (Debian: python3-dev), or load their modules"
    return Check("error", f"{program} is not there, or does not find Python's headers", remedy)


def disk(needed_bytes: float, root: Path = Path()) -> Check:
    """Check that there is enough free space for a study where results/ is; quotas are not considered."""
    place = root / "results" if (root / "results").is_dir() else root
    free = shutil.disk_usage(place).free
    what = f"{free / 1e9:.1f} GB free, about {needed_bytes / 1e9:.1f} GB needed"
    if free >= needed_bytes:
        return Check("ok", what)
    return Check("error", what, "free some space, or start in a directory on a larger disk")
