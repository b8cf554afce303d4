"""Whether a published results folder is what it says: checked offline, from its own files alone.

Each question is answered by doing the thing again: checksums, fingerprints, prompts, grading, the draw of
each response, tables, figures, the report. The folder is somebody else's: nothing in it is trusted,
executed or printed as it is, and nothing is read before `folder.admit` has looked at its kind and size.
What imports torch is imported after that.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from stapo import paths
from stapo.analysis.cells import StaleScoreError, read_tables
from stapo.provenance import SUMS
from stapo.publication import summary, untrusted
from stapo.publication.commands import changed_since
from stapo.publication.folder import (
    FILE_BYTES,
    Results,
    admit,
    is_raw,
    is_rendering,
    read_published_study,
)
from stapo.publication.inputs import input_errors
from stapo.publication.manifest import WEIGHTS, about_study, layout, named_by
from stapo.publication.rescore import identity_errors, score_errors
from stapo.study import Study, StudyError, identity
from stapo.text import visible

Errors = Iterator[str]

UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError,
)  # fmt: skip
"""What reading a file that somebody else wrote may raise."""
UNREPEATED = ("written", "environment")
"""Of provenance.json: what only those who ran the study can say."""
MAX_LINE = 400
"""Characters of a line that are shown."""
SHOWN = 20
"""Lines of one kind; more would hide the next kind."""
LIMITS = (
    "not found here: trainings with other settings than stated, where weights, metrics, responses and "
    "commands were all made to agree (only training again tells); a base model of another origin; "
    "seeds, sizes or methods that were run and never named; what the verifier said; times and hardware"
)
"""What somebody can still claim who makes everything agree."""


def _shown(line: str) -> str:
    return visible(line[:MAX_LINE]) + ("..." if len(line) > MAX_LINE else "")


@dataclass(frozen=True)
class Finding:
    """One result of the verification of a folder."""

    level: Literal["ok", "error", "note", "sums"]
    """sums: `what` is the checksum of SHA256SUMS itself."""
    what: str
    errors: list[str] = field(default_factory=list)


def verify(folder: Path, say: Callable[[str], None]) -> bool:
    """Check a results folder, wherever it lies; return whether everything holds.

    Args:
        folder: such as `results/smoke`, or a copy of it. Weights may be left out of a copy.
        say: told one line for each finding.

    Raises:
        StudyError: it is no results folder.
    """
    right = True
    for found in findings(folder):
        right = right and found.level != "error"
        sums = found.level == "sums"
        say(f"{SUMS} itself: {found.what}" if sums else f"{found.level:8} {found.what}")
        for line in found.errors[:SHOWN]:
            say(f"           {line}")
        if len(found.errors) > SHOWN:
            say(f"           and {len(found.errors) - SHOWN} more")
    return right


def verify_document(folder: Path) -> dict[str, Any]:
    """Return the document of `stapo verify --json`.

    Raises:
        StudyError: it is no results folder.
    """
    found = list(findings(folder))
    return {
        "folder": str(folder),
        "failed": any(one.level == "error" for one in found),
        "checks": [asdict(one) for one in found if one.level in ("ok", "error")],
        "notes": [one.what for one in found if one.level == "note"],
        "sha256": next((one.what for one in found if one.level == "sums"), None),
    }


def findings(folder: Path) -> Iterator[Finding]:
    """Check a results folder; yield the result of each check, then notes and its checksum.

    Raises:
        StudyError: it is no results folder.
    """
    with opened(folder) as (results, refused):
        for what, check in (SUMMARY_CHECKS if results.is_summary else CHECKS).items():
            errors = [_shown(line) for line in refused or guarded(check, results)]
            yield Finding("error" if errors else "ok", what, errors)
            if refused:
                yield Finding("note", "nothing of the folder was read beyond this")
                return
        for note in _notes(results):
            yield Finding("note", _shown(note))
        yield Finding("sums", untrusted.sha256(folder / SUMS))


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Results, list[str]]]:
    """Yield the results of a folder, and a line for each file because of which nothing may be read.

    Raises:
        StudyError: it is no results folder.
    """
    study = read_published_study(folder)
    belongs = cache(lambda: layout(study))
    with tempfile.TemporaryDirectory() as scratch:
        # Whatever the folder is called, what reads it looks for results/STUDY.
        root = Path(scratch)
        (root / "results").mkdir()
        (root / paths.RESULTS.format(study=study.name)).symlink_to(folder.resolve())
        files, refused = admit(study, folder.resolve(), belongs)
        # Weights are asked for more than once, and may be terabytes.
        digest = cache(untrusted.sha256)
        yield Results(study, root, folder.resolve(), belongs, files, digest), refused


def guarded(check: Callable[[Results], Errors], results: Results) -> Errors:
    """Yield what a check finds; a file that it cannot make sense of is a finding."""
    try:
        yield from check(results)
    except UNREADABLE as error:
        yield f"something is missing, truncated or corrupt: {error!r}"


def _sums(results: Results) -> list[tuple[str, str]]:
    text = untrusted.read_text(results.folder / SUMS, FILE_BYTES)
    lines = (line.partition("  ") for line in text.splitlines())
    return [(path, stated) for stated, _, path in lines]


def file_errors(results: Results) -> Errors:
    """Yield a line for each file that is missing, too much, or not as the checksums say."""
    lines, belongs, there = _sums(results), results.layout(), results.files
    expected = dict(lines)
    if len(expected) < len(lines):
        yield f"{SUMS}: lists a file twice"
    for path in sorted(belongs.files | there.keys() | expected.keys()):
        if not belongs.has(path):
            if path in expected or not belongs.of_another_form(path):
                yield f"{path}: belongs to nothing of this study; take it out of the folder"
        elif path not in there and not _may_be_left_out(results, path):
            yield f"{path}: missing"
        elif path not in expected:
            yield f"{path}: is not in {SUMS}"
        elif path in there and results.digest(there[path]) != expected[path]:
            yield f"{path}: changed since {SUMS} was written"


def _may_be_left_out(results: Results, path: str) -> bool:
    if results.is_summary:
        return is_raw(path) or is_rendering(path)
    return path.endswith(WEIGHTS)


def publication_errors(results: Results) -> Errors:
    """Yield a line for each file that is not the one that a training published."""
    study, belongs, there = results.study, results.layout(), results.files
    named: dict[str, str] = {}
    for run, record in results.runs.items():
        place = f"runs/{run}"
        if record["fingerprint"] != identity.train_fingerprint(study, run):
            yield f"{place}/provenance.json: of a training with other settings"
        if record["prompts"] != results.digest(there["data/prompts.jsonl"]):
            yield f"{place}/provenance.json: trained on other prompts than data/prompts.jsonl"
        claims = named_by(run, record)
        if any(".." in path.split("/") or "//" in path for path in claims):
            yield f"{place}/provenance.json: names files outside the folder"
        for path, stated in claims.items():
            if named.setdefault(path, stated) != stated:
                yield f"{path}: trainings name different ones"
    published = {path for path in there if belongs.of_training(path)}
    yield from (f"{path}: no training names it" for path in sorted(published - named.keys()))
    for path, stated in named.items():
        if path in published and results.digest(there[path]) != stated:
            yield f"{path}: not what its training names"
        elif path not in published and belongs.of_training(path) and not path.endswith(WEIGHTS):
            yield f"{path}: missing, its training names it"
    from stapo.publication.weights import weight_errors

    yield from weight_errors(results)


def provenance_errors(results: Results) -> Errors:
    """Yield what the study says of its trainings that they do not."""
    path = results.root / paths.PROVENANCE.format(study=results.study.name)
    stated, found = untrusted.read_json(path), about_study(results.study, results.root)
    for key in sorted(stated.keys() | found.keys()):
        if key not in UNREPEATED and stated.get(key) != found.get(key):
            yield f"provenance.json: {key} is not what the files of the runs say"


def origin_errors(results: Results) -> Errors:
    """Yield a line for each score file that was not made by this study, or not as the others."""
    for decoding in results.study.run.decodings:
        try:
            read_tables(results.study, decoding, results.study.cells(decoding), results.root)
        except StaleScoreError as error:
            yield from str(error).splitlines()
    yield from identity_errors(results)


def given_errors(results: Results) -> Errors:
    """Yield a line for responses that their checkpoint did not give."""
    from stapo.publication.copies import copy_errors
    from stapo.publication.resample import response_errors

    yield from response_errors(results)
    yield from copy_errors(results)


def recorded_errors(results: Results) -> Errors:
    """Yield what the trainings recorded that the study or they themselves contradict."""
    from stapo.publication.trainings import training_errors

    yield from training_errors(results)


def made_errors(results: Results) -> Errors:
    """Yield what the interventions contradict."""
    from stapo.publication.interventions import intervention_errors

    yield from intervention_errors(results)


def shown_errors(results: Results) -> Errors:
    """Yield tables, figures and report that show something else."""
    from stapo.publication.redraw import drawn_errors

    yield from drawn_errors(results)


CHECKS: dict[str, Callable[[Results], Errors]] = {
    "files are those of the study and have their checksums": file_errors,
    "weights are those that the trainings published": publication_errors,
    "prompts, overlap and base models are the study's": input_errors,
    "what the trainings recorded agrees with the study": recorded_errors,
    "provenance follows from the runs": provenance_errors,
    "scores were made by this study": origin_errors,
    "scores follow from the responses, and these answer the benchmarks": score_errors,
    "responses are those of their checkpoints": given_errors,
    "interventions agree with the study": made_errors,
    "tables, figures and report follow from scores and metrics": shown_errors,
}
"""Question to what answers it, in the order in which they are asked."""


def _of_summary(check: Callable[[Results, dict[str, str]], Errors]) -> Callable[[Results], Errors]:
    return lambda results: check(results, dict(_sums(results)))


SUMMARY_CHECKS: dict[str, Callable[[Results], Errors]] = {
    "files are those of the study and have their checksums": file_errors,
    "trainings are the study's, and their weights and records have these checksums": _of_summary(
        summary.training_errors
    ),
    "base models are the study's": _of_summary(summary.input_errors),
    "provenance follows from the runs": provenance_errors,
}
"""The same for a folder without its raw data."""


def _own_code(study: Study) -> Iterator[str]:
    """Yield each function of the study's own, which is never run here."""
    for name in study.run.methods:
        if (method := study.method(name)).is_own:
            yield f"{method.title}: the selection {method.selection}"
    if ":" in study.training.reward:
        yield f"the reward {study.training.reward}"


