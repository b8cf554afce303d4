"""A disk that is full, in every stage: one line, nothing lost, the same command continues.

On a real file system of that size, for which `sudo` must not ask.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from programs import missing

from stapo.core.files import read_jsonl
from stapo.suite.cli import main
from stapo.suite.jobs import jobs_of
from stapo.suite.study import parse_study
from stapo.suite.study.reading import resolved_path, write_resolved

BLOCK = 4096
ROOT_RIGHTS = ["sudo", "-n"] if os.getuid() and shutil.which("sudo") else []
MOUNT = [*ROOT_RIGHTS, "mount", "-t", "tmpfs", "-o"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system that is made as small or as large as a test wants."""
    path, before = tmp_path / "small", Path.cwd()
    path.mkdir()
    tried = subprocess.run([*MOUNT, "size=1g", "tmpfs", path], check=False, capture_output=True)
    if tried.returncode:
        missing("may not mount a file system")
    yield path
    os.chdir(before)
    subprocess.run([*ROOT_RIGHTS, "umount", "--lazy", path], check=True)


def resize(path: Path, free: int | None) -> None:
    """Leave so many bytes free, or as many as there are."""
    usage = os.statvfs(path)
    used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
    # Of size 0 a tmpfs has no limit; the files' own blocks are never below that.
    size = 2**30 if free is None else max(used + free, BLOCK)
    subprocess.run([*MOUNT, f"remount,size={size}", "tmpfs", path], check=True)


def content(path: Path) -> Any:
    """Return what a file says, times and places apart."""
    if path.name == "metrics.jsonl":
        return [{**record, "seconds": None} for record in read_jsonl(path)]
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    return path.name if path.name in ("provenance.json", "SHA256SUMS") else path.read_bytes()


def results() -> dict[str, Any]:
    """Return the contents of all results."""
    files = (path for path in Path("results").rglob("*") if path.is_file())
    # The record of a job says that it has not ended.
    return {str(path): content(path) for path in files if ".jobs" not in path.parts}


ROOMS = {
    "prompts": ("", (0, 2)),
    "train": ("tiny/stapo/seed0", (0, 400, 1600)),
    "generate": ("tiny/base/t1.0-p1.0", (0, 5)),
    "score": ("tiny/base/t1.0-p1.0", (0, 1)),
    "tables": ("t1.0-p1.0", (0, 1)),
    "evidence": ("", (0, 10)),
    "figures": ("", (0, 20)),
    "report": ("", (0, 20)),
    "provenance": ("", (0, 2)),
}
"""A job, and the blocks of 4 KiB that are free when it begins; then there is room enough."""


@pytest.mark.parametrize("stage", ROOMS)
def test_a_full_disk_is_one_line_and_the_same_command_continues(
    finished, small, monkeypatch, capsys, stage
):
    def call() -> int:
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    name, rooms = ROOMS[stage]
    study = parse_study(finished.study)
    shutil.copytree(finished.path / "results", small / "results")
    monkeypatch.chdir(small)
    monkeypatch.setattr(sys, "argv", ["stapo", "run", stage, name, "--study", resolved_path(study)])
    write_resolved(study)
    complete = results()
    for job in jobs_of(study).select(stage, name):
        for output in job.outputs:
            Path(output).unlink()
    others, failed = results(), 0
    for room in rooms:
        resize(small, room * BLOCK)
        capsys.readouterr()
        if call() == 0:
            break
        failed += 1
        said = [line for line in capsys.readouterr().err.splitlines() if "stapo: " in line]
        assert len(said) == 1, said
        assert "no space left" in said[0], said
        now = results()
        assert {path: now[path] for path in others} == others, room
    assert failed >= 1
    resize(small, None)
    assert call() == 0
    assert results() == complete
