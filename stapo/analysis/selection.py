"""Which checkpoint of a training a table shows, by a rule that the study declares beforehand.

The best on the test is never the rule: it is what a table shows in columns marked so, beside the optimism
that choosing by it would have brought.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Rule = Literal["last", "development"] | int


@dataclass(frozen=True)
class Choice:
    """The checkpoints of one training under one decoding; values are shares of correct responses."""

    size: str
    method: str
    seed: int
    averages: dict[int, float]
    """Avg over the benchmarks of the table, by step."""
    development: dict[int, float]
    """The same over the development benchmarks; empty without any."""
    selected: int
    """The step that the rule chose."""

    @property
    def best_on_test(self) -> int:
        """The step of the highest Avg, which nobody knows beforehand."""
        return max(self.averages, key=lambda step: self.averages[step])

    @property
    def optimism(self) -> float:
        """What choosing by the test would have added to Avg."""
        return self.averages[self.best_on_test] - self.averages[self.selected]


def select(rule: Rule, steps: list[int], development: Mapping[int, float]) -> int:
    """Return the step that a rule chooses; of equal ones on development the first.

    Args:
        rule: `last`, `development`, or a step.
        steps: of which weights are there.
        development: share of correct responses to the development benchmarks, by step.
    """
    if rule == "development":
        return max(steps, key=lambda step: (development[step], -step))
    return max(steps) if rule == "last" else rule


def rule_text(rule: Rule, benchmarks: list[str]) -> str:
    """Return the rule as a sentence."""
    chosen = {
        "last": "the last",
        "development": f"the best on {', '.join(benchmarks)}, shown in no table",
    }.get(str(rule), f"that after step {rule}")
    return f"Checkpoint of each training: {chosen}."
