"""The fingerprint that a result contains: with which settings it was made."""

import re
from contextlib import suppress
from pathlib import Path

from stapo.core.files import read_json, text_of
from stapo.suite.job import Job

CONFIGURATION = re.compile(r"\bConfiguration ([0-9a-f]{16})\b")
"""In tables and reports."""


def recorded_in(path: Path) -> str | None:
    """Return the fingerprint with which a file was made, empty if it names none, None if it is missing."""
    if not path.is_file():
        return None
    with suppress(ValueError, RecursionError, OSError):
        if path.suffix == ".parquet":
            from stapo.suite.records.scores import (
                read_identity,  # Snakemake starts without pyarrow.
            )

            return str(read_identity(path).get("fingerprint", ""))
        if path.suffix == ".json":
            return str(read_json(path).get("fingerprint", ""))
        stated: list[str] = CONFIGURATION.findall(text_of(path))
        return stated[-1] if stated else ""
    return ""


def recorded_first(job: Job, root: Path) -> str | None:
    """Return the fingerprint in the first file of a job."""
    return recorded_in(root / job.outputs[0])
