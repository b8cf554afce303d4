"""What a working directory keeps of a study: its resolved form, which commands read, and its origin.

A resolved study is merged with what it extends and the catalogue. Its file is named by its content. Each
version of a study has its own, so that jobs which wait on a cluster or outlive their Snakemake continue with
the version that they were started for. The files are small and never removed; a damaged one is written again.

The origin is the study file behind the results. Without it, two studies of the same name would share their
results unnoticed. A study file may change, move or be copied together with its results. Only a different file
with different settings under the same name is another study.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stapo.canonical import fingerprint
from stapo.files import json_text, text_of, write_json
from stapo.study.loader import StudyError, parse_json, read_text
from stapo.study.reading import parse_study, resolved_content
from stapo.study.study import Study
from stapo.text import visible

RESOLVED = "work/{study}/studies/{fingerprint}.json"
ORIGIN = "work/{study}/study.json"
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
    return parse_study(parse_json(read_text(path), str(path)))


def check_origin(study: Study, files: Sequence[Path], root: Path = Path()) -> None:
    """Raise an error if the results belong to another study of the same name.

    Args:
        study: the study to run.
        files: files of the study.
        root: working directory.

    Raises:
        StudyError: the results were made from other files and other settings.
    """
    path = root / ORIGIN.format(study=study.name)
    before, made_from = [], ""
    with suppress(OSError, ValueError, LookupError, TypeError):
        made = json.loads(path.read_text())
        before, made_from = [str(file) for file in made["files"]], made["fingerprint"]
    now = named_files(files, root)
    if before and set(before).isdisjoint(now) and made_from != study_fingerprint(study):
        about = f"is also the name of {visible(', '.join(before))}, whose results are here"
        remedy = f"rename the study in {', '.join(now)}, or remove {path} if this file replaces the other"
        raise StudyError([f"name: {study.name} {about}; {remedy}"])


def write_origin(study: Study, files: Sequence[Path], root: Path = Path()) -> None:
    """Write which files the results of a study are made from."""
    about = {"files": named_files(files, root), "fingerprint": study_fingerprint(study)}
    write_json(root / ORIGIN.format(study=study.name), about)


def named_files(files: Sequence[Path], root: Path = Path()) -> list[str]:
    """Return paths, relative if they are below the working directory, which may be moved or copied."""
    here = root.absolute()
    found = [Path(file).absolute() for file in files]
    return [str(f.relative_to(here) if f.is_relative_to(here) else f) for f in found]
