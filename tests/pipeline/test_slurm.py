"""The profile for Slurm, on a real one: a study gives what it gives without, also when a job is killed.

Nothing is installed and root is not needed: Slurm's packages are unpacked once below `.cache/slurm`.
"""

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from programs import missing
from world import STATES, World

from stapo.suite import paths
from stapo.suite.jobs import jobs_of
from stapo.suite.repository import ROOT

CACHE = ROOT / ".cache" / "slurm"
DEBIAN = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins"),
    *("munge", "libmunge2", "libhwloc15", "liblua5.1-0"),
)
"""Packages that Slurm 22.05 needs in addition to a minimal Debian 12."""
USER = pwd.getpwuid(os.getuid()).pw_name
START_SECONDS, STOP_SECONDS = 60, 30

# Without root and control groups jobs are not confined, but cores and memory are counted as on a cluster.
# The nodes pretend to be large (config_overrides), so that the resources of a real study are granted.
CONFIGURATION = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={path}/munge.socket
PluginDir={plugins}
StateSaveLocation={path}/state
SlurmctldPort={port}
SlurmctldPidFile={path}/slurmctld.pid
SlurmdPidFile={path}/%n.pid
SlurmdSpoolDir={path}/%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
# Start jobs immediately, without the seconds in which Slurm collects jobs.
SchedulerParameters=batch_sched_delay=0,sched_interval=1
ReturnToService=2
MinJobAge=86400
{nodes}
PartitionName=loopback Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=2000000"


@contextmanager
def slurm(path: Path, nodes: int = 1) -> Iterator[dict[str, str]]:
    """Yield the environment in which `sbatch` and other commands use a Slurm on this machine only.

    At the end its jobs are cancelled and its daemons stopped, also after an error. The path is short, because
    sockets lie in it; the virtual nodes n1, n2, ... are this machine.
    """
    root = _unpacked()
    path.mkdir(parents=True)
    (path / "state").mkdir()
    key = path / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    (plugins,) = root.glob("usr/lib/*/slurm-wlm")
    (path / "slurm.conf").write_text(_configuration(path, plugins, nodes))
    # Snakemake's jobs unset SLURM_CONF before they call srun.
    srun = path / "srun"
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={path}/slurm.conf exec {root}/usr/bin/srun "$@"\n')
    srun.chmod(0o755)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
        "PATH": f"{path}:{root}/usr/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{plugins}:{plugins.parent}",
        "SLURM_CONF": str(path / "slurm.conf"),
    }
    sbin = root / "usr" / "sbin"
    munged = [f"{sbin}/munged", "--foreground", "--force", f"--key-file={key}"]
    munged += [f"--{kind}-file={path}/munge.{kind}" for kind in ("pid", "log", "seed")]
    daemons = {
        "munged": [*munged, f"--socket={path}/munge.socket"],
        "slurmctld": [f"{sbin}/slurmctld-wlm", "-D", "-i"],
    }
    slurmd = [f"{sbin}/slurmd-wlm", "-D", "-d", f"{sbin}/slurmstepd-wlm", "-N"]
    daemons |= {f"n{i}": [*slurmd, f"n{i}"] for i in range(1, nodes + 1)}

    def said(*command: str) -> str:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else "failed: " + done.stderr

    with ExitStack() as stack:
        for name, command in daemons.items():
            log = stack.enter_context((path / f"{name}.log").open("wb"))
            # In a session of its own, so that Ctrl-C stops only the test.
            daemon = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            stack.callback(_stop, daemon)
            if name == "munged":
                _wait(path, (path / "munge.socket").exists)
        _wait(path, lambda: said("sinfo", "-hN", "-o%T").split() == ["idle"] * nodes)
        try:
            yield environment
        finally:
            # The processes of jobs outlive slurmd, so they must end first.
            said("scancel", "--user", USER)
            _wait(path, lambda: said("squeue", "-h") == "", STOP_SECONDS)


