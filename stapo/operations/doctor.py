"""Checks whether this machine can run a study: one line per check, with a remedy for each problem.

Only what ends or spoils a run is looked at. Run it where the jobs will run: a login node may differ from the
compute nodes.
"""

import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from stapo.hub import reason_unreachable
from stapo.operations import toolchain
from stapo.operations.fetch import needs
from stapo.operations.plan import disk_needed
from stapo.study import Study
from stapo.text import visible

STYLES = {"ok": "green", "warning": "yellow", "error": "red"}


@dataclass(frozen=True)
class Check:
    """Result of a check, with a remedy if there is a problem."""

    level: Literal["ok", "warning", "error"]
    what: str
    remedy: str = ""


def diagnose(study: Study) -> Iterator[Check]:
    """Yield the checks of this machine and the working directory for a study."""
    vllm = study.training.rollouts.startswith("vllm") or study.evaluation.backend == "vllm"
    yield gpus(vllm)
    for fault in toolchain.compiler_faults() if vllm else ():
        yield Check("error", *fault)
    yield disk(disk_needed(study))
    yield hub(study)


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
        level = Text(f"{check.level:8} ", style=STYLES[check.level])
        console.print(level.append(visible(check.what), style="none"), soft_wrap=True)
        if check.remedy:
            console.print(Text(f"         -> {visible(check.remedy)}"), soft_wrap=True)
    return failed


def gpus(vllm: bool) -> Check:
    """Check that GPUs and vLLM are there if the study needs them."""
    import torch

    what = f"torch {torch.__version__}, {torch.cuda.device_count()} GPUs"
    if not vllm or (torch.cuda.device_count() and find_spec("vllm")):
        return Check("ok", what)
    remedy = "`make setup-gpu`, and run this on a machine with GPUs (Slurm: `srun --gpus=1 stapo doctor ...`)"
    return Check("error", f"{what}; the study uses vLLM", remedy)


def disk(needed_bytes: float, root: Path = Path()) -> Check:
    """Check that there is enough free space for a study where results/ is; quotas are not considered."""
    place = root / "results" if (root / "results").is_dir() else root
    free = shutil.disk_usage(place).free
    what = f"{free / 1e9:.1f} GB free, about {needed_bytes / 1e9:.1f} GB needed"
    if free >= needed_bytes:
        return Check("ok", what)
    return Check("error", what, "free some space, or start in a directory on a larger disk")


def hub(study: Study) -> Check:
    """Check that the Hub answers if the study needs it; `stapo fetch --check` looks into the caches."""
    reason = reason_unreachable() if any(True for _ in needs(study)) else ""
    if reason:
        remedy = "`stapo fetch STUDY --check` says whether everything is in its cache"
        return Check("warning", reason, remedy)
    return Check("ok", "the Hub answers, or nothing is needed from it")
