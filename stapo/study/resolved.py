"""What a working directory keeps of a study: its resolved form, which commands read.

A resolved study is merged with what it extends and the catalogue. Its file is named by its content. Each
version of a study has its own, so that jobs which wait on a cluster or outlive their Snakemake continue with
the version that they were started for. The files are small and never removed; a damaged one is written again.
"""

from pathlib import Path

from stapo.canonical import fingerprint
from stapo.files import DamagedFileError, json_text, read_json, text_of, write_json
from stapo.study.loader import StudyError
from stapo.study.reading import parse_study, resolved_content
from stapo.study.study import Study

RESOLVED = "work/{study}/studies/{fingerprint}.json"
VARIABLE = "STAPO_STUDY"
"""Set for the jobs of a study: the file that they read it from."""


def study_fingerprint(study: Study) -> str:
    """Return the fingerprint of a study as a whole."""
    return fingerprint(study.model_dump(mode="json"))


def resolved_path(study: Study) -> str:
    """Return where the resolved study lies, from the working directory."""
    return RESOLVED.format(study=study.name, fingerprint=study_fingerprint(study))


def write_resolved(study: Study, root: Path = Path()) -> None:
    """Write the resolved study atomically, unless it is there and undamaged."""
    path = root / resolved_path(study)
    content = resolved_content(study)
    if text_of(path) != json_text(content):
        write_json(path, content)


def read_resolved(path: Path) -> Study:
    """Return the study of a resolved file.

    Raises:
        StudyError: it is missing, or damaged.
    """
    if not path.exists():
        written = "Snakemake writes it when a run starts, not in a dry run"
        remedy = "give the study file instead, such as --study workflows/studies/smoke.yaml"
        raise StudyError([f"{path}: no such file; {written}; {remedy}"])
    try:
        return parse_study(read_json(path))
    except DamagedFileError as error:
        raise StudyError([str(error)]) from error