def _notes(results: Results) -> Iterator[str]:
    from stapo.publication.weights import is_looked_at

    belongs, listed = results.layout(), {path for path, _ in _sums(results)}
    left_out = sum(path.endswith(WEIGHTS) for path in listed - results.files.keys())
    if results.is_summary:
        yield summary.NOTE
    elif left_out:
        yield f"{left_out} files of weights are not here; not checked"
    others = sorted(p for p in results.files.keys() - listed if not belongs.has(p))
    if others:
        yield (
            f"{len(others)} files are of another form of the study, such as {others[0]}; they are not in "
            f"{SUMS} and were not looked at"
        )
    not_drawn = [c for c in results.study.checkpoints() if not is_looked_at(results, c)]
    if not_drawn and not results.is_summary:
        yield f"responses of {len(not_drawn)} checkpoints were not drawn again from their weights"
    for line in _own_code(results.study):
        yield f"{line} is not part of the folder; what it computed is taken as stated"
    if results.study.intervened():
        yield "the updates of interventions were not done again from their weights"
    if results.study.evaluation.verifier:
        yield "what the verifier said is taken as stated; that it was counted rightly is checked"
    try:
        yield from changed_since(results)
    except (*UNREADABLE, StudyError):
        pass  # An error above.
    yield LIMITS
