"""What a study file says: read, checked, and what each job of it is determined by. No torch here."""

from stapo.study.loader import StudyError
from stapo.study.reading import merge, parse_study, read_study, study_schema
from stapo.study.study import RECIPES, Study

__all__ = [
    "RECIPES",
    "Study",
    "StudyError",
    "merge",
    "parse_study",
    "read_study",
    "study_schema",
]
