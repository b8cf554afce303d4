"""One complete run of the DAG at reduced size, shared by the tests of this folder."""

import shutil
from pathlib import Path

import pytest
from programs import made_once
from world import REDUCED, World


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The reduced study, run to its end. Not to be changed: see `workspace`."""
    path = made_once(
        tmp_path_factory, "study", lambda path: World(path, REDUCED).run("--show-failed-logs")
    )
    return World(path, REDUCED)


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
