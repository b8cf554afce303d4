"""The recorded files of a finished study, each read and checked once: they belong to it and to each other."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from stapo.core.files import AGAIN, DamagedFileError, read_json, read_published
from stapo.suite import paths
from stapo.suite.evaluation.statistics import Array
from stapo.suite.jobs import jobs_of
from stapo.suite.records import interventions
from stapo.suite.records.interventions import Intervention, read_intervention
from stapo.suite.records.reading import read_table
from stapo.suite.records.responses import MIXED_DEVICES, are_mixed
from stapo.suite.records.scores import SCHEMA, Verdict, identity_in, read_score_file
from stapo.suite.records.tokens import METADATA_KEY, read_token_file
from stapo.suite.study import Checkpoint, Study, TrainingRun
from stapo.suite.study.reading import command_for
from stapo.suite.study.sources import TinyModel

Read = TypeVar("Read")
SAME_PACKAGES = (
    "torch", "transformers", "lm-eval", "math-verify", "sympy", "latex2sympy2-extended",
)  # fmt: skip
VERDICT_COLUMNS = {"rule": "correct", "verifier": "correct_with_verifier"}
ALL = "all"
"""Name in a row about all base models, where these differ only in their seed."""
MOST_LINES = 3
"""More files than this that are missing, or made with other settings, are one line."""


def models_of(study: Study) -> list[str]:
    """Return the models that a table has rows of; `ALL` is first if they differ only in their seed."""
    models = study.run.models
    settings = [study.models[model].model_copy(update={"seed": 0}) for model in models]
    alike = all(isinstance(model, TinyModel) and model == settings[0] for model in settings)
    return [*[ALL] * (alike and len(settings) > 1), *models]


def units_of(study: Study, model: str, method: str) -> list[list[TrainingRun]]:
    """Return the trainings of a method by the units of intervals: seeds, or base models for `ALL`."""
    seeds = study.run.seeds
    if model == ALL:
        return [[TrainingRun(model, method, seed) for seed in seeds] for model in study.run.models]
    return [[TrainingRun(model, method, seed)] for seed in seeds]


class Trained(NamedTuple):
    """A method at a model, and something of each of its trainings."""

    model: str
    title: str
    units: list[list[Any]]
    """By `units_of`."""


def trained(study: Study, measure: Callable[[TrainingRun], Any]) -> list[Trained]:
    """Return a row for each model and method, with something of its trainings."""
    rows = []
    for model, name in product(models_of(study), study.run.methods):
        units = [[*map(measure, unit)] for unit in units_of(study, model, name)]
        rows.append(Trained(model, study.title(name), units))
    return rows


class StaleScoreError(ValueError):
    """Scores do not belong to the study in its current state."""


@dataclass
class Cell:
    """All responses of one row (model and method, or base) to one benchmark."""

    correct: Array
    """(S, P, N) whether responses are correct: seeds, problems, samples."""
    rows: pd.DataFrame
    """Columns of `ScoreRow`, without the answers."""

    def mean(self, column: str) -> float:
        """Return the mean of a column, such as the share of truncated responses."""
        return float(self.rows[column].mean())

    def share(self, *verdicts: Verdict) -> float:
        """Return the share of responses with some verdicts."""
        return float(self.rows["verdict"].isin(verdicts).mean())


@dataclass
class Scores:
    """The scores of one decoding."""

    cells: dict[tuple[str, str, str], Cell] = field(default_factory=dict)
    """(model, method or `base`, benchmark) -> responses."""
    provenance: dict[str, Any] = field(default_factory=dict)
    overlap: dict[str, dict[str, int]] = field(default_factory=dict)
    """Kind of overlap -> benchmark -> number of problems, from `data/overlap.json`."""
    beside_reward: dict[str, Counter[str]] = field(default_factory=dict)
    """Method -> number of `responses`, and of those on which reward and grader differ, where it is known."""

    def verdicts(self, model: str, method: str, benchmarks: Iterable[str]) -> list[Array]:
        """Return the verdicts (S, P, N) of a row on some benchmarks."""
        return [self.cells[model, method, benchmark].correct for benchmark in benchmarks]


def read_scores(study: Study, decoding: str, root: Path = Path()) -> Scores:
    """Read every score of a decoding.

    Raises:
        StaleScoreError: files are missing, damaged or incomplete, or were made with another configuration, or
            with other packages or hardware than the others; one line for each file, or for many.
    """
    tables, provenance = read_tables(study, decoding, study.table_cells(decoding), root)
    path = root / paths.OVERLAP.format(study=study.name)
    overlap = read_json(path) if path.exists() else {}
    column = VERDICT_COLUMNS[study.evaluation.verdict]
    chosen = {(model, "base"): [Checkpoint(model)] for model in study.run.models}
    for run in study.runs():
        last = study.checkpoint(*run, study.training.steps)
        chosen.setdefault((run.model, run.method), []).append(last)
    scores = Scores(provenance=provenance, overlap=overlap)
    shown = [name for name in SCHEMA.names if name not in ("gold", "answer")]
    for (row, checkpoints), name in product(chosen.items(), study.run.benchmarks):
        seeds = [tables[checkpoint, name] for checkpoint in checkpoints]
        samples = study.benchmarks[name].samples
        correct = np.stack([by_problem(table, samples, column) for table in seeds]).astype(float)
        rows = pa.concat_tables([table.select(shown) for table in seeds]).to_pandas()
        scores.cells[*row, name] = Cell(correct, rows)
        for table in seeds:
            if beside := (identity_in(table.schema) or {}).get("differs_from_reward"):
                counts = scores.beside_reward.setdefault(row[1], Counter())
                counts.update({**beside, "responses": table.num_rows})
    return scores


def read_tables(
    study: Study, decoding: str, cells: Iterable[tuple[Checkpoint, str]], root: Path = Path()
) -> tuple[dict[tuple[Checkpoint, str], pa.Table], dict[str, Any]]:
    """Return the score files of some cells by checkpoint and benchmark, and their common provenance.

    It raises `StaleScoreError` as `read_scores` does.
    """
    errors, missing, stale = list[str](), list[str](), list[str]()
    tables: dict[tuple[Checkpoint, str], pa.Table] = {}
    common: dict[str, Any] = {}
    engines = set[str]()
    for checkpoint, benchmark in cells:
        job = jobs_of(study).job("score", f"{checkpoint}/{decoding}/{benchmark}")
        (path,) = job.outputs
        try:
            table, identity = read_score_file(root / path)
        except FileNotFoundError:
            missing.append(f"{path}: missing")
            continue
        except DamagedFileError as error:
            errors.append(str(error))
            continue
        tables[checkpoint, benchmark] = table
        if identity.get("fingerprint") != job.fingerprint:
            made = f"made by configuration {identity.get('fingerprint')}"
            stale.append(f"{path}: {made}, expected {job.fingerprint}")
            continue
        provenance = {**identity.get("provenance", {}), "engine": identity.get("engine", "")}
        common = common or provenance
        engines |= set(provenance["engine"].split(" and "))
        errors += _problems(path, provenance, common, study.evaluation.devices)
    if not (root / paths.SCORES_FOLDER.format(study=study.name)).exists():
        message = f"{study.name}: no scores yet; make them with: {command_for(study)}"
        raise StaleScoreError(f"{message}; cost: stapo plan {study.name}")
    errors = [
        *_lines(study, stale, "were made with other settings or by another version"),
        *_lines(study, missing, "are missing"),
        *errors,
    ]
    if errors:
        raise StaleScoreError("\n".join(errors))
    return tables, {**common, "engine": " and ".join(sorted(engines))}


def _lines(study: Study, errors: Sequence[str], what: str) -> list[str]:
    """Return the errors of some score files; one line for many, most often all of them."""
    if len(errors) > MOST_LINES:
        first = errors[0].partition(": ")[0]
        errors = [f"{len(errors)} score files {what}, such as {first}"]
    return [f"{error}; make them with: {command_for(study)}" for error in errors]


def _problems(
    path: str, made: dict[str, Any], others: dict[str, Any], devices: str
) -> Iterator[str]:
    if are_mixed((made["engine"], others["engine"]), devices):
        cause = f"answered by {made['engine']}, others by {others['engine']}"
        yield f"{path}: {cause}; evaluate all on the same, or {MIXED_DEVICES}"
    here, there = (provenance.get("packages", {}) for provenance in (made, others))
    for key in SAME_PACKAGES:
        if here.get(key) != there.get(key):
            cause = f"made with {key} {here.get(key)}, others with {there.get(key)}"
            yield f"{path}: {cause}; evaluate all on the same"


def by_problem(table: pa.Table, samples: int, column: str) -> Any:
    """Return a column of a score file as an array (problems, samples), whatever the order of its rows."""
    order = np.lexsort((table["sample"].to_numpy(), table["problem"].to_numpy()))
    return table[column].to_numpy()[order].reshape(-1, samples)


class Intervened(NamedTuple):
    """The results of the interventions at a checkpoint."""

    numbers: Intervention
    tokens: pd.DataFrame
    """Columns of `records.interventions.SCHEMA`, not to be changed."""


class Artefacts:
    """Reads the files of a study when they are asked for.

    So figures, tables and what they are made of raise `DamagedFileError` where a file is missing, damaged,
    incomplete or outdated, and `StaleScoreError` where scores do not belong to the study as it is now.
    """

    def __init__(self, study: Study, root: Path = Path()) -> None:
        self.study, self.root = study, root
        self.metrics = cache(self._metrics)
        self.tokens = cache(self._tokens)
        self.scores = cache(lambda decoding: read_scores(study, decoding, root))
        self.intervention = cache(self._intervention)

    def of_runs(self, read: Callable[[TrainingRun], Read]) -> dict[TrainingRun, Read]:
        """Return what is read for each training."""
        return {run: read(run) for run in self.study.runs()}

    def titles(self) -> list[str]:
        """Return the titles of the study's methods, in order: the `groups` of a chart."""
        return [self.study.method(name).title for name in self.study.run.methods]

    def _existing(self, path: str) -> Path:
        if not (self.root / path).exists():
            raise DamagedFileError(f"{path}: missing; run snakemake")
        return self.root / path

    def _metrics(self, run: TrainingRun) -> Sequence[dict[str, Any]]:
        """Return the records of all steps of a training, in order."""
        path = paths.METRICS.format(study=self.study.name, **run._asdict())
        records, steps = read_published(self._existing(path), ("step",)), self.study.training.steps
        if [record["step"] for record in records] != list(range(1, steps + 1)):
            raise DamagedFileError(f"{path}: not the steps 1 to {steps} in order; {AGAIN}")
        return records

    def _tokens(self, run: TrainingRun) -> pd.DataFrame:
        """Return the token records of a training (columns of `records.tokens.SCHEMA`), not to be changed.

        Its `attrs` are the metadata of the file, such as `vocab_size`.
        """
        path = paths.TOKENS.format(study=self.study.name, **run._asdict())
        table = read_token_file(self._existing(path))
        # Metadata of pandas could make a column the index.
        frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
        frame.attrs |= json.loads((table.schema.metadata or {}).get(METADATA_KEY, b"{}"))
        return frame

    def _intervention(self, checkpoint: Checkpoint) -> Intervened:
        job = jobs_of(self.study).job("intervene", checkpoint)
        numbers, tokens = map(self._existing, job.outputs)
        intervention = read_intervention(numbers)
        table = read_table(tokens, interventions.SCHEMA).to_pandas()
        if intervention.fingerprint != job.fingerprint:
            raise DamagedFileError(f"{numbers}: made with other settings; run snakemake")
        return Intervened(intervention, table)
