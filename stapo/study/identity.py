"""Fingerprints by the names that other modules have for them; `stapo.stages` determines them."""

from typing import Any

from stapo.canonical import fingerprint
from stapo.exhibits import Exhibit
from stapo.stages import jobs_of
from stapo.stages.base import model_settings as model_settings
from stapo.stages.base import verifier_settings as verifier_config
from stapo.stages.overlap import benchmark_settings as benchmark_config
from stapo.stages.score import cell
from stapo.stages.weights import of_checkpoint
from stapo.study.checkpoint import Checkpoint, TrainingRun
from stapo.study.study import Study

__all__ = ["benchmark_config", "model_settings", "verifier_config"]


def train_config(study: Study, run: TrainingRun) -> dict[str, Any]:
    """Return what determines the final weights of a training."""
    return jobs_of(study).one("train", run).config


def train_fingerprint(study: Study, run: TrainingRun) -> str:
    """Return the fingerprint of a training."""
    return jobs_of(study).one("train", run).fingerprint


def checkpoint_fingerprint(study: Study, checkpoint: Checkpoint) -> str:
    """Return the fingerprint of the weights of a checkpoint."""
    return of_checkpoint(jobs_of(study), checkpoint).fingerprint


def generate_config(study: Study, checkpoint: Checkpoint, decoding: str) -> dict[str, Any]:
    """Return what determines the responses of a checkpoint, the benchmark apart."""
    return jobs_of(study).one("generate", f"{checkpoint}/{decoding}").config


def generate_fingerprint(study: Study, checkpoint: Checkpoint, decoding: str) -> str:
    """Return the fingerprint of the responses of a checkpoint, the benchmark apart."""
    return jobs_of(study).one("generate", f"{checkpoint}/{decoding}").fingerprint


def intervention_fingerprint(study: Study, checkpoint: Checkpoint) -> str:
    """Return the fingerprint of the interventions at a checkpoint."""
    return jobs_of(study).one("intervene", checkpoint).fingerprint


def score_fingerprint(study: Study, checkpoint: Checkpoint, decoding: str, benchmark: str) -> str:
    """Return the fingerprint of everything that leads to the scores of one cell."""
    return jobs_of(study).one("score", f"{checkpoint}/{decoding}/{benchmark}").fingerprint


def score_identity(
    study: Study, checkpoint: Checkpoint, decoding: str, benchmark: str
) -> dict[str, Any]:
    """Return what a score file says of itself."""
    of = jobs_of(study)
    return cell(of, of.one("score", f"{checkpoint}/{decoding}/{benchmark}"))


def table_fingerprint(study: Study, decoding: str) -> str:
    """Return the fingerprint of what the table of a decoding shows."""
    return jobs_of(study).one("tables", decoding).fingerprint


def exhibit_fingerprint(study: Study, exhibit: Exhibit) -> str:
    """Return the fingerprint of what a figure or a table of evidence shows."""
    return jobs_of(study).one("evidence", "").fingerprint


def report_fingerprint(study: Study) -> str:
    """Return the fingerprint of what the report shows of the scores."""
    return jobs_of(study).one("report", "").fingerprint


def tables_fingerprint(study: Study) -> str:
    """Return the fingerprint of what all tables of a study show."""
    of = jobs_of(study)
    return fingerprint([job.fingerprint for job in of.all("tables")])
