"""Launching of a training: one process per GPU of the resources that Snakemake gave it.

Several processes are started by `accelerate launch`, on one machine or, inside a Slurm job, on several.
"""

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from math import gcd

from stapo.suite.locks import take_gpus
from stapo.suite.repository import ROOT
from stapo.suite.study import Study, StudyError

CONFIGURATIONS = ROOT / "workflows" / "accelerate"
LAUNCHED = "STAPO_LAUNCHED"
"""Environment variable of the processes of a training, which must not launch further ones."""
RENDEZVOUS = "STAPO_RENDEZVOUS"
"""Environment variable for several machines: host and port of the first machine's main process."""
NOTICE = signal.SIGUSR1
"""Signal that tells a training to save and end after its step. `accelerate launch` sends others on, but kills
its processes 30 seconds later; it does not know this one, which a scheduler sends to each process itself."""
FIRST_PORT, PORTS = 20000, 20000


def require_fit(study: Study, gpus: int, nodes: int = 1) -> None:
    """Check that a training can run on `gpus` GPUs of `nodes` machines.

    Raises:
        StudyError: it cannot.
    """
    trainings = [study.training_of(name) for name in study.run.methods]
    batch = gcd(*(training.prompts_per_mini_batch * training.group_size for training in trainings))
    error = ""
    if gpus % nodes:
        error = f"--gpus {gpus}: not a multiple of --nodes {nodes}; request a multiple"
    elif gpus == 0 and study.training.use_vllm:
        cause = "needs GPUs, but this job has none; run with --workflow-profile"
        profiles = "workflows/profiles/workstation or slurm"
        error = f"training.rollouts: {study.training.rollouts} {cause} {profiles}"
    elif gpus and batch % gpus:
        cause = f"a mini-batch of {batch} responses is not divisible by {gpus} GPUs"
        error = f"training.prompts_per_mini_batch: {cause}; choose a number of GPUs that divides it"
    if error:
        raise StudyError([error])


def launch_training(arguments: Sequence[str], gpus: int, nodes: int) -> None:
    """Replace this process by the launcher of a training; return only if this process is to train.

    The GPUs are those of the whole job; with 0 there is one process on the CPUs of each machine.

    Raises:
        StudyError: fewer GPUs are available, or there are several machines but no Slurm job.
    """
    if LAUNCHED in os.environ:
        return
    if nodes > 1 and RENDEZVOUS not in os.environ:
        command = srun_command(arguments, nodes, os.environ)
        # Two jobs on a machine most likely get different ports.
        port = FIRST_PORT + int(os.environ["SLURM_JOB_ID"]) % PORTS
        os.environ[RENDEZVOUS] = f"{socket.gethostname()}:{port}"
    else:
        take_gpus(gpus // nodes)
        if gpus == 0 and nodes == 1:
            return
        # A single process is started by exec, without a launcher: signals reach it, and it keeps the lease.
        alone = [sys.executable, "-m", "stapo", *arguments]
        several = gpus > 1 or nodes > 1
        command = accelerate_command(arguments, gpus, nodes, os.environ) if several else alone
        os.environ[LAUNCHED] = "1"
    # Also of the launcher, which would end of it; exec keeps this, and the training sets its own handler.
    signal.signal(NOTICE, signal.SIG_IGN)
    print("starting:", *command, flush=True)  # noqa: T201
    os.execvp(command[0], command)


def srun_command(arguments: Sequence[str], nodes: int, environment: Mapping[str, str]) -> list[str]:
    """Return the command that starts this program once on each machine of the Slurm job.

    Raises:
        StudyError: this is not a Slurm job. srun itself refuses a job with too few machines.
    """
    if "SLURM_JOB_ID" not in environment:
        cause = "not inside a Slurm job; use the profile slurm, or run accelerate launch"
        raise StudyError([f"--nodes {nodes}: {cause}"])
    # If one machine fails, all are stopped: the others would wait for it until a timeout.
    return [
        *("srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"),
        *("--kill-on-bad-exit=1", "--export=ALL", "--cpu-bind=none"),
        *(sys.executable, "-m", "stapo", *arguments),
    ]


def accelerate_command(
    arguments: Sequence[str], gpus: int, nodes: int, environment: Mapping[str, str]
) -> list[str]:
    """Return the command of `accelerate launch` on this machine, with the configuration for its resources."""
    processes = gpus or nodes
    name = "cpu-2" if gpus == 0 else "nodes" if nodes > 1 else "gpu-8"
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    command += ["--config_file", str(CONFIGURATIONS / f"{name}.yaml")]
    command += ["--num_machines", str(nodes), "--num_processes", str(processes)]
    if nodes == 1:
        # 0 means any free port: two trainings on one machine must not use the same one.
        command += ["--main_process_port", "0"]
    else:
        host, _, port = environment[RENDEZVOUS].rpartition(":")
        command += ["--main_process_ip", host, "--main_process_port", port]
        command += ["--machine_rank", environment["SLURM_NODEID"]]
    return [*command, "-m", "stapo", *arguments]
