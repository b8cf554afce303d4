"""The scores of one decoding as arrays, after checking that they belong to the study and to each other."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from stapo import paths
from stapo.analysis.equal_weights import SameWeights, same_weights
from stapo.analysis.selection import Choice, select
from stapo.evaluation.statistics import Array, majority_at_n
from stapo.files import AGAIN, DamagedFileError, read_json
from stapo.records.scores import SCHEMA, ScoreIdentity, Verdict, read_score_file
from stapo.stages.score import score_identity
from stapo.study import Checkpoint, Study

SAME_EVERYWHERE = ("processor", "machine", "engine")
SAME_PACKAGES = (
    "torch", "transformers", "lm-eval", "math-verify", "sympy", "latex2sympy2-extended",
)  # fmt: skip
VERDICT_COLUMNS = {"rule": "correct", "verifier": "correct_with_verifier"}
MOST_LINES = 3
"""More files than this that are missing, or made with other settings, are one line."""


class StaleScoreError(ValueError):
    """Scores do not belong to the study in its current state."""


@dataclass
class Cell:
    """All responses of one row (size and method, or base) to one benchmark."""

    correct: Array
    """(S, P, N) whether responses are correct: seeds, problems, samples."""
    majority: float
    """Majority@N: share of problems whose most frequent answer is correct, mean over seeds."""
    rows: pd.DataFrame
    """Columns of `ScoreRow`, without the answers."""

    def mean(self, column: str) -> float:
        """Return the mean of a column, such as the share of truncated responses."""
        return float(self.rows[column].mean())

    def share(self, *verdicts: Verdict) -> float:
        """Return the share of responses with some verdicts."""
        return float(self.rows["verdict"].isin(verdicts).mean())

    @property
    def judged(self) -> int:
        """Number of responses that the verifier judged."""
        return int((self.rows["verifier"] != "not_asked").sum())

    @property
    def flips(self) -> int:
        """Number of responses that the rules reject and the verifier accepts."""
        return int((self.rows["correct_with_verifier"] & ~self.rows["correct"]).sum())

    @property
    def cut(self) -> int:
        """Number of responses of which the verifier read only the end."""
        return int(self.rows["verifier_cut"].sum())


@dataclass
class Scores:
    """The scores of one decoding."""

    cells: dict[tuple[str, str, str], Cell] = field(default_factory=dict)
    """(size, method or `base`, benchmark) -> responses."""
    provenance: dict[str, Any] = field(default_factory=dict)
    choices: list[Choice] = field(default_factory=list)
    """Choice of the checkpoint of each training."""
    overlap: dict[str, dict[str, int]] = field(default_factory=dict)
    """Kind of overlap -> benchmark -> number of problems, from `data/overlap.json`."""
    same_weights: list[SameWeights] = field(default_factory=list)
    """Methods whose rows show the same weights."""


def read_scores(study: Study, decoding: str, root: Path = Path()) -> Scores:
    """Read every score of a decoding.

    Raises:
        StaleScoreError: files are missing, damaged or incomplete, or were made with another configuration, or
            with other packages or hardware than the others; one line for each file, or for many.
    """
    tables, provenance = read_tables(study, decoding, study.table_cells(decoding), root)
    overlap, kinds = {}, ("shared", "sharing_13_words")
    if (path := root / paths.OVERLAP.format(study=study.name)).exists():
        found = read_json(path)
        if not all(isinstance(found.get(kind), dict) for kind in kinds):
            raise DamagedFileError(f"{path}: no {' or no '.join(kinds)}; {AGAIN}")
        overlap = {kind: found[kind] for kind in kinds}
    choices, cells = chosen_cells(study, tables)
    return Scores(cells, provenance, choices, overlap, same_weights(study, choices, root))


def chosen_cells(
    study: Study, tables: Mapping[tuple[Checkpoint, str], pa.Table]
) -> tuple[list[Choice], dict[tuple[str, str, str], Cell]]:
    """Return the choice of the checkpoint of each training, and the responses of each row and benchmark.

    The score files are of all cells of a decoding's table, complete and of the same problems.
    """
    column = VERDICT_COLUMNS[study.evaluation.verdict]
    choices = [_choice(study, *run, tables, column) for run in study.runs()]
    chosen = {(size, "base"): [Checkpoint(size)] for size in study.run.sizes}
    for choice in choices:
        run = study.checkpoint(choice.size, choice.method, choice.seed, choice.selected)
        chosen.setdefault((choice.size, choice.method), []).append(run)
    cells = {
        (*row, name): _cell(
            [tables[one, name] for one in checkpoints], study.benchmarks[name].samples, column
        )
        for row, checkpoints in chosen.items()
        for name in study.run.benchmarks
    }
    return choices, cells


def read_tables(
    study: Study, decoding: str, cells: Iterable[tuple[Checkpoint, str]], root: Path = Path()
) -> tuple[dict[tuple[Checkpoint, str], pa.Table], dict[str, Any]]:
    """Return the score files of some cells by checkpoint and benchmark, and their common provenance.

    It raises `StaleScoreError` as `read_scores` does.
    """
    errors, tables, missing, stale = [], {}, {}, {}
    counts: dict[str, int] = {}
    provenance: dict[str, Any] = {}
    for checkpoint, benchmark in cells:
        path = paths.SCORES.format(
            study=study.name, checkpoint=checkpoint, decoding=decoding, benchmark=benchmark
        )
        expected = score_identity(study, checkpoint, decoding, benchmark)
        try:
            table, identity = read_score_file(root / path)
        except FileNotFoundError:
            missing[path] = f"{path}: missing; run snakemake"
            continue
        except DamagedFileError as error:
            errors.append(f"{path}: {error}; {AGAIN}")
            continue
        if identity.get("fingerprint") != expected["fingerprint"]:
            made = f"made by configuration {identity.get('fingerprint')}"
            stale[path] = f"{path}: {made}, expected {expected['fingerprint']}; run snakemake again"
        else:
            errors += _problems(path, identity, expected, provenance, table)
        if table.num_rows != counts.setdefault(benchmark, table.num_rows):
            errors.append(
                f"{path}: {table.num_rows} rows, other checkpoints have {counts[benchmark]} of "
                f"{benchmark}; {AGAIN}"
            )
        if not provenance:
            provenance |= {**identity.get("provenance", {}), "engine": identity.get("engine")}
        tables[checkpoint, benchmark] = table
    again = "`stapo status` says what changed, and snakemake makes them again"
    errors = [
        *_lines(stale, "were made with other settings or by another version", again),
        *_lines(missing, "are missing", _remedy(study, decoding, root, bool(tables))),
        *errors,
    ]
    if errors:
        raise StaleScoreError("\n".join(errors))
    return tables, provenance


def _remedy(study: Study, decoding: str, root: Path, some: bool) -> str:
    """Return what to do where scores are missing; in git all are."""
    table = paths.MAIN_TABLE.format(study=study.name, decoding=decoding, suffix="md")
    if some or not (root / table).is_file():
        return "run snakemake"
    return f"the folder is without its raw data, as in git: read {table}, or run snakemake to make all again"


def _lines(errors: Mapping[str, str], what: str, remedy: str) -> list[str]:
    """Return the errors of some score files; one line for many, most often all of them."""
    if len(errors) <= MOST_LINES:
        return [*errors.values()]
    return [f"{len(errors)} score files {what}, such as {next(iter(errors))}; {remedy}"]


def accuracy(tables: Iterable[pa.Table], column: str) -> float:
    """Return the mean over score files of the share of correct responses."""
    return float(np.mean([np.mean(table[column].to_numpy()) for table in tables]))


def _choice(
    study: Study,
    size: str,
    method: str,
    seed: int,
    tables: Mapping[tuple[Checkpoint, str], pa.Table],
    column: str,
) -> Choice:
    """Return the averages of the checkpoints of a training, and the one that the study's rule chooses."""
    kept = {
        step: study.checkpoint(size, method, seed, step)
        for step in [*study.full_steps(), study.training.steps]
    }

    def averages(benchmarks: list[str]) -> dict[int, float]:
        return {
            step: accuracy((tables[one, b] for b in benchmarks), column)
            for step, one in kept.items()
            if benchmarks
        }

    development = averages(study.evaluation.development)
    selected = select(study.evaluation.select, [*kept], development)
    return Choice(size, method, seed, averages(study.run.benchmarks), development, selected)


