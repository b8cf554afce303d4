"""One checkpoint answered by two engines: how far apart they are, and how far chance alone puts them.

The scores of both sides are paired by what was asked: the same weights, problems, decoding, limits and N.
What remains is the engine, its version and its device, and the draw. Verdicts are those of the rules.
Weights trained in a study count as the same by their settings, which another training of it has too.
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
"""What a score file says of itself in words, for errors."""


@dataclass(frozen=True)
class Score:
    """One score file."""

    path: Path
    identity: ScoreIdentity
    gold: list[str]
    """By problem."""
    correct: Array
    """(1, P, N)."""


@dataclass(frozen=True)
class EngineDifference:
    """The second side minus the first, of one benchmark or of their average; 0 to 1."""

    checkpoint: str
    decoding: str
    engines: tuple[str, str]
    benchmark: str
    values: tuple[float, float]
    difference: Difference
    adjusted_p: float
    """By Holm, over all lines of the comparison."""

    @property
    def within(self) -> bool:
        """Whether 0 lies in the interval."""
        return self.difference.low <= 0 <= self.difference.high

    @property
    def differs(self) -> bool:
        """Whether the engines differ, at 5 % over all lines."""
        return self.adjusted_p < SIGNIFICANT


def compare_engines(one: Path, other: Path) -> list[EngineDifference]:
    """Return the differences of two sides by checkpoint, decoding and benchmark, and of the averages.

    Args:
        one: a score file, or a directory of them: a study's results, or those of `stapo evaluate`.
        other: as `one`, by another engine.

    Raises:
        StudyError: with a line for each score that is unreadable or that the other side has none for.
    """
    errors: list[str] = []
    sides = [_scores(path, errors.append) for path in (one, other)]
    for own, beside in (sides, sides[::-1]):
        errors += [_unpaired(score, beside) for asked, score in own.items() if asked not in beside]
    pairs = [(score, sides[1][asked]) for asked, score in sides[0].items() if asked in sides[1]]
    errors += [
        f"{b.path}: other problems than {a.path}" for a, b in pairs if not _same_problems(a, b)
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
    """Return the scores of one side by the fingerprint of what was asked."""
    # Beside the scores of a study lie the tokens of its trainings.
    folder = path / "scores" if (path / "scores").is_dir() else path
    files = [path] if path.is_file() else sorted(folder.rglob("*.parquet"))
    if not files:
        refuse(f"{path}: no scores; give a file or a directory that `stapo evaluate` has written")
    found: dict[str, Score] = {}
    for file in files:
        try:
            score = _score(file)
        except (DamagedFileError, OSError) as error:
            refuse(f"{file}: {error}")
            continue
        asked = str(score.identity["asked"])
        if asked in found:
            refuse(f"{file}: asks the same as {found[asked].path}; name one of the two")
        found[asked] = score
    return found


def _score(file: Path) -> Score:
    table, identity = read_score_file(file)
    wanted = ("asked", "checkpoint", "engine", *STATED)
    if missing := [name for name in wanted if name not in identity]:
        raise DamagedFileError(f"does not state its {', '.join(missing)}; score it again")
    samples = identity["samples"]
    if type(samples) is not int or samples < 1:
        raise DamagedFileError("no score file of this version; score it again")
    if fault := missing_samples(table, samples):
        raise DamagedFileError(fault)
    rows = table.to_pydict()
    golds = dict(zip(rows["problem"], rows["gold"], strict=True))
    gold = [str(golds[problem]) for problem in sorted(golds)]
    return Score(file, identity, gold, by_problem(rows, samples, "correct")[None])


def _unpaired(score: Score, others: dict[str, Score]) -> str:
    """Return why a score has no partner: what the nearest one on the other side says otherwise."""
    own = {name: score.identity[name] for name in STATED}
    near = [s for s in others.values() if s.identity["benchmark"] == own["benchmark"]]
    if not near:
        return f"{score.path}: the other side has no scores of {visible(str(own['benchmark']))}"
    differing = [
        f"{name} {visible(str(near[0].identity[name]))} there, {visible(str(value))} here"
        for name, value in own.items()
        if near[0].identity[name] != value
    ]
    why = ", ".join(differing) or "another checkpoint, limit, seed or end tokens"
    return f"{score.path}: nothing on the other side was asked the same; {near[0].path}: {why}"


def _same_problems(one: Score, other: Score) -> bool:
    return one.gold == other.gold and one.correct.shape == other.correct.shape


Line = tuple[str, str, tuple[str, str], str, tuple[float, float], Difference]


def _differences(
    checkpoint: str, decoding: str, pairs: Sequence[tuple[Score, Score]], rng: np.random.Generator
) -> list[Line]:
    """Return the difference on each benchmark and, where there are several, on their average."""
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
    """Print every difference with its interval; return whether none is more than chance.

    Of 20 intervals of engines that do not differ one leaves out 0. What decides is therefore the p-value
    that is adjusted for the number of lines.
    """
    groups: dict[tuple[str, str], list[EngineDifference]] = {}
    for line in found:
        groups.setdefault((line.checkpoint, line.decoding), []).append(line)
    for (checkpoint, decoding), lines in groups.items():
        one, other = (visible(engine) for engine in lines[0].engines)
        if one == other:
            console.print(Text(f"warning: both sides say that they are of one engine, {one}"))
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
        Text(f"0 lies in {inside} of {len(found)} intervals; {verdict} (p by Holm, 5 % over all)")
    )
    return not worse


def _noise_floor(line: EngineDifference) -> str:
    d = line.difference
    floor = 100 * max(abs(d.low), abs(d.high))
    return (
        f"Engine noise floor, {visible(line.benchmark)}: {floor:.2f} points. Between methods that two "
        "engines answered, a smaller difference may be the engines' or the draw's."
    )
