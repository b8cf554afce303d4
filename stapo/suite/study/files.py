"""Files that a study names: questions and answers, models in a folder."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from stapo.core.checksums import file_sha256, file_sums
from stapo.core.files import DamagedFileError, canonical, read_json
from stapo.suite.study.loader import StudyError, read_file, read_text, shown_path

COLUMNS = ("question", "answer")
SOLUTION_COLUMNS = ("question", "solution")
MOST_BYTES = 10**6
"""Of a question or an answer."""
SHOWN_LINES = 3
"""Of the lines with the same fault."""
Row = dict[str, str]
"""Question and answer."""
FILES = ("*.safetensors", "*.json", "*.jinja", "merges.txt", "LICENSE*")
"""Files of a model: weights as safetensors only, nothing that could contain code."""
SOURCE = "source.json"
"""File with the origin of a model, which is no part of it."""
MOST_LAYERS = 10_000
"""More would take minutes to read."""
MAGIC = b"GGUF"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model")
"""Of which a model has at least one; without any, Transformers asks for packages that would not help."""


def pinned_rows(path: str, sha256: str | None) -> list[Row]:
    """Return the questions and answers of a file whose checksum was taken when the study was read."""
    rows = read_rows(Path(path))
    if rows_checksum(rows) != sha256:
        message = "its rows changed since the study was read; run snakemake again"
        raise StudyError([f"{path}: {message}"])
    return rows


def rows_checksum(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the SHA-256 of the canonical JSON of questions and answers, with white space collapsed."""
    plain = [{name: " ".join(row[name].split()) for name in COLUMNS} for row in rows]
    return hashlib.sha256(canonical(plain).encode()).hexdigest()


def read_rows(path: Path, is_unique: bool = False, columns: tuple[str, ...] = COLUMNS) -> list[Row]:
    """Return the rows of JSON lines, without white space at the ends of texts.

    A repeated question, where each must be unique, is a fault: both would get the same responses.
    """
    rows: list[Row] = []
    first: dict[str, int] = {}
    faults: dict[str, list[int]] = {}
    no_json = True
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append(_row(line, columns))
            asked = " ".join(rows[-1]["question"].split())
            if is_unique and (earlier := first.setdefault(asked, number)) != number:
                raise ValueError(f"repeats the question of line {earlier}; remove one of them")
        except (ValueError, RecursionError) as error:
            faults.setdefault(str(error), []).append(number)
            no_json &= isinstance(error, json.JSONDecodeError)
    if not rows and no_json and sum(map(len, faults.values())) > 1:
        message = 'no line is JSON; expected lines such as {"question": "1 + 1 = ?", "answer": 2}'
        raise StudyError([f"{shown_path(path)}: {message}"])
    if faults or not rows:
        lines = [f"{shown_path(path)}, {_lines(at)}: {fault}" for fault, at in faults.items()]
        raise StudyError(lines or [f"{shown_path(path)}: no rows"])
    return rows


def _lines(numbers: list[int]) -> str:
    """Return the numbers of lines in words, the first few of many."""
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    others = f" and {len(numbers) - SHOWN_LINES} others" * (len(numbers) > SHOWN_LINES)
    return f"lines {', '.join(map(str, numbers[:SHOWN_LINES]))}{others}"


def _row(line: str, columns: tuple[str, ...]) -> Row:
    """Return the columns of a line, which are text or numbers; raise a ValueError if they are not.

    A whole number with a point is refused: Pandas writes the whole numbers of a column with a gap so.
    """

    def number(text: str) -> str | float:
        return float(text) if float(text).is_integer() else text

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("names a column twice; remove one of them")
        return dict(pairs)

    record = json.loads(line, parse_float=number, parse_int=str, object_pairs_hook=once)
    if not isinstance(record, dict):
        raise ValueError("expected an object with columns")
    for key in columns:
        if isinstance(cell := record.get(key), float) and isfinite(cell):
            detail = f"a whole number with a point ({cell}); write {int(cell)}"
            raise ValueError(f"column {key!r}: {detail}")
        if isinstance(cell, str) and not cell.strip():
            raise ValueError(f"column {key!r}: empty; fill it in, or remove the line")
        if not isinstance(cell, str):
            detail = f"found {cell!r}; its columns: {', '.join(record)}"
            raise ValueError(f"column {key!r}: expected text or a number, {detail}")
        if len(cell.encode()) > MOST_BYTES:  # A lone surrogate cannot be encoded, a ValueError.
            raise ValueError(f"column {key!r}: longer than {MOST_BYTES} bytes; shorten it")
    return {key: record[key].strip() for key in columns}


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file with code; it covers that one file, not what it imports."""
    return hashlib.sha256(read_file(path)).hexdigest()


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model, sorted by name."""
    paths = {path for pattern in FILES for path in folder.glob(pattern) if path.is_file()}
    return sorted(path for path in paths if path.name != SOURCE)


def model_checksum(folder: Path) -> str:
    """Return one SHA-256 for the names and contents of the files of a model."""
    sums = file_sums(folder, [path.name for path in model_files(folder)])
    return hashlib.sha256(canonical(sums).encode()).hexdigest()


def gguf_checksum(path: Path) -> str:
    """Return the SHA-256 of a GGUF file, which may be too large to read into memory."""
    try:
        if not path.is_file():
            raise OSError("no such file")
        with path.open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                raise OSError("no GGUF file: it does not begin with the letters GGUF")
        return file_sha256(path)
    except OSError as error:
        raise StudyError([f"{shown_path(path)}: {error.strerror or error}"]) from error


def model_faults(folder: Path) -> list[str]:
    """Return a line for each reason why a folder is no model that can be trained here."""
    name = shown_path(folder)
    if not os.path.isdir(folder):
        return [f"{name}: no such folder; a relative path starts at that of the study file"]
    try:
        settings = read_json(folder / "config.json")
    except (OSError, DamagedFileError):
        return [f"{name}: no readable config.json; expected a model in the format of the Hub"]
    layers = settings.get("num_hidden_layers")
    layers = layers if isinstance(layers, int) else 0
    has_tokenizer = any((folder / file).is_file() for file in TOKENIZER)
    faults = {
        "needs its own Python code, which is never run here; choose a model whose architecture is part of "
        "Transformers": settings.get("auto_map"),
        "quantised weights cannot be trained; choose the model that they were made of": (
            settings.get("quantization_config")
        ),
        f"{layers:,} layers, more than {MOST_LAYERS:,}; correct num_hidden_layers in config.json": (
            layers > MOST_LAYERS
        ),
        f"no tokenizer ({TOKENIZER[0]}); save one into the folder": not has_tokenizer,
        "no weights; save them as safetensors, pickled ones could run code": not any(
            folder.glob("*.safetensors")
        ),
    }
    return [f"{name}: {fault}" for fault, is_found in faults.items() if is_found]
