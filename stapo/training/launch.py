"""Launching of a training: one process for each GPU that Snakemake gave it, on one machine."""

import os
import signal
import sys
from collections.abc import Sequence
from math import gcd

from stapo.locks import take_gpus
from stapo.repository import ROOT
from stapo.study import Study

CONFIGURATION = ROOT / "workflows" / "accelerate" / "gpu-8.yaml"
LAUNCHED = "STAPO_LAUNCHED"
"""Environment variable of the processes of a training, which must not launch further ones."""
NOTICE = signal.SIGUSR1
"""Signal that tells a training to save and end after its step. `accelerate launch` sends others on, but kills
its processes 30 seconds later; it does not know this one, which a scheduler sends to each process itself."""


def training_errors(study: Study, gpus: int) -> list[str]:
    """Return why a training cannot run on `gpus` GPUs, one line per reason."""
    if gpus == 0:
        if study.training.rollouts == "transformers":
            return []
        return [
            f"training.rollouts: {study.training.rollouts} needs GPUs, but this job has none; run with "
            "--workflow-profile workflows/profiles/workstation or slurm"
        ]
    own = [study.training_of(name) for name in study.run.methods]
    batch = gcd(*(one.prompts_per_mini_batch * one.group_size for one in own))
    if batch % gpus == 0:
        return []
    return [
        f"training.prompts_per_mini_batch: a mini-batch of {batch} responses is not divisible by "
        f"{gpus} GPUs; choose a number of GPUs that divides it"
    ]


def launch_training(arguments: Sequence[str], gpus: int) -> None:
    """Replace this process by the launcher of a training; return only if this process is to train.

    Args:
        arguments: arguments of `stapo`.
        gpus: GPUs to lease; 0 for one process on the CPUs.

    Raises:
        StudyError: there are fewer GPUs.
    """
    if LAUNCHED in os.environ:
        return
    take_gpus(gpus)
    if gpus == 0:
        return
    # A single process is started by exec, without a launcher: signals reach it, and it keeps the lease.
    command = [sys.executable]
    if gpus > 1:
        command += ["-m", "accelerate.commands.accelerate_cli", "launch"]
        command += ["--config_file", str(CONFIGURATION), "--num_processes", str(gpus)]
        # 0 means any free port: two trainings on one machine must not use the same one.
        command += ["--main_process_port", "0"]
    command += ["-m", "stapo", *arguments]
    os.environ[LAUNCHED] = "1"
    # Also of the launcher, which would end of it; exec keeps this, and the training sets its own handler.
    signal.signal(NOTICE, signal.SIG_IGN)
    print("starting:", *command, flush=True)  # noqa: T201
    os.execvp(command[0], command)
