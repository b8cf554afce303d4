"""One complete run of the DAG at reduced size, shared by the tests of this folder."""

import fcntl
import shutil
from pathlib import Path

import pytest
from world import REDUCED, World


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> World:
    """The reduced study, run to its end. Not to be changed: see `workspace`."""
    if worker_id == "master":
        world = World(tmp_path_factory.mktemp("study"), REDUCED)
        world.run("--show-failed-logs")
        return world
    # Processes of pytest-xdist: the first one runs it, each has a copy.
    shared = World(tmp_path_factory.getbasetemp().parent / "study", REDUCED)
    done = shared.path.with_name("study-done")
    with shared.path.with_name("study-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shared.run("--show-failed-logs")
            done.touch()
    own = tmp_path_factory.getbasetemp() / "study"
    shutil.copytree(shared.path, own)
    return World(own, REDUCED)


@pytest.fixture
def workspace(finished: World, tmp_path: Path) -> World:
    """A copy of the finished study, to be changed and run again."""
    shutil.copytree(finished.path, tmp_path / "copy")
    return World(tmp_path / "copy", finished.study)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of this folder: all but one are slow."""
    item.add_marker(pytest.mark.pipeline)
    if item.name != "test_a_dry_run_makes_one_job_of_each[smoke]":
        item.add_marker(pytest.mark.slow)
