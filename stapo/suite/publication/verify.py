"""Whether a published results folder is what it says: checked offline, from its own files alone.

It finds accidents and contradictions: files that are missing, damaged, edited, of other settings or of
another machine, tables that do not follow from the scores, scores that do not follow from the responses. It
cannot find somebody who recomputes everything; see `LIMITS`. The folder is somebody else's: nothing in it is
executed or printed as it is, and nothing is read before `folder.admit` has looked at its kind and size.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from stapo.core.checksums import SUMS, file_sha256
from stapo.core.files import DamagedFileError, read_json
from stapo.suite import domains, paths, sandbox
from stapo.suite.answers import is_built_in, judged_by_task
from stapo.suite.jobs import jobs_of
from stapo.suite.publication.checks import (
    Errors,
    drawn_errors,
    input_errors,
    origin_errors,
    record_errors,
    score_errors,
    training_errors,
)
from stapo.suite.publication.folder import (
    UNREADABLE,
    WEIGHTS,
    Results,
    about_study,
    admit,
    is_raw,
    is_rendering,
    layout,
    read_published_study,
)
from stapo.suite.records.scores import read_identity
from stapo.suite.study import Study, StudyError
from stapo.suite.study.functions import named
from stapo.suite.study.sources import DomainData
from stapo.suite.text import shorten, visible

UNREPEATED = ("written", "environment", "study")
"""Of provenance.json: what only those who ran the study can say, and what the rest is compared with. The
study also contains what the catalogue had when it was published, which determines nothing."""
MAX_LINE = 400
"""Characters of a line that are shown."""
SHOWN = 20
"""Lines of one kind; more would hide the next kind."""
LIMITS = (
    "not found here: trainings with other settings than stated, or edited metrics, token records and "
    "responses, if checksums, records, tables and figures were made again to agree (only training again "
    "tells); seeds, models, methods, benchmarks or development sets that were run and never named; a base "
    "model or tokenizer of another origin; what the verifier said; times, hardware"
)
"""What somebody can still claim, by accident or on purpose."""
SUMMARY = (
    "only checksums and records were checked: without raw data (prompts, metrics, token records, responses, "
    "scores) no score, table, figure or report can be computed again. Get them from the authors, for "
    "published studies with results/raw_data.sh, or run the study"
)


def verify(folder: Path, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Check a results folder, wherever it lies, and say what is found, line by line.

    Returns:
        The document of `stapo verify --json`; `failed` says whether a check found anything.

    Raises:
        StudyError: something is not installed that judges the study's answers.
    """
    checks: list[dict[str, Any]] = []
    with opened(folder) as (results, refused):
        if not results.is_summary and (absent := [*_absent(results.study)]):
            raise StudyError(
                [f"{folder}: cannot be checked on this machine: {why}" for why in absent]
            )
        for what, check in {**CHECKS, **({} if results.is_summary else RAW_CHECKS)}.items():
            say(f"checking {what}")
            errors = [*map(_shown, refused or guarded(check, results))]
            checks.append({"level": "error" if errors else "ok", "what": what, "errors": errors})
            say(f"{checks[-1]['level']:8} {what}")
            for line in errors[:SHOWN]:
                say(f"           {line}")
            if len(errors) > SHOWN:
                say(f"           and {len(errors) - SHOWN} more")
            if refused:
                break
        notes = ["nothing of the folder was read beyond this"]
        if not refused:
            notes = [*map(_shown, guarded(_notes, results)), LIMITS]
        sums = None if refused else file_sha256(folder / SUMS)
    for note in notes:
        say(f"note     {note}")
    if sums:
        say(f"{SUMS} itself: {sums}")
    failed = any(result["errors"] for result in checks)
    return {
        "folder": str(folder), "failed": failed, "checks": checks, "notes": notes, "sha256": sums,
    }  # fmt: skip


def _absent(study: Study) -> Iterator[str]:
    """Yield what this machine lacks to make prompts and scores of a study again."""
    readers = [study.answer(name) for name in study.run.benchmarks]
    if "python_function" in readers and (reason := sandbox.missing()):
        yield reason
    is_made = bool(study.run.methods) and isinstance(study.data, DomainData)
    if (is_made or any(map(judged_by_task, readers))) and (reason := domains.missing()):
        yield reason


def _shown(line: str) -> str:
    return visible(shorten(line, MAX_LINE))


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Results, list[str]]]:
    """Yield the results of a folder, and a line for each file because of which nothing may be read."""
    study = read_published_study(folder)
    belongs = layout(study)
    with tempfile.TemporaryDirectory() as scratch:
        # Whatever the folder is called, what reads it looks for results/STUDY.
        root = Path(scratch)
        (root / "results").mkdir()
        (root / paths.RESULTS.format(study=study.name)).symlink_to(folder.resolve())
        files, refused = admit(study, folder.resolve(), belongs)
        # Weights are asked for more than once, and may be terabytes.
        digest = cache(file_sha256)
        yield Results(study, root, folder.resolve(), belongs, files, digest), refused


