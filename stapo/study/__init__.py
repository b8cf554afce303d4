"""Study files: reading, validation, and the settings that determine each job. No torch here."""

from stapo.study.loader import StudyError
from stapo.study.reading import merge, parse_study, read_study, study_schema
from stapo.study.study import Checkpoint, Study, TrainingRun

__all__ = [
    "Checkpoint",
    "Study",
    "StudyError",
    "TrainingRun",
    "merge",
    "parse_study",
    "read_study",
    "study_schema",
]
