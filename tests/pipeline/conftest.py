"""One complete run of the DAG at reduced size, shared by the tests of this folder."""

import copy
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from workspace import REDUCED, Workspace

from stapo.repository import ROOT
from stapo.study import merge


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Workspace:
    """The reduced study, run to its end. Not to be changed: see `workspace`."""
    smoke = yaml.safe_load((ROOT / "workflows" / "studies" / "smoke.yaml").read_text())
    study = merge(smoke, REDUCED)
    if worker_id == "master":
        return run_to_its_end(Workspace(tmp_path_factory.mktemp("study"), study))
    # Processes of pytest-xdist: the first one runs it, each has a copy.
    shared = Workspace(tmp_path_factory.getbasetemp().parent / "study", study)
    done = shared.path.with_name("study-done")
    with shared.path.with_name("study-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shared.path.mkdir(exist_ok=True)
            run_to_its_end(shared)
            done.touch()
    own = tmp_path_factory.getbasetemp() / "study"
    shutil.copytree(shared.path, own)
    return Workspace(own, study)


def run_to_its_end(workspace: Workspace) -> Workspace:
    workspace.write()
    done = workspace.snakemake("--show-failed-logs")
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


@pytest.fixture
def workspace(finished: Workspace, tmp_path: Path) -> Workspace:
    """A copy of the finished study, to be changed and run again."""
    shutil.copytree(finished.path, tmp_path / "copy")
    return Workspace(tmp_path / "copy", copy.deepcopy(finished.study))


@pytest.fixture
def edited(finished: Workspace) -> Iterator[Workspace]:
    """The finished study with a study file to edit, for dry runs only."""
    yield Workspace(finished.path, copy.deepcopy(finished.study))
    finished.write()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of this folder: all but one file are slow."""
    item.add_marker(pytest.mark.pipeline)
    if item.path.name != "test_whole.py":
        item.add_marker(pytest.mark.slow)