def guarded(check: Callable[[Results], Errors], results: Results) -> Errors:
    """Yield what a check finds; a file that it cannot make sense of is a finding."""
    # Files are read by the path results/STUDY in temporary directories, which are gone when this is read.
    at = re.compile(
        rf"/[^\s:'\"]*/{re.escape(paths.RESULTS.format(study=results.study.name))}(?=/)"
    )
    shown = partial(at.sub, lambda _: str(results.folder))
    try:
        yield from map(shown, check(results))
    except UNREADABLE as error:
        # The text of these names the file; that of others, such as a KeyError, does not say what it is.
        is_text = isinstance(error, OSError | DamagedFileError)
        yield shown(
            f"something is missing, truncated or corrupt: {error if is_text else repr(error)}"
        )


def file_errors(results: Results) -> Errors:
    """Yield a line for each file that is missing, too much, or not as the checksums say."""
    expected, belongs, there = results.sums, results.layout, results.files
    paths = belongs.files | there.keys() | expected.keys()
    # Weights may be left out, also with what is beside them.
    models = belongs.models - {path.rpartition("/")[0] for path in there}
    for path in sorted(paths):
        left_out = is_rendering(path)
        if results.is_summary:
            left_out |= is_raw(path)
        else:
            left_out |= path.endswith(WEIGHTS) or path.rpartition("/")[0] in models
        if not belongs.has(path):
            if path in expected or not belongs.is_leftover(path):
                yield f"{path}: belongs to nothing of this study; take it out of the folder"
        elif path not in there and not left_out:
            yield f"{path}: missing"
        elif path not in there and is_rendering(path):
            continue  # Left out, or a figure that the suite did not draw yet.
        elif path not in expected:
            yield f"{path}: is not in {SUMS}"
        elif path in there and results.digest(there[path]) != expected[path]:
            yield f"{path}: changed since {SUMS} was written"


def provenance_errors(results: Results) -> Errors:
    """Yield what the study says of its trainings that they do not."""
    path = results.root / paths.PROVENANCE.format(study=results.study.name)
    stated, computed = read_json(path), about_study(results.study, results.root)
    if results.is_summary:
        computed["models"] = stated["models"]  # What models say of themselves was left out.
    for key in sorted((stated.keys() | computed.keys()) - {*UNREPEATED}):
        if stated.get(key) != computed.get(key):
            yield f"provenance.json: {key} is not what the files of the runs say"
    recorded = {gpu for run in results.runs.values() for gpu in run["environment"]["gpus"]}
    for gpu in sorted({*stated["environment"]["gpus"]} - recorded):
        yield f"provenance.json: names {gpu}, on which no training ran"


CHECKS: dict[str, Callable[[Results], Errors]] = {
    "files are those of the study and have their checksums": file_errors,
    "trainings are the study's, and their weights and records have these checksums": training_errors,
    "prompts, overlap and base models are the study's": input_errors,
    "provenance follows from the runs": provenance_errors,
}
"""Question to what answers it, in the order in which they are asked."""
RAW_CHECKS: dict[str, Callable[[Results], Errors]] = {
    "metrics and interventions agree with the study": record_errors,
    "scores were made by this study": origin_errors,
    "scores follow from the responses, and these answer the benchmarks": score_errors,
    "tables, figures and report follow from scores and metrics": drawn_errors,
}
"""The questions that need the raw data, which a summary in git leaves out."""


def _notes(results: Results) -> Errors:
    """Yield what is not an error, and what was not checked."""
    study, listed = results.study, results.sums.keys()
    others = sorted(p for p in results.files.keys() - listed if not results.layout.has(p))
    if others:
        yield f"{len(others)} files are of another form of the study, such as {others[0]}; not looked at"
    yield from _unlike_code(results)
    if results.is_summary:
        yield SUMMARY
    else:
        if left_out := sum(path.endswith(WEIGHTS) for path in listed - results.files.keys()):
            yield f"{left_out} files of weights are not here; not checked"
        if left_out := sum(map(is_rendering, listed - results.files.keys())):
            yield f"{left_out} figures or reports are not here; not checked"
    user_defined = [
        method.selection for method in map(study.method, study.run.methods) if method.is_own
    ]
    read = [study.training.reward, *map(study.answer, study.run.benchmarks)]
    user_defined += [named(str(reader)) for reader in read if not is_built_in(reader)]
    for name in dict.fromkeys(user_defined):
        yield f"{name} is not part of the folder; what it computed is taken as stated"
    for name in study.run.benchmarks:
        metadata = study.task(name)["metadata"]
        if metadata["sha256"] is None and "reasoning_gym" not in metadata:  # Made again.
            yield f"questions and golds of {name} are taken as stated: the benchmark has no checksum"
    if study.intervened():
        yield "the updates of interventions were not done again from their weights"
    if study.evaluation.verifier:
        yield "what the verifier said is taken as stated; that it was counted rightly is checked"


def _unlike_code(results: Results) -> Errors:
    """Yield that trainings and scores were made by several commits, or by code that is in none."""
    made = [run["environment"] for run in results.runs.values()]
    for job in () if results.is_summary else jobs_of(results.study).all("score"):
        made.append(read_identity(results.root / job.outputs[0]).get("provenance", {}))
    if dirty := sum(environment.get("dirty") is not False for environment in made):
        dirty_share = f"{dirty} of {len(made)} trainings and scores"
        yield f"{dirty_share} were made with uncommitted changes, or do not say (dirty)"
    commits = Counter(str(environment.get("commit"))[:12] for environment in made)
    if len(commits) > 1:
        yield f"made by several commits: {', '.join(commits)}"
