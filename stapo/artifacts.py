"""Where every file lives, and how files are written so that a kill at any time loses nothing, and read.

Published files and directories are written atomically, by one rename; logs of steps are append-only; a
work directory belongs to one process and one fingerprint. What is truncated or corrupt is never taken
for what it was.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from stapo.study import Study, canonical

# Paths relative to the working directory; `{checkpoint}` is `size/base`, `size/method/seedK` or, for the
# weights after a step before the last, `size/method/seedK/stepN`.
RESULTS = "results/{study}"
PROMPTS = "results/{study}/data/prompts.jsonl"
PROMPTS_RECORD = "results/{study}/data/prompts.json"
OVERLAP = "results/{study}/data/overlap.json"
BASE_MODEL = "results/{study}/models/{size}/base"
BASE_RECORD = "results/{study}/models/{size}/base.json"
"""What a base model was made from: small, and there for as long as nothing else takes its place."""
VERIFIER = "results/{study}/models/verifier"
VERIFIER_RECORD = "results/{study}/models/verifier.json"
VERIFIER_TEMPLATE = "verifier_template.json"
"""Beside the verifier's weights: the wording of its prompt and where that came from."""
RUN = "results/{study}/runs/{size}/{method}/seed{seed}"
MODEL = RUN + "/model"
STEP_MODEL = RUN + "/step{step}"
METRICS = RUN + "/metrics.jsonl"
TOKENS = RUN + "/tokens.parquet"
RUN_PROVENANCE = RUN + "/provenance.json"
RESPONSES = "results/{study}/completions/{checkpoint}/{decoding}"
COMPLETIONS = RESPONSES + "/{benchmark}.jsonl"
SCORES = "results/{study}/scores/{checkpoint}/{decoding}/{benchmark}.parquet"
TABLE = "results/{study}/tables/{table}.{suffix}"
MAIN_TABLE = "results/{study}/tables/main-{decoding}.{suffix}"
FIGURE = "results/{study}/figures/{figure}.{suffix}"
FIGURE_NAMES = ("entropy", "reward", "silenced_fraction", "response_length", "gradient_norm")
"""The keys of `stapo.analysis.figures.FIGURES`, without importing what draws them."""
ACCURACY = "accuracy"
"""Drawn where weights before the last are kept, from scores instead of metrics."""
REPORT = "results/{study}/report.html"
PROVENANCE = "results/{study}/provenance.json"
CHECKSUMS = "results/{study}/SHA256SUMS"
TRAIN_WORK = "work/{study}/train/{size}/{method}/seed{seed}"
TRAINED = "published"
"""Below the work directory of a training: what it made, laid out as its part of the results."""
GENERATE_WORK = "work/{study}/generate/{checkpoint}/{decoding}"
SUFFIXES = ("md", "tex", "csv")
"""Of tables."""


class BusyError(RuntimeError):
    """Another process works in the same directory."""


class ForeignDirectoryError(RuntimeError):
    """A directory belongs to something else than what is asked for."""


class DamagedFileError(ValueError):
    """A file is truncated, corrupt or not what it should be: place, cause and remedy, one line each."""


AGAIN = "remove it and run snakemake again, which writes it again"
"""Remedy for a damaged file that the pipeline published."""


