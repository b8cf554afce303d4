"""Checks whether this machine can run a study: one line per check, with a remedy for each problem.

Run it where the jobs will run: a login node may differ from the compute nodes.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.request import urlopen

from packaging.requirements import Requirement
from packaging.version import Version
from rich.console import Console
from rich.text import Text

from stapo.hub import OFFLINE
from stapo.models.shapes import shape_of
from stapo.operations import toolchain
from stapo.operations.fetch import needs
from stapo.operations.file_system import Check, disk, file_system, places, shared_memory
from stapo.provenance import LOCK, provenance
from stapo.repository import ROOT
from stapo.study import Study, StudyError
from stapo.study.reading import resolved_content
from stapo.study.sources import TinyModel
from stapo.text import plain, visible
from stapo.training.rewards import reward_doubt, reward_fault

PYTHON = (3, 11)
"""Python version of the lock file."""
BF16_CAPABILITY = (8, 0)
"""Lowest compute capability with bf16, in which trainings on GPUs run."""
SECONDS = 5.0
"""Timeout for the answer of a server on the network."""
STYLES = {"ok": "green", "warning": "yellow", "error": "red"}


def diagnose(study: Study, needed_bytes: int | None = None) -> Iterator[Check]:
    """Yield the checks of this machine and the working directory for a study.

    Args:
        study: the study to run.
        needed_bytes: bytes of disk space that it needs; None if not estimated.
    """
    yield from python()
    yield from packages()
    yield from git()
    yield from revisions(study)
    yield from reward(study)
    yield from shapes(study)
    yield from gpus(study)
    yield from vllm(study)
    yield from compiler(study)
    yield from disk(needed_bytes)
    for place in places(Path()):
        yield from file_system(place)
    yield from shared_memory()
    yield from hub(study)
    yield from slurm()
    yield from ports()


def print_diagnosis(study: Study, console: Console, needed_bytes: int | None = None) -> bool:
    """Print one line per check as it finishes and one per remedy; return whether there is an error."""
    failed = False
    for check in diagnose(study, needed_bytes):
        failed |= check.level == "error"
        line = Text(f"{check.level:8} ", style=STYLES[check.level]).append(
            visible(check.what), style="none"
        )
        console.print(line, soft_wrap=True)
        if check.remedy:
            console.print(Text(f"         -> {visible(check.remedy)}"), soft_wrap=True)
    return failed


def python() -> Iterator[Check]:
    """Check that Python has the version of the lock file."""
    found, wanted = sys.version_info[:2], ".".join(map(str, PYTHON))
    what = f"Python {'.'.join(map(str, sys.version_info[:3]))}"
    if found == PYTHON:
        yield Check("ok", what)
    else:
        yield Check("warning", f"{what}, but the lock file is for {wanted}", f"use Python {wanted}")


def packages(lock: Path = LOCK) -> Iterator[Check]:
    """Check that the installed versions are the locked ones."""
    remedy = "run `make setup`; results of other versions are not comparable"
    # With vLLM for GPUs a second lock replaces some versions of the first.
    locks = [lock, lock.with_name("gpu.txt")] if _version("vllm") else [lock]
    pins: dict[str, str] = {}
    for path in locks:
        try:
            lines = path.read_text().splitlines()
        except OSError as error:
            remedy = "run from a checkout of the repository, so that the versions are compared"
            reason = f"{path}: {error.strerror}; the packages were not checked"
            yield Check("warning", reason, remedy)
            return
        matches = (re.match(r"([\w.-]+)==([^\s;\\]+)", line) for line in lines)
        pins |= {found[1]: found[2] for found in matches if found}
    deviating = []
    for name, wanted in pins.items():
        found_version = _version(name)
        # A local version (+cpu) is another build of the same release.
        if found_version is None or found_version.split("+")[0] != wanted.split("+")[0]:
            deviating.append(f"{name} {found_version or 'missing'} (lock: {wanted})")
    names = " and ".join(path.name for path in locks)
    if deviating:
        yield Check("warning", f"differs from {names}: {', '.join(deviating)}", remedy)
    else:
        yield Check("ok", f"all {len(pins)} packages match {names}")


def git() -> Iterator[Check]:
    """Check that scores will contain the commit of an unmodified checkout."""
    try:
        found = provenance()
    except metadata.PackageNotFoundError as error:
        yield Check("error", f"package {error.name} is not installed", "run `make setup`")
        return
    if found["commit"] is None:
        remedy = "to publish the results, run from a checkout"
        yield Check("warning", f"{ROOT} is not a git checkout: scores will have no commit", remedy)
    elif found["dirty"]:
        remedy = "to publish the results, commit first"
        yield Check("warning", "uncommitted changes: scores will be marked `dirty`", remedy)
    else:
        yield Check("ok", f"clean checkout of {found['commit'][:8]}")


def revisions(study: Study) -> Iterator[Check]:
    """Check that everything from the Hub is pinned to a commit."""
    for line in study.unpinned():
        what, _, remedy = line.rpartition("; ")
        yield Check("warning", what, remedy)
    if not study.unpinned():
        yield Check("ok", "everything from the Hub is pinned to a commit")


def reward(study: Study) -> Iterator[Check]:
    """Check that the reward function of the trainings can be found and is the intended one."""
    if fault := reward_fault(study.job_training(study.run.methods[0])):
        what, _, remedy = fault.rpartition("; ")
        yield Check("error", what, remedy)
    else:
        yield Check("ok", f"training reward {study.training.reward} found")
    if doubt := reward_doubt(study.training):
        what, _, remedy = doubt.rpartition("; ")
        yield Check("warning", what, remedy)


def shapes(study: Study) -> Iterator[Check]:
    """Check that time, disk space and memory of every model can be estimated."""
    models = [study.model(size) for size in study.run.sizes]
    unknown = []
    for model in [*models, *([study.evaluation.verifier] if study.evaluation.verifier else [])]:
        try:
            shape_of(model)
        except StudyError as error:
            unknown += error.errors
    for line in unknown:
        what, _, remedy = line.partition("; ")
        yield Check("warning", f"{what}; its memory, time and disk space are not estimated", remedy)
    if not unknown:
        yield Check("ok", "the shape of every model is known: `stapo plan` estimates its costs")


def needs_vllm(study: Study) -> bool:
    """Return whether trainings or evaluations of a study run vLLM."""
    return study.training.rollouts.startswith("vllm") or study.evaluation.backend == "vllm"


def gpus(study: Study) -> Iterator[Check]:
    """Check the GPUs, their driver and the build of torch."""
    import torch

    built = torch.version.cuda
    driver, count = _driver(), torch.cuda.device_count()
    build = f"torch {torch.__version__} ({f'CUDA {built}' if built else 'no CUDA'})"
    what = f"{build}, driver {driver or 'none'}, {count} GPUs"
    fault = toolchain.driver_fault(driver, int(built.split(".")[0])) if built and driver else None
    tiny = all(isinstance(study.models[size], TinyModel) for size in study.run.sizes)
    level: Literal["ok", "warning", "error"] = "error" if needs_vllm(study) else "warning"
    if driver and built is None:
        remedy = "install the CUDA build of torch: `make setup-gpu`"
        yield Check(level, f"{what}: torch cannot use the GPUs", remedy)
    elif fault:
        yield Check("error", f"{what}: {fault[0]}", fault[1])
    elif driver and not count:
        remedy = "request GPUs (Slurm: --gpus), or check CUDA_VISIBLE_DEVICES and nvidia-smi"
        yield Check(level, f"{what}: torch sees no GPU", remedy)
    elif not count and needs_vllm(study):
        remedy = "run this on a machine with GPUs (Slurm: `srun --gpus=1 stapo doctor ...`)"
        yield Check("error", f"{what}: the study uses vLLM", f"{remedy}, or choose hf")
    elif not count and not tiny:
        remedy = "run on GPUs; `stapo plan` estimates the time on CPUs"
        yield Check("warning", f"{what}: the study's models are not tiny", remedy)
    else:
        yield Check("ok", what + ("" if count else ": no GPU needed"))
    for i in range(count):
        found = torch.cuda.get_device_properties(i)
        capability = (found.major, found.minor)
        memory = f"{found.total_memory / 2**30:.0f} GiB"
        line = f"GPU {i}: {found.name}, {memory}, capability {found.major}.{found.minor}"
        if capability < BF16_CAPABILITY:
            yield Check("warning", line, "trainings run in bf16, which it lacks; use a newer GPU")
        else:
            yield Check("ok", line)
    if count:
        what = "nothing of this version has been run on a GPU by its authors"
        yield Check("warning", what, "run `make gpu` first (half an hour): speed, memory, numbers")


def vllm(study: Study) -> Iterator[Check]:
    """Check, without importing it, that vLLM has a version that TRL supports, if the study uses it."""
    if not needs_vllm(study):
        yield Check("ok", "vLLM not needed")
        return
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


def compiler(study: Study) -> Iterator[Check]:
    """Check that Triton can compile, which vLLM and trainings on GPUs use."""
    if not needs_vllm(study) and _driver() is None:
        return
    faults = toolchain.compiler_faults()
    for what, remedy in faults:
        yield Check("error", what, remedy)
    if not faults:
        yield Check("ok", "C compiler and Python's headers found")


LOOK = """
import json, sys
from stapo.operations.fetch import fetch
from stapo.study import parse_study
fetch(parse_study(json.load(sys.stdin)), print)
"""


def hub(study: Study) -> Iterator[Check]:
    """Check that the Hub answers or, if it does not, that everything is in the caches."""
    from huggingface_hub import constants

    items = [what for what, _ in needs(study)]
    if not items:
        yield Check("ok", "nothing needed from the Hub")
        return
    reason = f"{OFFLINE[0]} is set"
    if not constants.HF_HUB_OFFLINE:
        # A mirror may answer with a client error; it is reachable then.
        reason = unreachable(constants.ENDPOINT, below=500)
    if not reason:
        what = f"{constants.ENDPOINT} answers; `stapo fetch` downloads and checks all {len(items)} items"
        yield Check("ok", what)
        return
    # The Hub's libraries read the offline variables on import, so this needs a new process.
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOOK],
        input=json.dumps(resolved_content(study)),
        env={**os.environ, **dict.fromkeys(OFFLINE, "1")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    words = ("ok ", "missing ", "wrong ")
    lines = [line for line in done.stdout.splitlines() if line.startswith(words)]
    if len(lines) != len(items):
        why = plain((done.stderr.splitlines() or ["no output"])[-1])
        yield Check("error", f"{reason}; the check of the caches failed: {why}", "run `make setup`")
        return
    found = [*zip(items, lines, strict=True)]
    wrong = [line.removeprefix("wrong ").strip() for line in lines if line.startswith("wrong ")]
    for line in wrong:
        remedy = "remove or replace the files (STAPO_DATA_DIR), then run `stapo fetch`"
        yield Check("error", line, remedy)
    if missing := [item for item, line in found if line.startswith("missing ")]:
        remedy = "run `stapo fetch` with internet access and the same HF_HOME and STAPO_DATA_DIR"
        yield Check("error", f"{reason}; not in the caches: {', '.join(missing)}", remedy)
    elif not wrong:
        yield Check("ok", f"{reason}; all {len(items)} items are in the caches")


def slurm(timeout: float = 10.0) -> Iterator[Check]:
    """Check that Slurm answers within `timeout` seconds, and that Snakemake's plugin for it is installed."""
    if shutil.which("sbatch") is None:
        yield Check("ok", "no Slurm; only the profile `slurm` needs it")
        return
    if find_spec("snakemake_executor_plugin_slurm") is None:
        what = "the package snakemake-executor-plugin-slurm is missing"
        yield Check("error", what, "run `make setup`")
    answer = _run(["sinfo", "--noheader", "--format=%P %a %D"], timeout)
    if isinstance(answer, str):
        remedy = "ask the cluster's administrators, or use a machine where `sinfo` works"
        yield Check("error", f"sinfo: {answer}", remedy)
    else:
        yield Check("ok", f"Slurm answers with {len(answer)} lines of partitions")


