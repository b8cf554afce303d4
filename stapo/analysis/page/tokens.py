"""The tokens of the report, as the token browser reads them."""

from collections.abc import Iterable, Mapping
from typing import Any

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.charts import cell
from stapo.analysis.evidence.browser import token_choice
from stapo.text import short_escape, visible

MAX_BYTES = 3_000_000
"""Size of all token records on the page, before the escapes of texts."""


def token_records(artefacts: Artefacts) -> list[dict[str, Any]]:
    """Return the token records that the page shows; none of a study that recorded none.

    Raises:
        DamagedFileError: a file of token records is damaged.
    """
    runs = artefacts.study.runs()
    files = (paths.TOKENS.format(study=artefacts.study.name, **run.wildcards) for run in runs)
    if not all((artefacts.root / path).exists() for path in files):
        return []
    return token_choice(artefacts, MAX_BYTES)


def token_rows(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return token records with escaped texts and rounded numbers."""
    return [{name: _shown(name, value) for name, value in record.items()} for record in records]


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, str):
        # Of a token, every character counts; its context is read as text.
        keep = "" if name == "token" else "\n"
        return visible(value, keep=keep, escape=short_escape)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, Mapping):
        return {key: _shown(key, part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown("token", part) for part in value]
    return cell(value)
