"""Whether a published results folder is what it says: checked offline, from its own files alone.

Four questions, each answered by doing the thing again: do the files have their checksums, were they made by
the study that is written down, do the scores follow from the responses, do the tables follow from the scores.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pydantic import ValidationError

from stapo import artifacts
from stapo.analysis.against_paper import compare
from stapo.analysis.cells import StaleScoreError, read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.tables import render
from stapo.evaluation.grading import grade_all
from stapo.operations.publish import listed
from stapo.provenance import file_sha256
from stapo.study import Study, StudyError

Digest = Callable[[Path], str]

WEIGHTS = ".safetensors"
GRADED = ("problem", "sample", "gold", "verdict", "correct")
"""Columns of a score file that follow from the responses by the rules alone."""
SHOWN = 20
"""Lines of one kind; more would hide the next kind."""


def verify(folder: Path, say: Callable[[str], None]) -> bool:
    """Check a results folder, wherever it lies; return whether everything holds.

    Args:
        folder: such as `results/smoke`, or a copy of it. Weights may be left out of a copy.
        say: told one line for each finding.

    Raises:
        StudyError: it is no results folder.
    """
    study = _read_study(folder)
    # Weights are asked for twice, and may be terabytes.
    digest = cache(file_sha256)
    with tempfile.TemporaryDirectory() as scratch:
        # Whatever the folder is called, what reads it looks for results/STUDY.
        root = Path(scratch)
        (root / "results").mkdir()
        (root / artifacts.RESULTS.format(study=study.name)).symlink_to(folder.resolve())
        checks = {
            "files have their checksums": _checksum_errors(folder, digest, say),
            "weights are those that the trainings published": _weight_errors(study, root, digest),
            "scores were made by this study": _fingerprint_errors(study, root),
            "scores follow from the responses": _score_errors(study, root),
            "tables follow from the scores": _table_errors(study, root),
        }
        right = True
        for what, found in checks.items():
            errors = list(found)
            say(f"{'error   ' if errors else 'ok      '} {what}")
            for line in errors[:SHOWN]:
                say(f"           {line}")
            if len(errors) > SHOWN:
                say(f"           and {len(errors) - SHOWN} more")
            right = right and not errors
    say(f"SHA256SUMS itself: {file_sha256(folder / 'SHA256SUMS')}")
    return right


def _read_study(folder: Path) -> Study:
    try:
        about = json.loads((folder / "provenance.json").read_text())
        (folder / "SHA256SUMS").read_text()
        return Study.model_validate(about["study"])
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise StudyError(
            [f"{folder}: no results folder with provenance.json and SHA256SUMS ({reason})"]
        ) from error


def _checksum_errors(folder: Path, digest: Digest, say: Callable[[str], None]) -> Iterator[str]:
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    expected = {path: stated for stated, _, path in (line.partition("  ") for line in lines)}
    there = {str(path.relative_to(folder)): path for path in listed(folder)}
    absent = expected.keys() - there.keys()
    left_out = {path for path in absent if path.endswith(WEIGHTS)}
    if left_out:
        say(f"note     {len(left_out)} files of weights are not here; not checked")
    yield from (f"{path}: missing" for path in sorted(absent - left_out))
    yield from (f"{path}: is not in SHA256SUMS" for path in sorted(there.keys() - expected.keys()))
    for path in sorted(expected.keys() & there.keys()):
        if digest(there[path].resolve()) != expected[path]:
            yield f"{path}: changed since SHA256SUMS was written"


def _weight_errors(study: Study, root: Path, digest: Digest) -> Iterator[str]:
    for size, method, seed in study.runs():
        at = {"study": study.name, "size": size, "method": method, "seed": seed}
        about = root / artifacts.RUN_PROVENANCE.format(**at)
        base = root / artifacts.BASE_MODEL.format(study=study.name, size=size)
        try:
            run = json.loads(about.read_text())
            claims = {about.parent / path: stated for path, stated in run["outputs"].items()}
            claims |= {base / path: stated for path, stated in run["base"].items()}
        except (OSError, ValueError, KeyError, AttributeError) as error:
            yield f"{about.relative_to(root)}: unreadable: {error}"
            continue
        for path, stated in claims.items():
            if path.is_file() and digest(path.resolve()) != stated:
                yield f"{path.relative_to(root)}: not what the training of {method}, seed {seed}, names"


def _fingerprint_errors(study: Study, root: Path) -> Iterator[str]:
    for decoding in study.run.decodings:
        try:
            read_scores(study, decoding, root)
        except (StaleScoreError, OSError, ValueError) as error:
            yield from str(error).splitlines()


def _score_errors(study: Study, root: Path) -> Iterator[str]:
    for decoding in study.run.decodings:
        for checkpoint in study.checkpoints():
            at = {"study": study.name, "checkpoint": checkpoint, "decoding": decoding}
            for benchmark in study.evaluated():
                scores = artifacts.SCORES.format(**at, benchmark=benchmark)
                responses = artifacts.COMPLETIONS.format(**at, benchmark=benchmark)
                try:
                    rows = pq.read_table(root / scores, columns=list(GRADED)).to_pylist()
                    found = _graded(artifacts.read_jsonl(root / responses))
                except (OSError, ValueError, KeyError) as error:
                    yield f"{scores}: {error}"
                    continue
                differing = sum(a != b for a, b in zip(rows, found, strict=False))
                differing += abs(len(rows) - len(found))
                if differing:
                    yield f"{scores}: {differing} of {len(rows)} rows are not what its responses get"


def _graded(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that the responses to one benchmark get now."""
    asked = [
        (problem["problem"], sample, problem["gold"], response)
        for problem in problems
        for sample, response in enumerate(problem["responses"])
    ]
    grades = grade_all([(gold, response) for _, _, gold, response in asked])
    return [
        dict(zip(GRADED, (problem, sample, gold, grade.verdict, grade.correct), strict=True))
        for (problem, sample, gold, _), grade in zip(asked, grades, strict=True)
    ]


def _table_errors(study: Study, root: Path) -> Iterator[str]:
    for decoding in study.run.decodings:
        try:
            table = main_table(study, decoding, read_scores(study, decoding, root))
        except (StaleScoreError, OSError, ValueError):
            yield f"{decoding}: no table can be made of these scores"
            continue
        compared = compare(study, table)
        for suffix in ("md", "tex", "csv"):
            path = artifacts.MAIN_TABLE.format(study=study.name, decoding=decoding, suffix=suffix)
            try:
                printed = (root / path).read_text()
            except OSError as error:
                yield f"{path}: {error.strerror}"
                continue
            if printed != render(table, suffix, compared):
                yield f"{path}: does not follow from the scores"
