"""What a training finished: it stays in its work directory, and is published from there.

Snakemake removes the outputs of a job before it starts the job again. Weights that took days are therefore
no outputs of the training: they are made in the work directory of its settings, and published as hard links
when all of them are there. A training that fails, or that is stopped and taken back, removes none.
"""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from stapo.files import DamagedFileError, link_or_copy, read_json, replace_directory, replace_file
from stapo.provenance import SUMS, changed_files, file_sha256
from stapo.study import StudyError

RECORD = "provenance.json"
METRICS = "metrics.jsonl"


def finished(
    trained: Path, fingerprint: str, names: Iterable[str], base: Path, prompts: Path
) -> bool:
    """Return whether a directory holds, whole, what a training of these settings makes from these files.

    Args:
        trained: where it publishes.
        fingerprint: of everything that determines its result.
        names: of its weights, such as `model` and `step4`.
        base: directory of the base model, which settings alone do not make the same everywhere.
        prompts: of the training.
    """
    record = _record(trained)
    if record.get("fingerprint") != fingerprint:
        return False
    outputs, of = record["outputs"], record["base"]
    # Of a base model with checksums beside its weights these are enough.
    of = {SUMS: of[SUMS]} if SUMS in of else of
    same = prompts.is_file() and record["prompts"] == file_sha256(prompts)
    there = {path.partition("/")[0] for path in outputs}
    return (
        same
        and there >= {METRICS, *names}
        and not changed_files(base, of)
        and not changed_files(trained, outputs)
    )


def publish(trained: Path, out: Path, names: Iterable[str]) -> list[Path]:
    """Give finished files and directories of weights their place in the results; return their paths.

    Args:
        trained: where a training left them.
        out: directory of the results.
        names: what of it; directories become hard links, or copies on another file system.

    Raises:
        StudyError: one line for each file that is missing or not what the training wrote.
    """
    outputs = _record(trained).get("outputs", {})
    wanted = {
        name: {p: sha for p, sha in outputs.items() if p == name or p.startswith(f"{name}/")}
        for name in names
    }
    remedy = f"snakemake --forcerun {out / RECORD} trains again, from the last checkpoint if there is one"
    errors = [f"{trained / RECORD}: missing; {remedy}"] * (not (trained / RECORD).is_file())
    errors += [
        f"{trained / path}: missing, truncated or corrupt; {remedy}"
        for name, stated in wanted.items()
        for path in (changed_files(trained, stated) if stated or name == RECORD else [name])
    ]
    if errors:
        raise StudyError(errors)
    for name in wanted:
        source = trained / name
        if source.is_dir():
            with replace_directory(out / name) as aside:
                shutil.copytree(source, aside, dirs_exist_ok=True, copy_function=link_or_copy)
        else:
            with replace_file(out / name, "wb") as stream:
                stream.write(source.read_bytes())
    return [out / name for name in wanted]


def _record(trained: Path) -> dict[str, Any]:
    with suppress(OSError, DamagedFileError):
        return read_json(trained / RECORD)
    return {}
