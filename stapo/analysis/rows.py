"""Content of the tables of one decoding: rows, headlines, comparisons and notes."""

from dataclasses import dataclass

from stapo.analysis.cells import Cell
from stapo.evaluation.statistics import Difference, Interval

AVERAGE = "Avg"


@dataclass(frozen=True)
class Headline:
    """The relative gain of a method's average over the strongest baseline's, in percent."""

    target: str
    gains: dict[str, float]
    """Size -> relative gain."""
    baselines: dict[str, str]
    """Size -> strongest baseline."""
    mean: float
    """Mean gain over the sizes."""
    interval: Interval | None = None
    """Interval of the mean; None if only averages are known."""


@dataclass(frozen=True)
class TableRow:
    """One row of every table of a decoding: a method at a size."""

    size: str
    method: str
    title: str
    source: str
    """Source of the method and the study's changes of it; empty for the base model."""
    cells: dict[str, Interval]
    """Benchmark, then Avg -> accuracy in percent."""
    best: frozenset[str]
    """Columns in which no other row of the size is better."""
    responses: dict[str, Cell]

    @property
    def seeds(self) -> int:
        """Number of training seeds, over which values are averaged."""
        return len(next(iter(self.responses.values())).correct)


@dataclass(frozen=True)
class Comparison:
    """Difference of Avg between a target and a baseline at one size, in shares of 1."""

    size: str
    """Empty if the two rows are checkpoints, of whatever size."""
    target: str
    baseline: str
    difference: Difference
    adjusted_p: float


@dataclass(frozen=True)
class MainTable:
    """Content of all tables of one decoding."""

    study: str
    decoding: str
    title: str
    samples: dict[str, int]
    """Benchmark -> responses per problem."""
    problems: dict[str, int]
    rows: list[TableRow]
    headlines: dict[str, Headline | None]
    comparisons: list[Comparison]
    notes: list[str]
    verifier: bool
    """Whether a verifier judged the answers that the rules reject."""
    made_by: str
    """Fingerprint of everything that determines this table."""
    checkpoints: bool = False
    """Whether the rows are checkpoints from anywhere, not methods of a study."""

    @property
    def best_of(self) -> str:
        """What is bold: checkpoints of unknown size are compared with one another."""
        return "best of each size" if any(row.size for row in self.rows) else "best"

    @property
    def titles(self) -> dict[str, str]:
        """Method -> title."""
        return {row.method: row.title for row in self.rows}

    @property
    def values(self) -> dict[str, dict[str, float]]:
        """Size -> method -> Avg in percent."""
        found: dict[str, dict[str, float]] = {}
        for row in self.rows:
            found.setdefault(row.size, {})[row.method] = row.cells[AVERAGE].value
        return found
