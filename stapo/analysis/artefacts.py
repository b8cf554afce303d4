"""The recorded files of a finished study, each read and checked once."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from stapo import paths
from stapo.analysis.cells import read_scores
from stapo.files import AGAIN, DamagedFileError, read_published
from stapo.records.interventions import SCHEMA, Intervention, read_intervention
from stapo.records.reading import read_table
from stapo.records.tokens import METADATA_KEY, read_token_file
from stapo.stages import jobs_of
from stapo.study import Checkpoint, Study, TrainingRun

Read = TypeVar("Read")


class Intervened(NamedTuple):
    """The results of the interventions at a checkpoint."""

    numbers: Intervention
    tokens: pd.DataFrame
    """Columns of `records.interventions.SCHEMA`, not to be changed."""


class Artefacts:
    """Reads the files of a study when they are asked for.

    So figures, tables and what they are made of raise `DamagedFileError` where a file is missing, damaged,
    incomplete or outdated, and `StaleScoreError` where scores do not belong to the study as it is now.

    Args:
        study: the study.
        root: directory that contains `results/STUDY`.
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

    def _metrics(self, run: TrainingRun) -> Sequence[dict[str, Any]]:
        """Return the records of all steps of a training, in order."""
        path = paths.METRICS.format(study=self.study.name, **run.wildcards)
        if not (self.root / path).exists():
            raise DamagedFileError(f"{path}: missing; run snakemake")
        records = read_published(self.root / path, ("step",))
        steps = self.study.training.steps
        if [record["step"] for record in records] != list(range(1, steps + 1)):
            raise DamagedFileError(f"{path}: not the steps 1 to {steps} in order; {AGAIN}")
        return records

    def _tokens(self, run: TrainingRun) -> pd.DataFrame:
        """Return the token records of a training (columns of `records.tokens.SCHEMA`), not to be changed.

        Its `attrs` are the metadata of the file, such as `vocab_size`.
        """
        path = paths.TOKENS.format(study=self.study.name, **run.wildcards)
        try:
            table = read_token_file(self.root / path)
        except FileNotFoundError as error:
            raise DamagedFileError(f"{path}: missing; run snakemake") from error
        except DamagedFileError as error:
            raise DamagedFileError(f"{error}; {AGAIN}") from error
        found: pd.DataFrame = table.to_pandas()
        found.attrs |= json.loads((table.schema.metadata or {}).get(METADATA_KEY, b"{}"))
        return found

    def _intervention(self, checkpoint: Checkpoint) -> Intervened:
        """Return the results of the interventions at a checkpoint."""
        job = jobs_of(self.study).one("intervene", checkpoint)
        numbers, tokens = (self.root / path for path in job.outputs)
        for path in (numbers, tokens):
            if not path.exists():
                raise DamagedFileError(f"{path}: missing; run snakemake")
        found = read_intervention(numbers)
        table = read_table(tokens, SCHEMA).to_pandas()
        if found.fingerprint != job.fingerprint:
            raise DamagedFileError(f"{numbers}: made with other settings; run snakemake")
        return Intervened(found, table)