def _configuration(path: Path, plugins: Path, nodes: int) -> str:
    host = socket.gethostname().split(".")[0]
    with ExitStack() as stack:  # All are free at once.
        sockets = [stack.enter_context(socket.socket()) for _ in range(nodes + 1)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        port, *ports = (one.getsockname()[1] for one in sockets)
    lines = [NODE.format(i=i, host=host, port=own) for i, own in enumerate(ports, start=1)]
    facts = {"path": path, "plugins": plugins, "port": port, "nodes": "\n".join(lines)}
    return CONFIGURATION.format(host=host, user=USER, **facts)


def _stop(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _wait(path: Path, ready: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            logs = (f"{log.name}: {log.read_text()[-1000:]}" for log in sorted(path.glob("*.log")))
            raise RuntimeError(f"Slurm is not ready after {seconds} s\n" + "\n".join(logs))
        time.sleep(0.1)


def _unpacked() -> Path:
    """Return the directory with the unpacked packages, laid out as below `/`."""
    root = CACHE / "root"
    if root.is_dir():
        return root
    aside = CACHE / f"root.{os.getpid()}"
    debs = aside / "debs"
    debs.mkdir(parents=True)
    try:
        if not (shutil.which("apt-get") and shutil.which("dpkg")):
            missing("Slurm comes from Debian's packages, and here is no apt-get or no dpkg")
        download = ["apt-get", "download", *DEBIAN]
        done = subprocess.run(download, cwd=debs, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            missing(f"no packages of Slurm: apt-get download: {done.stderr.strip()[-300:]}")
        for deb in debs.iterdir():
            subprocess.run(["dpkg", "-x", deb, aside], check=True)
        aside.rename(root)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return root


SLURM = (
    # The profile that users have.
    *("--workflow-profile", str(ROOT / "workflows" / "profiles" / "slurm")),
    # A cluster has accounting and jobs of hours: `sacct`, asked every 40 s.
    *("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "1"),
    # In place of the profile's: the study's own resources, here no GPU.
    *("--printshellcmds", "--set-resources", "train:runtime=10"),
)
"""Options in place of the number of cores; resources of a test come last."""


@contextmanager
def running(world: World, environment: dict[str, str]) -> Iterator[Callable[..., None]]:
    """Run a study through Slurm to its end; yield a function that waits for something to be true."""
    process = world.start(**environment)

    def wait_for(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 300
        while not condition():
            assert process.poll() is None, world.log.read_text()
            assert time.monotonic() < deadline, world.log.read_text()
            time.sleep(0.05)

    try:
        yield wait_for
        assert process.wait(600) == 0, world.log.read_text()
    finally:
        process.kill()


@pytest.mark.parametrize("how", ["cancelled", "told of its limit"])
def test_a_study_through_slurm_with_a_stopped_training_is_the_same(tmp_path, how):
    name, rule = "tiny/stapo/seed0", "rule_train_wildcards_tiny_stapo_0"
    usual, world = (World(tmp_path / place, STATES, stub=True) for place in ("usual", "slurm"))
    usual.run()
    of = jobs_of(world.parsed())
    work = paths.TRAIN_WORK.format(fingerprint=of.made_by("train", name))
    world.options = (*SLURM, "train:slurm_extra='--signal=USR1@120'")
    slow, start = world.path / "SLOW", time.monotonic()
    slow.write_text("8")
    with slurm(tmp_path / "daemons") as environment:

        def jobs(states: str) -> list[list[str]]:
            """Return number and rule, with wildcards, of the jobs in some states."""
            command = ["squeue", "--noheader", f"--states={states}", "--format=%i %k"]
            listed = subprocess.check_output(command, env=environment, text=True)
            return [line.split() for line in listed.splitlines()]

        with running(world, environment) as wait_for:
            wait_for((world.path / work / "metrics.jsonl").exists)
            (number,) = (number for number, what in jobs("running") if what == rule)
            # So that Slurm, which looks every 30 seconds, finds less than the 120 left.
            limit = f"TimeLimit={int(time.monotonic() - start) // 60 + 2}"
            limited = ["scontrol", "update", f"JobId={number}", limit]
            command = ["scancel", number] if how == "cancelled" else limited
            subprocess.run(command, env=environment, check=True)
            wait_for(lambda: [what for _, what in jobs("all")].count(rule) == 2)
            slow.unlink()
        ran = {what.split("_wildcards_")[0] for _, what in jobs("all")}
    assert ran == {"rule_train", "rule_generate", "rule_score"}
    if how != "cancelled":
        assert "told to stop by SIGUSR1" in world.log.read_text()
    for path in of.published():
        assert (world.path / path).read_bytes() == (usual.path / path).read_bytes(), path


def test_a_training_on_two_nodes_meets_over_srun(workspace, tmp_path):
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError:
        missing("this machine does not find itself by its name, by which nodes meet")
    workspace.study["run"] |= {"methods": ["justrl"], "seeds": [1]}
    run = "runs/tiny/justrl/seed1"
    workspace.options = (*SLURM, "train:nodes=2", "train:tasks=2", "train:mpi=srun")
    workspace.write()
    with slurm(tmp_path / "slurm", nodes=2) as environment:
        code, told = workspace.snakemake(f"results/smoke/{run}/model/SHA256SUMS", **environment)
    # On a busy machine a finished job may be taken for a failed one: the log is that of the next attempt.
    told += (workspace.path / f"logs/smoke/{run}/model.log").read_text()
    assert code == 0, told
    assert "starting: srun --nodes=2 --ntasks=2" in told, told
    assert all(f"--machine_rank {rank}" in told for rank in (0, 1)), told
    found = workspace.read(f"results/smoke/{run}/provenance.json")
    assert [attempt["processes"] for attempt in found["attempts"]] == [2]
    assert found["steps"] == 8
