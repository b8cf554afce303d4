"""What the tables of one decoding hold: their rows, and what is said below them."""

from collections.abc import Callable
from dataclasses import dataclass

from stapo.analysis.cells import Cell
from stapo.analysis.selection import Choice
from stapo.evaluation.statistics import Difference, Interval

AVERAGE = "Avg"
CONTROL = "aime24"
"""What methods may be tuned on unawares: its problems are older than the models (arXiv 2504.07086)."""
FURTHER: dict[str, Callable[[str], bool]] = {"without AIME24": lambda name: name != CONTROL}
"""Averages over some of the benchmarks only: what is said after Avg, and which benchmarks count."""


@dataclass(frozen=True)
class Headline:
    """The relative gain of a method's average over the strongest baseline's, in percent."""

    target: str
    gains: dict[str, float]
    """By size."""
    baselines: dict[str, str]
    """The strongest baseline of each size."""
    mean: float
    """Over the sizes."""
    interval: Interval | None = None
    """Of the mean; None where only averages are known."""


@dataclass(frozen=True)
class TableRow:
    """One row of every table of a decoding: a method at a size."""

    size: str
    method: str
    title: str
    """Of the method."""
    source: str
    """Where the method comes from and what the study changed of it; empty for the base model."""
    cells: dict[str, Interval]
    """Accuracy in percent, by benchmark, then by `MainTable.averages`."""
    best: frozenset[str]
    """The columns in which no other row of the size is better."""
    marks: str
    """Those of the targets whose Avg differs from this row's, after Holm's adjustment."""
    responses: dict[str, Cell]
    """By benchmark."""

    @property
    def seeds(self) -> int:
        """Number of training seeds, over which values are means."""
        return len(next(iter(self.responses.values())).correct)


@dataclass(frozen=True)
class Comparison:
    """A target minus a baseline, on the average of one size; shares of 1."""

    size: str
    target: str
    baseline: str
    difference: Difference
    adjusted_p: float
    further: dict[str, Interval]
    """The same on those of the `FURTHER` averages that the table has."""


@dataclass(frozen=True)
class MainTable:
    """Everything that is printed of one decoding."""

    study: str
    decoding: str
    samples: dict[str, int]
    """Responses to each problem, by benchmark."""
    averages: dict[str, list[str]]
    """Avg and what other averages there are, with the benchmarks of each."""
    problems: dict[str, int]
    """By benchmark."""
    rows: list[TableRow]
    headlines: dict[str, Headline | None]
    """By target."""
    comparisons: list[Comparison]
    choices: list[Choice]
    """Of each training with several checkpoints."""
    notes: list[str]
    verifier: bool
    """Whether a verifier was asked about what the rules reject."""
    made_by: str
    """Fingerprint of everything that leads to this table."""

    @property
    def titles(self) -> dict[str, str]:
        """Titles of the methods."""
        return {row.method: row.title for row in self.rows}

    @property
    def values(self) -> dict[str, dict[str, float]]:
        """Size to method to Avg, in percent."""
        found: dict[str, dict[str, float]] = {}
        for row in self.rows:
            found.setdefault(row.size, {})[row.method] = row.cells[AVERAGE].value
        return found
