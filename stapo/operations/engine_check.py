"""Comparison of two engines on the same checkpoint: is their difference larger than chance?

The scores of both sides are paired if weights, problems, decoding, limits and N are the same. They still
differ in the engine, its version, its device, and the random draw. Verdicts are those of the rule-based
grader. Weights trained in a study are identified by their settings, so two trainings with the same
settings count as the same weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo.analysis.cells import by_problem, missing_samples
from stapo.analysis.comparison import BOOTSTRAP_SEED
from stapo.analysis.notes import SIGNIFICANT
from stapo.analysis.rows import AVERAGE
from stapo.evaluation.statistics import (
    Array,
    Difference,
    average_at_n,
    bootstrap_means,
    holm,
    paired_difference,
    problem_counts,
    seed_choices,
)
from stapo.files import DamagedFileError
from stapo.records.scores import ScoreIdentity, read_score_file
from stapo.study import StudyError
from stapo.text import visible

STATED: tuple[Literal["benchmark", "decoding", "samples"], ...] = (
    "benchmark",
    "decoding",
    "samples",
)
"""Fields of a score file's metadata that are shown in errors."""


@dataclass(frozen=True)
class Score:
    """One score file."""

    path: Path
    identity: ScoreIdentity
    gold: list[str]
    """Gold answers by problem."""
    correct: Array
    """Verdicts (1, P, N)."""


@dataclass(frozen=True)
class EngineDifference:
    """The second side minus the first, for one benchmark or for their average; values from 0 to 1."""

    checkpoint: str
    decoding: str
    engines: tuple[str, str]
    benchmark: str
    values: tuple[float, float]
    difference: Difference
    adjusted_p: float
    """P-value adjusted by Holm's method over all lines of the comparison."""

    @property
    def within(self) -> bool:
        """Whether the interval contains 0."""
        return self.difference.low <= 0 <= self.difference.high

    @property
    def differs(self) -> bool:
        """Whether the engines differ significantly, at 5 % over all lines."""
        return self.adjusted_p < SIGNIFICANT


def compare_engines(one: Path, other: Path) -> list[EngineDifference]:
    """Return the differences by checkpoint, decoding and benchmark, and those of the averages.

    Args:
        one: a score file, or a directory of score files from a study or `stapo evaluate`.
        other: the same of another engine.

    Raises:
        StudyError: one line for each score that is unreadable or has no partner on the other side.
    """
    errors: list[str] = []
    sides = [_scores(path, errors.append) for path in (one, other)]
    for own, beside in (sides, sides[::-1]):
        errors += [_unpaired(score, beside) for asked, score in own.items() if asked not in beside]
    pairs = [(score, sides[1][asked]) for asked, score in sides[0].items() if asked in sides[1]]
    errors += [
        f"{b.path}: different problems from {a.path}" for a, b in pairs if not _same_problems(a, b)
    ]
    if errors:
        raise StudyError(errors)
    groups: dict[tuple[str, str], list[tuple[Score, Score]]] = {}
    for pair in pairs:
        about = pair[0].identity
        groups.setdefault((str(about["checkpoint"]), str(about["decoding"])), []).append(pair)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    found = [line for at, group in groups.items() for line in _differences(*at, group, rng)]
    adjusted = holm([line[-1].p_value for line in found])
    return [EngineDifference(*line, p) for line, p in zip(found, adjusted, strict=True)]


def _scores(path: Path, refuse: Callable[[str], None]) -> dict[str, Score]:
    """Return fingerprint of the request -> score, for one side."""
    # The results of a study contain other parquet files too, such as the tokens of its trainings.
    folder = path / "scores" if (path / "scores").is_dir() else path
    files = [path] if path.is_file() else sorted(folder.rglob("*.parquet"))
    if not files:
        refuse(f"{path}: no scores; give a score file, or a directory written by `stapo evaluate`")
    found: dict[str, Score] = {}
    for file in files:
        try:
            score = _score(file)
        except (DamagedFileError, OSError) as error:
            refuse(f"{file}: {error}")
            continue
        asked = str(score.identity["asked"])
        if asked in found:
            refuse(f"{file}: same request as {found[asked].path}; give only one of the two")
        found[asked] = score
    return found


def _score(file: Path) -> Score:
    table, identity = read_score_file(file)
    wanted = ("asked", "checkpoint", "engine", *STATED)
    if missing := [name for name in wanted if name not in identity]:
        raise DamagedFileError(f"no {', '.join(missing)} in its metadata; score it again")
    samples = identity["samples"]
    if type(samples) is not int or samples < 1:
        raise DamagedFileError("not a score file of this version; score it again")
    if fault := missing_samples(table, samples):
        raise DamagedFileError(fault)
    rows = table.to_pydict()
    golds = dict(zip(rows["problem"], rows["gold"], strict=True))
    gold = [str(golds[problem]) for problem in sorted(golds)]
    return Score(file, identity, gold, by_problem(rows, samples, "correct")[None])


