"""A disk that is full, in every stage: one line, nothing lost, the same command continues.

On a real file system of that size, so that only root can run this.
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
import torch

from stapo import paths
from stapo.cli import main
from stapo.files import read_jsonl
from stapo.repository import CATALOGUE
from stapo.study import Study, merge, parse_study
from stapo.study.loader import load_yaml
from stapo.study.resolved import resolved_path, write_resolved

pytestmark = pytest.mark.slow

BLOCK = 4096
RUN = {"study": "smoke", "size": "tiny", "method": "stapo", "seed": 0}
CELL = {
    "study": "smoke",
    "checkpoint": "tiny/base",
    "decoding": "t1.0-p1.0",
    "benchmark": "chain-2",
}
MOUNT = ["mount", "-t", "tmpfs", "-o"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system that is made as small or as large as a test wants."""
    path = tmp_path / "small"
    path.mkdir()
    tried = subprocess.run([*MOUNT, "size=1g", "tmpfs", path], check=False, capture_output=True)
    if tried.returncode:
        pytest.skip("may not mount a file system")
    yield path
    os.chdir("/")
    subprocess.run(["umount", "--lazy", path], check=True)


def resize(path: Path, free: int | None) -> None:
    """Leave so many bytes free, or as many as there are."""
    usage = os.statvfs(path)
    used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
    # Of size 0 a tmpfs has no limit; the files' own blocks are never below that.
    size = 2**30 if free is None else max(used + free, BLOCK)
    subprocess.run([*MOUNT, f"remount,size={size}", "tmpfs", path], check=True)


def stage(name: str, study: Study) -> tuple[list[str], list[str]]:
    """Return the arguments of a stage and what it writes; a path that ends with / is a directory."""
    write_resolved(study)
    of_study, at = ["--study", resolved_path(study)], {**RUN, **CELL}
    base, prompts = paths.BASE_MODEL.format(**at), paths.PROMPTS.format(**at)
    model, metrics = paths.MODEL.format(**RUN), paths.METRICS.format(**RUN)
    responses, score = paths.COMPLETIONS.format(**at), paths.SCORES.format(**at)
    if name == "prompts":
        return [*of_study, f"--out={prompts}"], [prompts]
    if name == "base":
        return [*of_study, "--size=tiny", f"--out={base}"], [f"{base}/"]
    if name == "train":
        run = [
            "--size=tiny",
            "--method=stapo",
            "--seed=0",
            f"--base={base}",
            f"--prompts={prompts}",
        ]
        written = ["--work=work/train", f"--out={model}", f"--metrics={metrics}"]
        return [*of_study, *run, *written], [f"{model}/", metrics]
    if name == "generate":
        cell = ["--checkpoint=tiny/base", "--decoding=t1.0-p1.0", f"--model={base}"]
        out = paths.RESPONSES.format(**CELL)
        return [*of_study, *cell, "--work=work/generate", f"--out={out}"], [responses]
    if name == "score":
        cell = ["--checkpoint=tiny/base", "--decoding=t1.0-p1.0", "--benchmark=chain-2"]
        return [*of_study, *cell, f"--completions={responses}", f"--out={score}"], [score]
    if name == "table":
        wildcards = {"study": "smoke", "decoding": "t1.0-p1.0"}
        tables = [paths.MAIN_TABLE.format(**wildcards, suffix=s) for s in ("md", "tex", "csv")]
        return [*of_study, "--decoding=t1.0-p1.0"], tables
    if name == "figure":
        figures = [
            paths.FIGURE.format(study="smoke", figure="entropy", suffix=s) for s in ("svg", "png")
        ]
        return [*of_study, "--name=entropy"], figures
    if name == "values":
        return of_study, [paths.VALUES.format(study="smoke", suffix=s) for s in ("csv", "parquet")]
    if name == "report":
        return of_study, [paths.REPORT.format(study="smoke")]
    return of_study, [paths.CHECKSUMS.format(study="smoke")]


def content(path: Path) -> Any:
    """Return what a file says, times and places apart."""
    if path.name == "metrics.jsonl":
        return [{**record, "seconds": None} for record in read_jsonl(path)]
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    return path.read_bytes()


def files(outputs: list[str]) -> dict[str, Any]:
    """Return the contents of what a stage writes."""
    found = [p for o in map(Path, outputs) for p in (o.rglob("*") if o.is_dir() else [o])]
    return {str(path): content(path) for path in found if path.is_file()}


def call(monkeypatch: pytest.MonkeyPatch, name: str, arguments: list[str]) -> int:
    monkeypatch.setattr(sys, "argv", ["stapo", name, *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


ROOMS = {
    "prompts": (0, 1, 2),
    "base": (0, 100, 300),
    "train": (0, 20, 400, 1000, 1600, 2500),
    "generate": (0, 5, 12),
    "score": (0, 1, 2),
    "table": (0, 1, 2),
    "figure": (0, 5, 20),
    "values": (0, 5),
    "report": (0, 20),
    "provenance": (0, 2),
}
"""Blocks of 4 KiB that are free when a stage begins; then there is room enough."""


@pytest.mark.parametrize("name", ROOMS)
def test_a_full_disk_is_one_line_and_the_same_command_continues(
    finished, small, monkeypatch, capsys, name
):
    torch.set_num_threads(1)
    raw = merge(load_yaml(CATALOGUE).content, finished.study)
    if name == "base":
        raw = merge(raw, {"models": {"tiny": {"supervised_steps": 25}}})
    study = parse_study(raw)
    shutil.copytree(finished.path / "results", small / "results")
    monkeypatch.chdir(small)
    arguments, outputs = stage(name, study)
    for output in outputs:
        shutil.rmtree(output) if output.endswith("/") else Path(output).unlink()
    others = files(["results"])
    failed = 0
    for room in ROOMS[name]:
        resize(small, room * BLOCK)
        capsys.readouterr()
        if call(monkeypatch, name, arguments) == 0:
            break
        failed += 1
        said = [line for line in capsys.readouterr().err.splitlines() if "stapo: " in line]
        assert len(said) == 1, said
        assert "no space left" in said[0] or "are free" in said[0], said
        assert {path: files(["results"])[path] for path in others} == others, room
    assert failed >= 1
    resize(small, None)
    assert call(monkeypatch, name, arguments) == 0
    if name == "base":
        return  # A shorter one than the study's: `test_tiny.py` compares the bits.
    expected = {path: content(finished.path / path) for path in files(outputs)}
    if name == "provenance":  # Its own time stands in it.
        assert files(outputs).keys() == expected.keys()
        return
    for path, found in files(outputs).items():
        assert found == expected[path], path
