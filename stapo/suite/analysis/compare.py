"""Comparison of two score files, or of two folders of them: of engines, versions, machines or checkpoints.

A folder is `scores/CHECKPOINT/DECODING`; each benchmark that both have counts the same in Avg. Differences
are paired by problem. Verdicts are the verifier's where all have the same one, otherwise those of the rules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from stapo.suite.analysis.artefacts import VERDICT_COLUMNS, by_problem
from stapo.suite.analysis.formats import Column, terminal_table, with_interval
from stapo.suite.evaluation import statistics
from stapo.suite.evaluation.statistics import AVERAGE, Array, Interval
from stapo.suite.records.scores import ScoreIdentity, read_score_file
from stapo.suite.study import StudyError
from stapo.suite.text import visible

SEED = 0
Read = dict[str, tuple[list[str], Array, ScoreIdentity]]
"""Benchmark -> golds (P,), the columns of `VERDICT_COLUMNS` (2, P, N), and what made the file."""


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """One accuracy of both, in percent, and its difference in points."""

    benchmark: str
    """A benchmark, or the average over those that are compared."""
    problems: int
    first: Interval
    second: Interval
    difference: Interval
    p_value: float
    detectable: float
    """Difference in points that is found with a power of 80 %."""
    p_holm: float = 1.0


@dataclass(frozen=True, kw_only=True)
class ScoreComparison:
    """Comparison of B with A; as JSON, what `stapo compare --json` prints."""

    first: str
    second: str
    """A and B."""
    warnings: list[str]
    differences: list[ScoreDifference]


def compare_scores(first: Path, second: Path) -> ScoreComparison:
    """Return the comparison of two files or folders; resamples have a fixed seed.

    Raises:
        StudyError: every reason why one cannot be read, or they have nothing in common.
    """
    errors: list[str] = []
    both = [_read(path, errors) for path in (first, second)]
    if errors:
        raise StudyError([visible(line) for line in errors])
    if first.is_file() and second.is_file():
        both = [{"problems": next(iter(scores.values()))} for scores in both]
    golds = [{name: score[0] for name, score in scores.items()} for scores in both]
    names = [*golds[0] | golds[1]]
    common = [name for name in names if golds[0].get(name) == golds[1].get(name)]
    if not common:
        raise StudyError([visible(f"{first} and {second} have no benchmark in common")])
    left_out = [name for name in names if name not in common]
    warnings = [f"{name}: not in both, or other problems; left out" for name in left_out]
    warnings.append("differences are between checkpoints, not between methods")
    made = [scores[name][2] for scores in both for name in common]
    if len({identity.get("decoding") for identity in made}) > 1:
        warnings.append("they are of several decodings")
    judges = [identity.get("verifier") for identity in made]
    alike = bool(judges[0]) and all(judge == judges[0] for judge in judges)
    if any(judges):
        by = "with the verifier" if alike else "by the rules, since not all have the same verifier"
        warnings.append(f"verdicts {by}")
    pairs = {name: [scores[name][1][[int(alike)]] for scores in both] for name in common}
    return ScoreComparison(
        first=str(first), second=str(second), warnings=warnings, differences=_differences(pairs)
    )


def _read(path: Path, errors: list[str]) -> Read:
    """Return the verdicts of a file or folder; add a line for each file that cannot be read."""
    scores: Read = {}
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or not path.exists() or files[0].suffix != ".parquet":
        remedy = "name a folder scores/CHECKPOINT/DECODING of a study, or a file of it"
        if below := [file for file in path.glob("**/*.parquet") if "scores" in file.parts]:
            remedy += f", such as {min(below).parent}"
        errors.append(f"{path}: no score files; {remedy}")
        return scores
    for file in files:
        try:
            table, identity = read_score_file(file)
            columns = ("gold", *VERDICT_COLUMNS.values())
            golds, *verdicts = (by_problem(table, identity["samples"], name) for name in columns)
            arrays = np.stack(verdicts).astype(float)
            scores[file.stem] = [str(gold[0]) for gold in golds], arrays, identity
        except (OSError, ValueError, KeyError, TypeError) as error:
            errors.append(f"{file}: no score file, or damaged: {' '.join(str(error).split())}")
    return scores


def _differences(pairs: Mapping[str, Sequence[Array]]) -> list[ScoreDifference]:
    """Return the difference on each benchmark, and on average where there are several."""
    rng = np.random.default_rng(SEED)
    counts = {b: statistics.problem_counts(pair[0].shape[1], rng) for b, pair in pairs.items()}
    cells = [{name: pair[side] for name, pair in pairs.items()} for side in (0, 1)]
    first, second = (statistics.accuracies_of(cell, counts, pairs, rng) for cell in cells)
    parts = {name: [name] for name in pairs} | ({AVERAGE: [*pairs]} if len(pairs) > 1 else {})
    rows = []
    for name, benchmarks in parts.items():
        theirs, ours = ([cell[benchmark] for benchmark in benchmarks] for cell in cells)
        gap = (second.draws[name] - first.draws[name]) / 100
        difference = statistics.paired_difference(ours, theirs, gap, rng)
        rows.append(
            ScoreDifference(
                benchmark=name,
                problems=sum(verdicts.shape[1] for verdicts in ours),
                first=first.values[name],
                second=second.values[name],
                difference=difference.times(100),
                p_value=difference.p_value,
                detectable=100 * difference.detectable,
            )
        )
    adjusted = statistics.holm([row.p_value for row in rows])
    return [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]


COLUMNS: list[Column[ScoreDifference]] = [
    Column("Benchmark", lambda row: row.benchmark, text=True),
    Column("Problems", lambda row: row.problems),
    Column("A [%]", lambda row: row.first),
    Column("B [%]", lambda row: row.second),
    Column("B - A [95 %]", lambda row: with_interval(row.difference, "+.2f")),
    Column("Detectable", lambda row: row.detectable, ".2f"),
    Column("p (Holm)", lambda row: row.p_holm, ".4f"),
]


def print_comparison(comparison: ScoreComparison, console: Console) -> None:
    """Print both names, the warnings, and a table of the differences."""
    names = [f"A = {comparison.first}", f"B = {comparison.second}"]
    for line in [*names, *(f"warning: {line}" for line in comparison.warnings)]:
        console.print(Text(visible(line)))
    title = Text("accuracy; the intervals are not adjusted")
    console.print(terminal_table(COLUMNS, [comparison.differences], title), crop=False)