def ports() -> Iterator[Check]:
    """Check that processes can communicate over loopback."""
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            yield Check(
                "ok", f"ports can be bound on loopback, such as {listener.getsockname()[1]}"
            )
    except OSError as error:
        remedy = "enable the loopback device; the processes of a training communicate over it"
        yield Check("error", f"cannot bind a port on 127.0.0.1: {error.strerror}", remedy)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _driver() -> str | None:
    """Return the version of NVIDIA's driver, None without one."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:  # pynvml is missing, or NVML finds no driver.
        return toolchain.driver()


def _run(command: list[str], timeout: float) -> list[str] | str:
    """Return the lines that a program prints, or a text that says why there are none."""
    # A file instead of a pipe: children of a program that timed out could keep the pipe open.
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                command, stdout=output, stderr=subprocess.STDOUT, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {timeout:.0f} s"
        except OSError as error:
            return str(error.strerror)
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    code = done.returncode
    return lines if code == 0 else plain((lines or [f"exit code {code}"])[0])


def unreachable(url: str, below: int = 300) -> str:
    """Return why an address does not answer with a status below a bound; empty if it does."""
    try:
        with urlopen(url, timeout=SECONDS):
            return ""
    except HTTPError as error:
        return "" if error.code < below else plain(f"{url}: {error}")
    except (OSError, ValueError) as error:
        return plain(f"{url} does not answer: {getattr(error, 'reason', error)}")
