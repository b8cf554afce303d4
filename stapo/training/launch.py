"""Launching of a training on one machine: one process per GPU of the resources that Snakemake gave it."""

import os
import signal
import sys
from collections.abc import Sequence
from math import gcd

from stapo.gpus import take_gpus
from stapo.repository import ROOT
from stapo.study import Study

CONFIGURATION = ROOT / "workflows" / "accelerate" / "gpu-8.yaml"
LAUNCHED = "STAPO_LAUNCHED"
"""Environment variable of the processes of a training, which must not launch further ones."""
NOTICE = signal.SIGUSR1
"""Signal that tells a training to save and end after its step. `accelerate launch` sends others on, but kills
its processes 30 seconds later; it does not know this one, which a scheduler sends to each process itself."""


def training_errors(study: Study, size: str, gpus: int) -> list[str]:
    """Return why a training cannot run on a number of GPUs, one line per reason."""
    if gpus == 0:
        if study.training.rollouts == "transformers":
            return []
        return [
            f"training.rollouts: {study.training.rollouts} needs GPUs, but this job has none; run with "
            "--workflow-profile workflows/profiles/workstation or slurm"
        ]
    import torch

    here = torch.cuda.device_count()
    if here < gpus:
        return [f"--gpus {gpus}: only {here} available; request fewer in the profile's resources"]
    return division_errors(study, gpus)


def division_errors(study: Study, gpus: int) -> list[str]:
    """Return why a mini-batch of the study's trainings cannot be divided among a number of GPUs."""
    batch = mini_batch_divisor(study)
    if batch % gpus == 0:
        return []
    return [
        f"training.prompts_per_mini_batch: a mini-batch of {batch} responses is not divisible by "
        f"{gpus} GPUs; choose a number of GPUs that divides it"
    ]


def mini_batch_divisor(study: Study) -> int:
    """Return the number of responses that every number of GPUs of the study's trainings must divide."""
    own = [study.training_of(name) for name in study.run.methods]
    return gcd(*(one.prompts_per_mini_batch * one.group_size for one in own))


def launch_training(arguments: Sequence[str], gpus: int) -> None:
    """Replace this process by the launcher of a training; return only if this process is to train.

    Args:
        arguments: arguments of `stapo`.
        gpus: number of GPUs; 0 for one process on the CPUs.

    Raises:
        StudyError: fewer GPUs are available.
    """
    if LAUNCHED in os.environ:
        return
    take_gpus(gpus)
    if gpus == 0:
        return
    # A single process is started by exec, without a launcher: signals reach it, and it keeps the lease.
    command = launch_command(arguments, gpus)
    os.environ[LAUNCHED] = "1"
    # Also of the launcher, which would end of it; exec keeps this, and the training sets its own handler.
    signal.signal(NOTICE, signal.SIG_IGN)
    print("starting:", *command, flush=True)  # noqa: T201
    os.execvp(command[0], command)


def launch_command(arguments: Sequence[str], gpus: int) -> list[str]:
    """Return the command that trains on a number of GPUs; for several, that of `accelerate launch`."""
    launcher = ["-m", "accelerate.commands.accelerate_cli", "launch"]
    launcher += ["--config_file", str(CONFIGURATION), "--num_processes", str(gpus)]
    # 0 means any free port: two trainings on one machine must not use the same one.
    launcher += ["--main_process_port", "0"]
    return [sys.executable, *(launcher if gpus > 1 else ()), "-m", "stapo", *arguments]
