"""Record of the study file behind the results of a working directory.

Without it, two studies of the same name would share their results unnoticed. A study file may change, move
or be copied together with its results. Only a different file with different settings under the same name
is another study.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stapo.files import write_json
from stapo.study.loader import StudyError
from stapo.study.resolved import study_fingerprint
from stapo.study.study import Study
from stapo.text import visible

ORIGIN = "work/{study}/study.json"
"""Path of the record, which is kept between runs and not published."""


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
    now = named(files, root)
    if before and set(before).isdisjoint(now) and made_from != study_fingerprint(study):
        raise StudyError(
            [
                f"name: {study.name} is also the name of {visible(', '.join(before))}, whose results are "
                f"here; rename the study in {', '.join(now)}, or remove {path} if this file replaces the "
                "other"
            ]
        )


def write_origin(study: Study, files: Sequence[Path], root: Path = Path()) -> None:
    """Write which files the results of a study are made from."""
    about = {"files": named(files, root), "fingerprint": study_fingerprint(study)}
    write_json(root / ORIGIN.format(study=study.name), about)


def named(files: Sequence[Path], root: Path = Path()) -> list[str]:
    """Return paths, relative if they are below the working directory, which may be moved or copied."""
    here = root.absolute()
    found = [Path(file).absolute() for file in files]
    return [str(f.relative_to(here) if f.is_relative_to(here) else f) for f in found]