def _unpaired(score: Score, others: dict[str, Score]) -> str:
    """Return why a score has no partner: how the most similar score of the other side differs."""
    own = {name: score.identity[name] for name in STATED}
    near = [s for s in others.values() if s.identity["benchmark"] == own["benchmark"]]
    if not near:
        return f"{score.path}: the other side has no scores of {visible(str(own['benchmark']))}"
    differing = [
        f"{name} {visible(str(near[0].identity[name]))} instead of {visible(str(value))}"
        for name, value in own.items()
        if near[0].identity[name] != value
    ]
    why = ", ".join(differing) or "another checkpoint, limit, seed or end tokens"
    return f"{score.path}: no score of the same request on the other side; {near[0].path} has {why}"


def _same_problems(one: Score, other: Score) -> bool:
    return one.gold == other.gold and one.correct.shape == other.correct.shape


Line = tuple[str, str, tuple[str, str], str, tuple[float, float], Difference]


def _differences(
    checkpoint: str, decoding: str, pairs: Sequence[tuple[Score, Score]], rng: np.random.Generator
) -> list[Line]:
    """Return the difference on each benchmark and, if there are several, on their average."""
    first, second = [a.correct for a, _ in pairs], [b.correct for _, b in pairs]
    draws, one_seed = [], seed_choices(1, rng)
    for ours, theirs in zip(first, second, strict=True):
        counts = problem_counts(ours.shape[1], rng)
        gaps = bootstrap_means(theirs, counts, one_seed) - bootstrap_means(ours, counts, one_seed)
        draws.append(gaps)
    engines = (_engines([a for a, _ in pairs]), _engines([b for _, b in pairs]))
    names = [str(a.identity["benchmark"]) for a, _ in pairs]
    parts = [(name, [i]) for i, name in enumerate(names)]
    if len(pairs) > 1:
        parts.append((AVERAGE, list(range(len(pairs)))))
    lines: list[Line] = []
    for name, which in parts:
        sides = [first[i] for i in which], [second[i] for i in which]
        values = _mean(sides[0]), _mean(sides[1])
        gap = np.mean([draws[i] for i in which], axis=0)
        difference = paired_difference(sides[1], sides[0], gap, rng)
        lines.append((checkpoint, decoding, engines, name, values, difference))
    return lines


def _mean(cells: Sequence[Array]) -> float:
    return float(np.mean([average_at_n(cell) for cell in cells]))


def _engines(scores: Sequence[Score]) -> str:
    return ", ".join(sorted({str(score.identity["engine"]) for score in scores}))


def print_engines(found: Sequence[EngineDifference], console: Console) -> bool:
    """Print every difference with its interval; return whether no difference is significant.

    Even if the engines do not differ, one of 20 intervals does not contain 0. The decision therefore
    uses the p-values, adjusted for the number of lines.
    """
    groups: dict[tuple[str, str], list[EngineDifference]] = {}
    for line in found:
        groups.setdefault((line.checkpoint, line.decoding), []).append(line)
    for (checkpoint, decoding), lines in groups.items():
        one, other = (visible(engine) for engine in lines[0].engines)
        if one == other:
            console.print(Text(f"warning: both sides are from the same engine, {one}"))
        title = visible(f"{checkpoint}, {decoding}")
        table = Table(title=Text(f"{title}: {other} minus {one}"), box=SIMPLE_HEAD)
        for heading in (
            "benchmark",
            "first %",
            "second %",
            "difference",
            "95 % interval",
            "0 in it",
            "p",
        ):
            table.add_column(heading, justify="left" if heading == "benchmark" else "right")
        for line in lines:
            d = line.difference
            table.add_row(
                Text(visible(line.benchmark)),
                *(f"{100 * value:.2f}" for value in line.values),
                f"{100 * d.value:+.2f}",
                Text(f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}]"),
                "yes" if line.within else "no",
                f"{line.adjusted_p:.4f}",
            )
        console.print(table)
        console.print(Text(_noise_floor(lines[-1])))
    worse = [line for line in found if line.differs]
    inside = sum(line.within for line in found)
    verdict = "the engines differ" if worse else "no difference beyond chance"
    console.print(
        Text(
            f"{inside} of {len(found)} intervals contain 0; {verdict} (Holm-adjusted p, 5 % over all)"
        )
    )
    return not worse


def _noise_floor(line: EngineDifference) -> str:
    d = line.difference
    floor = 100 * max(abs(d.low), abs(d.high))
    return (
        f"Engine noise floor, {visible(line.benchmark)}: {floor:.2f} points. A smaller difference between "
        "methods evaluated with different engines may come from the engines or from chance."
    )
