"""A folder with a model in the Hub's format: which of its files count, and one checksum for them.

Weights are safetensors; pickled ones could run code when they are loaded, and are refused.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from stapo.canonical import canonical
from stapo.files import DamagedFileError, read_json, write_json
from stapo.study.loader import shown_path

FILES = ("*.safetensors", "*.json", "*.jinja", "merges.txt", "LICENSE*")
"""Files of a model: weights as safetensors only, nothing that could contain code."""
SOURCE = "source.json"
"""File with the origin of a model, which is no part of it."""
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
KNOWN = Path("work/checksums.json")
"""Path -> size, time of modification and SHA-256 of files that were hashed before."""


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model, sorted by name."""
    found = {path for pattern in FILES for path in folder.glob(pattern) if path.is_file()}
    return sorted(path for path in found if path.name != SOURCE)


def checksum(folder: Path, known: Path | None = KNOWN) -> str:
    """Return one SHA-256 for the names and contents of the files of a model.

    Args:
        folder: folder of the model.
        known: file of checksums that are used again where size and time of modification are unchanged;
            None to read everything.
    """
    files = model_files(folder)
    before: dict[str, list[Any]] = {}
    with suppress(OSError, DamagedFileError):
        before = read_json(known) if known else {}
    states = {str(path.resolve()): _state(path) for path in files}
    changed = [path for path, state in states.items() if before.get(path, [])[:2] != state]
    with ThreadPoolExecutor() as pool:  # Hashing releases the GIL.
        hashed = dict(zip(changed, pool.map(_sha256, changed), strict=True))
    found = {path: [*state, hashed.get(path) or before[path][2]] for path, state in states.items()}
    if known and changed:
        with suppress(OSError):  # They are only computed again.
            write_json(known, {**before, **found})
    sums = {path.name: found[str(path.resolve())][2] for path in files}
    return hashlib.sha256(canonical(sums).encode()).hexdigest()


def faults(folder: Path) -> list[str]:
    """Return a line for each reason why a folder is no model that can be trained here."""
    name = shown_path(folder)
    try:
        settings = read_json(folder / "config.json")
    except (OSError, DamagedFileError):
        return [f"{name}: no readable config.json; expected a model in the format of the Hub"]
    found = []
    if settings.get("auto_map"):
        about = "needs its own Python code, which is never run here"
        found.append(f"{name}: {about}; choose a model whose architecture is part of Transformers")
    if not any((folder / one).is_file() for one in TOKENIZER):
        found.append(f"{name}: no tokenizer ({' or '.join(TOKENIZER)}); save one into the folder")
    if not any(folder.glob("*.safetensors")):
        found.append(f"{name}: no weights; save them as safetensors, pickled ones could run code")
    return found


def _state(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _sha256(path: str) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