def _problems(
    path: str,
    found: ScoreIdentity,
    expected: dict[str, Any],
    others: dict[str, Any],
    table: pa.Table,
) -> Iterator[str]:
    if fault := missing_samples(table, expected["samples"]):
        yield f"{path}: {fault}; {AGAIN}"
    made = {**found.get("provenance", {}), "engine": found.get("engine")}
    pairs = [(key, made.get(key), others.get(key)) for key in SAME_EVERYWHERE]
    here, there = (one.get("packages", {}) for one in (made, others))
    pairs += [(key, here.get(key), there.get(key)) for key in SAME_PACKAGES]
    for key, one, other in pairs if others else ():
        if one != other:
            yield f"{path}: made with {key} {one}, others with {other}; evaluate all on the same"


def missing_samples(table: pa.Table, samples: int) -> str:
    """Return why a score file does not have N samples of every problem, empty if it does."""
    rows = table.num_rows
    if rows == 0 or rows % samples:
        return f"{rows} rows are no multiple of {samples} samples"
    cells = zip(table["problem"].to_pylist(), table["sample"].to_pylist(), strict=True)
    if set(cells) != set(product(range(rows // samples), range(samples))):
        return f"not {samples} samples of every problem"
    return ""


def by_problem(table: pa.Table, samples: int, column: str) -> Any:
    """Return a column of a score file as an array (problems, samples), whatever the order of its rows."""
    order = np.lexsort((table["sample"].to_numpy(), table["problem"].to_numpy()))
    return table[column].to_numpy()[order].reshape(-1, samples)


def _cell(seeds: Sequence[pa.Table], samples: int, column: str) -> Cell:
    correct = [by_problem(one, samples, column) for one in seeds]
    answers = [by_problem(one, samples, "answer") for one in seeds]
    shown = [name for name in SCHEMA.names if name not in ("gold", "answer")]
    return Cell(
        correct=np.stack(correct).astype(float),
        majority=float(np.mean([*map(majority_at_n, answers, correct)])),
        rows=pa.concat_tables([one.select(shown) for one in seeds]).to_pandas(),
    )