@contextmanager
def replace_file(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file beside `path` that takes its place when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open(mode) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replace_directory(path: Path) -> Iterator[Path]:
    """Yield a directory beside `path` that takes its place when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    # One process at a time publishes a directory: what a kill left of an earlier attempt may go.
    for left in path.parent.glob(f".{path.name}.*"):
        if left.suffix[1:].isdigit():
            shutil.rmtree(left, ignore_errors=True)
    aside.mkdir()
    try:
        yield aside
        for written in sorted(aside.rglob("*")):
            sync(written)
        if path.exists():
            shutil.rmtree(path)
        aside.replace(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def link_or_copy(source: str, target: str) -> None:
    """Give a finished file a second name; across file systems a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON with sorted keys, by one rename."""
    with replace_file(path) as stream:
        stream.write(json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path, remedy: str = AGAIN) -> dict[str, Any]:
    """Return the mapping that a JSON file holds.

    Raises:
        DamagedFileError: it holds none.
        OSError: it cannot be read.
    """
    found = _mapping(path.read_bytes())
    if found is None:
        raise DamagedFileError(f"{path}: truncated or corrupt, not a JSON mapping; {remedy}")
    return found


def _mapping(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data.decode())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def append_jsonl(path: Path, record: Mapping[str, Any]) -> None:
    """Append one line, after removing what a kill or a full disk left of an unfinished one."""
    with path.open("a+b") as stream:
        stream.truncate(_end_of_lines(stream))
        stream.write(json.dumps(record, allow_nan=False).encode() + b"\n")


def _end_of_lines(stream: IO[bytes]) -> int:
    """Return the position behind the last line end; only the last byte is read where it is one."""
    start, block = stream.seek(0, os.SEEK_END), 1
    while start > 0:
        stop, start = start, max(start - block, 0)
        stream.seek(start)
        found = stream.read(stop - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        block = 2**16
    return 0


def scan_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield number and record of every finished line, None for one that is not a JSON mapping."""
    data = path.read_bytes() if path.exists() else b""
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        yield number, _mapping(line)


def read_jsonl(path: Path, remedy: str = AGAIN) -> list[dict[str, Any]]:
    """Return the records of a log; a last line without line end was never finished.

    Raises:
        DamagedFileError: another line is not JSON.
    """
    records = []
    for number, record in scan_jsonl(path):
        if record is None:
            raise DamagedFileError(f"{path}:{number}: truncated or corrupt, not JSON; {remedy}")
        records.append(record)
    return records


def read_published(
    path: Path, fields: Iterable[str] = (), remedy: str = AGAIN
) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines that was written atomically: every line is whole.

    Args:
        path: the file; one that does not exist has no records.
        fields: what every record has.
        remedy: said where it is damaged.

    Raises:
        DamagedFileError: a line is not JSON or lacks a field, or the last one has no end.
    """
    records = read_jsonl(path, remedy)
    if path.exists() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        raise DamagedFileError(
            f"{path}:{len(records) + 1}: truncated, the last line has no end; {remedy}"
        )
    for number, record in enumerate(records, start=1):
        if missing := [name for name in fields if name not in record]:
            raise DamagedFileError(f"{path}:{number}: no {', '.join(missing)}; {remedy}")
    return records


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> None:
    """Write all records atomically."""
    with replace_file(path) as stream:
        stream.writelines(json.dumps(record, allow_nan=False) + "\n" for record in records)


@contextmanager
def work_directory(path: Path, config: Any) -> Iterator[Path]:
    """Claim a work directory for this process and for what `config` determines.

    Raises:
        BusyError: another process holds it.
        ForeignDirectoryError: it holds the state of another configuration.
    """
    path.mkdir(parents=True, exist_ok=True)
    with (path / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise BusyError(
                f"{path}: another process works here ({lock.read()}); wait for it or stop it"
            ) from error
        lock.truncate(0)
        print(f"{os.uname().nodename} {os.getpid()}", end="", file=lock, flush=True)
        identity = path / "config.json"
        if not identity.exists():
            write_json(identity, config)
        elif _canonical(identity) != canonical(config):
            raise ForeignDirectoryError(
                f"{path}: holds the state of another configuration; choose another directory or remove it"
            )
        yield path


def _canonical(identity: Path) -> str:
    try:
        return canonical(json.loads(identity.read_bytes().decode()))
    except (ValueError, RecursionError) as error:
        remedy = "remove it and run the same command again"
        raise DamagedFileError(f"{identity}: truncated or corrupt, not JSON; {remedy}") from error


def checkpoint_path(study: str, checkpoint: str) -> str:
    """Return where the weights of a checkpoint are published."""
    size, *run = checkpoint.split("/")
    if run == ["base"]:
        return BASE_MODEL.format(study=study, size=size)
    method, seed, *step = run
    path = STEP_MODEL if step else MODEL
    return path.format(
        study=study,
        size=size,
        method=method,
        seed=seed.removeprefix("seed"),
        step="".join(step).removeprefix("step"),
    )


def score_paths(study: Study, decodings: Iterable[str], method: str | None = None) -> list[str]:
    """Return the score files of some decodings, of all checkpoints or of those of one method."""
    return _cell_paths(SCORES, study, decodings, study.cells, method)


def table_score_paths(study: Study, decoding: str) -> list[str]:
    """Return the score files from which the table of a decoding is computed."""
    return _cell_paths(SCORES, study, [decoding], study.table_cells)


def completion_paths(study: Study, decodings: Iterable[str]) -> list[str]:
    """Return the files of responses of some decodings."""
    return _cell_paths(COMPLETIONS, study, decodings, study.cells)


def _cell_paths(
    path: str,
    study: Study,
    decodings: Iterable[str],
    cells: Callable[[str], Iterable[tuple[str, str]]],
    method: str | None = None,
) -> list[str]:
    return [
        path.format(study=study.name, checkpoint=checkpoint, decoding=decoding, benchmark=benchmark)
        for decoding in decodings
        for checkpoint, benchmark in cells(decoding)
        if method in (None, checkpoint.split("/")[1])
    ]


def table_paths(study: Study) -> list[str]:
    """Return the tables of a study."""
    return [
        MAIN_TABLE.format(study=study.name, decoding=decoding, suffix=suffix)
        for decoding in study.run.decodings
        for suffix in SUFFIXES
    ]


def figure_paths(study: Study) -> list[str]:
    """Return the figures of a study, each in two formats."""
    return [
        FIGURE.format(study=study.name, figure=figure, suffix=suffix)
        for figure in figure_names(study)
        for suffix in ("svg", "png")
    ]


def figure_names(study: Study) -> list[str]:
    """Return the figures of a study."""
    return [*FIGURE_NAMES, *([ACCURACY] if study.kept_steps() else [])]


def metrics_paths(study: Study) -> list[str]:
    """Return the metrics of every training."""
    return [
        METRICS.format(study=study.name, size=size, method=method, seed=seed)
        for size, method, seed in study.runs()
    ]


def run_provenance_paths(study: Study) -> list[str]:
    """Return what every training says of itself."""
    return [
        RUN_PROVENANCE.format(study=study.name, size=size, method=method, seed=seed)
        for size, method, seed in study.runs()
    ]


def base_record_paths(study: Study) -> list[str]:
    """Return what says from what the base models, and the verifier, were made."""
    sizes = [BASE_RECORD.format(study=study.name, size=size) for size in study.run.sizes]
    return sizes + [VERIFIER_RECORD.format(study=study.name)] * bool(study.evaluation.verifier)


def published_paths(study: Study) -> list[str]:
    """Return every file that a finished study has, weights and checksums apart.

    All of them are asked for by name: Snakemake takes a file that is missing for one that is not needed
    as long as what was made from it is there.
    """
    about = (PROMPTS, PROMPTS_RECORD, OVERLAP, REPORT, PROVENANCE)
    return [
        *(path.format(study=study.name) for path in about),
        *base_record_paths(study),
        *metrics_paths(study),
        *run_provenance_paths(study),
        *completion_paths(study, study.run.decodings),
        *score_paths(study, study.run.decodings),
        *table_paths(study),
        *figure_paths(study),
    ]
