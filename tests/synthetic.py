"""Synthetic results in the real formats, for tests of their readers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stapo.suite import paths
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.main_table import MainTable, main_table
from stapo.suite.jobs import jobs_of
from stapo.suite.jobs.evaluate import cell
from stapo.suite.publication.folder import is_raw
from stapo.suite.records.scores import ScoreRow, write_score_file
from stapo.suite.study import Checkpoint, Study

RATES = {"base": 0.3, "grpo": 0.5, "20-entropy": 0.55, "justrl": 0.6, "stapo": 0.8}
PROBLEMS = 20
WRONG = ScoreRow(0, 0, "7", None, "no_box", False, 10, False, False, "not_asked", False, False)
RIGHT = replace(WRONG, answer="7", verdict="correct", correct=True, correct_with_verifier=True)
PROVENANCE = {"processor": "a", "machine": "b", "packages": {"torch": "1"}, "commit": "c"}


def write_score(
    root: Path,
    study: Study,
    checkpoint: Checkpoint | str,
    benchmark: str,
    decoding: str | None = None,
    rate: float | None = None,
    **identity: Any,
) -> Path:
    """Write the scores of one cell, for the first decoding by default, with a share of correct responses."""
    checkpoint = Checkpoint.parse(str(checkpoint))
    decoding, samples = decoding or study.run.decodings[0], study.benchmarks[benchmark].samples
    rng = np.random.default_rng(list(f"{checkpoint} {benchmark}".encode()))
    if rate is None:
        rate = RATES.get(checkpoint.method or "base", 0.5)
    rows = [
        replace(RIGHT if rng.random() < rate else WRONG, problem=problem, sample=sample)
        for problem in range(PROBLEMS)
        for sample in range(samples)
    ]
    rng.shuffle(rows)  # The order of rows must not matter.
    of = jobs_of(study)
    job = of.job("score", f"{checkpoint}/{decoding}/{benchmark}")
    made = {**cell(of, job), "engine": "vllm 1 on A", "provenance": PROVENANCE}
    path = root / paths.SCORES.format(
        study=study.name, checkpoint=checkpoint, decoding=decoding, benchmark=benchmark
    )
    write_score_file(path, rows, {**made, **identity})
    return path


def write_scores(root: Path, study: Study) -> None:
    for checkpoint, benchmark in study.cells(study.run.decodings[0]):
        write_score(root, study, checkpoint, benchmark)


def rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    table = pq.read_table(path)
    rows = [row | change(row) for row in table.to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


def tabulated(root: Path, study: Study) -> MainTable:
    return main_table(Artefacts(study, root), study.run.decodings[0])


def leave_out_raw_data(folder: Path) -> None:
    """Keep of a results folder what a repository keeps: see results/README.md."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()  # Git has no empty directories.
        elif is_raw(path.relative_to(folder).as_posix()):
            path.unlink()
