"""Whether a published results folder is what it says: checked offline, from its own files alone.

Each question is answered by doing the thing again: checksums, fingerprints, grading, tables, the report.
The folder is somebody else's: nothing in it is trusted, executed or printed as it is.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath

from stapo import artifacts
from stapo.analysis.against_paper import compare
from stapo.analysis.cells import StaleScoreError, read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.report import render_report
from stapo.analysis.tables import render
from stapo.operations.publish import SUMS, WEIGHTS, Layout, about_study, layout, read_run
from stapo.operations.recheck import score_errors
from stapo.provenance import file_sha256
from stapo.study import Study, StudyError, fingerprint, parse_study

Digest = Callable[[Path], str]
Errors = Iterator[str]

UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading a file that somebody else wrote may raise."""
UNREPEATED = ("written", "environment")
"""Of provenance.json: what only those who ran the study can say."""
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
        belongs = layout(study)
        checks: dict[str, Errors] = {
            "files are those of the study and have their checksums": _files(
                folder, belongs, digest
            ),
            "weights are those that the trainings published": _runs(study, root, belongs, digest),
            "provenance follows from the runs": _provenance(study, root),
            "scores were made by this study": _fingerprints(study, root),
            "scores follow from the responses, and these answer the benchmarks": score_errors(
                study, root
            ),
            "tables and report follow from the scores": _tables(study, root),
        }
        right = True
        for what, found in checks.items():
            errors = list(_guarded(found))
            say(f"{'error   ' if errors else 'ok      '} {what}")
            for line in errors[:SHOWN]:
                say(f"           {_printable(line)}")
            if len(errors) > SHOWN:
                say(f"           and {len(errors) - SHOWN} more")
            right = right and not errors
    for note in _notes(study, folder, belongs):
        say(f"note     {note}")
    say(f"{SUMS} itself: {file_sha256(folder / SUMS)}")
    return right


def _read_study(folder: Path) -> Study:
    try:
        about = json.loads((folder / "provenance.json").read_text())
        (folder / SUMS).read_text()
        return parse_study(about["study"])
    except UNREADABLE as error:
        reason = _printable((str(error).splitlines() or [""])[0])
        raise StudyError(
            [f"{folder}: no results folder with provenance.json and {SUMS} ({reason})"]
        ) from error


def _guarded(errors: Errors) -> Errors:
    try:
        yield from errors
    except UNREADABLE as error:
        yield f"something is unreadable: {error!r}"


def _printable(line: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in line)


def _files(folder: Path, belongs: Layout, digest: Digest) -> Errors:
    lines = [line.partition("  ") for line in (folder / SUMS).read_text().splitlines()]
    expected = {path: stated for stated, _, path in lines}
    if len(expected) < len(lines):
        yield f"{SUMS}: lists a file twice"
    # What is read through a link may be another thing for each who reads it.
    links = (found.relative_to(folder) for found in folder.rglob("*") if found.is_symlink())
    yield from (f"{link}: is a link" for link in sorted(links))
    there = belongs.visible(folder)
    yield from (f"{path}: missing" for path in sorted(belongs.files - there.keys()))
    for path in sorted(there.keys() | expected.keys()):
        if not belongs.has(path):
            yield f"{path}: belongs to nothing of this study; take it out of the folder"
        elif path not in expected:
            yield f"{path}: is not in {SUMS}"
        elif path in there and digest(there[path].resolve()) != expected[path]:
            yield f"{path}: changed since {SUMS} was written"
        elif path not in there and not path.endswith(WEIGHTS):
            yield f"{path}: missing"


def _runs(study: Study, root: Path, belongs: Layout, digest: Digest) -> Errors:
    folder = root / artifacts.RESULTS.format(study=study.name)
    there = belongs.visible(folder)
    named: dict[str, str] = {}
    for size, method, seed in study.runs():
        run = read_run(study, root, size, method, seed)
        place = PurePosixPath(f"runs/{size}/{method}/seed{seed}")
        if run["fingerprint"] != fingerprint(study.train_config(size, method, seed)):
            yield f"{place}/provenance.json: of a training with other settings"
        if run["prompts"] != digest(there["data/prompts.jsonl"].resolve()):
            yield f"{place}/provenance.json: trained on other prompts than data/prompts.jsonl"
        claims = {str(place / path): stated for path, stated in run["outputs"].items()}
        claims |= {f"models/{size}/base/{path}": stated for path, stated in run["base"].items()}
        if any(path.startswith("/") or ".." in path.split("/") for path in claims):
            yield f"{place}/provenance.json: names files outside the folder"
        for path, stated in claims.items():
            if named.setdefault(path, stated) != stated:
                yield f"{path}: trainings name different ones"
    published = {path for path in there if belongs.of_training(path)}
    yield from (f"{path}: no training names it" for path in sorted(published - named.keys()))
    for path, stated in named.items():
        if path in published and digest(there[path].resolve()) != stated:
            yield f"{path}: not what its training names"
        elif path not in published and belongs.of_training(path) and not path.endswith(WEIGHTS):
            yield f"{path}: missing, its training names it"


def _provenance(study: Study, root: Path) -> Errors:
    path = root / artifacts.PROVENANCE.format(study=study.name)
    stated, found = json.loads(path.read_text()), about_study(study, root)
    for key in sorted(stated.keys() | found.keys()):
        if key not in UNREPEATED and stated.get(key) != found.get(key):
            yield f"provenance.json: {key} is not what the files of the runs say"


def _fingerprints(study: Study, root: Path) -> Errors:
    for decoding in study.run.decodings:
        try:
            read_scores(study, decoding, root)
        except StaleScoreError as error:
            yield from str(error).splitlines()


def _tables(study: Study, root: Path) -> Errors:
    for decoding in study.run.decodings:
        table = main_table(study, decoding, read_scores(study, decoding, root))
        compared = compare(study, table)
        for suffix in ("md", "tex", "csv"):
            path = artifacts.MAIN_TABLE.format(study=study.name, decoding=decoding, suffix=suffix)
            if (root / path).read_text() != render(table, suffix, compared):
                yield f"{path}: does not follow from the scores"
    path = artifacts.REPORT.format(study=study.name)
    if (root / path).read_text() != render_report(study, root):
        yield f"{path}: does not follow from scores, responses and figures"


def _notes(study: Study, folder: Path, belongs: Layout) -> Iterator[str]:
    listed = (line.partition("  ")[2] for line in (folder / SUMS).read_text().splitlines())
    left_out = sum(path.endswith(WEIGHTS) for path in set(listed) - belongs.visible(folder).keys())
    if left_out:
        yield f"{left_out} files of weights are not here; not checked"
    yield "figures are checked by their checksums alone, as is what the trainings recorded"
    if study.evaluation.verifier:
        yield "what the verifier said is taken as stated; that it was counted rightly is checked"
