"""Choice of the checkpoint of a training that tables show, by a rule of the study.

No rule chooses by the test benchmarks. Marked columns of a table show the checkpoint that is best on them,
with its advantage over the chosen one, the optimism.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stapo.study import TrainingRun

Rule = Literal["last", "development"] | int


@dataclass(frozen=True)
class Choice:
    """The choice among the checkpoints of one training with one decoding, by shares of correct responses."""

    size: str
    method: str
    seed: int
    averages: dict[int, float]
    """Step -> Avg over the benchmarks of the table."""
    development: dict[int, float]
    """Step -> average over the development benchmarks; empty without any."""
    selected: int
    """Step that the rule chooses."""

    @property
    def run(self) -> TrainingRun:
        """The training."""
        return TrainingRun(self.size, self.method, self.seed)

    @property
    def best_on_test(self) -> int:
        """Step with the highest Avg."""
        return max(self.averages, key=lambda step: self.averages[step])

    @property
    def optimism(self) -> float:
        """Increase of Avg if the checkpoint were chosen on the test benchmarks."""
        return self.averages[self.best_on_test] - self.averages[self.selected]


def select(rule: Rule, steps: list[int], development: Mapping[int, float]) -> int:
    """Return the step of kept weights that a rule chooses; for equal results on development, the first."""
    if rule == "development":
        return max(steps, key=lambda step: (development[step], -step))
    return max(steps) if rule == "last" else rule
