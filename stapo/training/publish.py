"""Publication of a finished training: its files stay in its work directory and are linked into the results.

Snakemake removes the outputs of a job before it starts the job again, and a training may take days: so that a
failed or stopped one loses no weights, hard links are made once all of them are complete.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stapo.files import DamagedFileError, link_tree, read_json, replace_file
from stapo.paths import METRICS_FILE, RECORD_FILE, TOKENS_FILE
from stapo.provenance import SUMS, changed_files, file_sha256
from stapo.study import StudyError


def finished(
    trained: Path, fingerprint: str, names: Iterable[str], base: Path, prompts: Path
) -> bool:
    """Return whether a directory contains all undamaged outputs of a training with these inputs.

    `names` are those of its weights, such as `model` and `step4`; the base model may differ between machines.
    """
    record = _record(trained)
    if record.get("fingerprint") != fingerprint:
        return False
    outputs, of = record["outputs"], record["base"]
    # If the base model contains a file of checksums, comparing this file is enough.
    of = {SUMS: of[SUMS]} if SUMS in of else of
    return (
        prompts.is_file()
        and record["prompts"] == file_sha256(prompts)
        and {path.partition("/")[0] for path in outputs} >= {METRICS_FILE, TOKENS_FILE, *names}
        and not changed_files(base, of)
        and not changed_files(trained, outputs)
    )


def publish(trained: Path, out: Path, names: Sequence[str]) -> None:
    """Publish named files and directories of a training in the results.

    Files of directories become hard links, or copies on another file system.

    Raises:
        StudyError: one line for each file that is missing or differs from what the training wrote.
    """
    outputs = _record(trained).get("outputs", {})
    stated = {p: sha for p, sha in outputs.items() if p.partition("/")[0] in names}
    there = {RECORD_FILE, *(path.partition("/")[0] for path in stated)}
    wrong = [*changed_files(trained, stated), *(name for name in names if name not in there)]
    if wrong:
        remedy = f"snakemake --forcerun {out / RECORD_FILE} trains again, from the last checkpoint"
        about = "missing, truncated or corrupt"
        raise StudyError([f"{trained / path}: {about}; {remedy}" for path in wrong])
    for name in names:
        source = trained / name
        if source.is_dir():
            link_tree(source, out / name)
        else:
            with replace_file(out / name, "wb") as stream:
                stream.write(source.read_bytes())


def _record(trained: Path) -> dict[str, Any]:
    with suppress(OSError, DamagedFileError):
        return read_json(trained / RECORD_FILE)
    return {}
