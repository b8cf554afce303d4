"""Study files: reading, validation, and the settings that determine each job. No torch here.

What is wrong in them, and in the files that they name, is a `StudyError` with a line for each error.
"""

from stapo.suite.study.loader import StudyError
from stapo.suite.study.reading import merge, parse_study, read_study, study_schema
from stapo.suite.study.study import Checkpoint, Study, TrainingRun

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
