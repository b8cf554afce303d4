"""A training run and the checkpoints that are evaluated, as values: their names are parsed here alone.

A checkpoint is weights that are evaluated. What a training writes to be able to resume is a step checkpoint.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple, Self

NAME = re.compile(r"([^/]+)/(?:base|([^/]+)/seed([0-9]+)(?:/step([0-9]+))?)")


class TrainingRun(NamedTuple):
    """One training of a study."""

    size: str
    method: str
    seed: int

    @property
    def wildcards(self) -> dict[str, str | int]:
        """Its parts by the names that paths have for them."""
        return {"size": self.size, "method": self.method, "seed": self.seed}

    def __str__(self) -> str:
        """Return `size/method/seedK`."""
        return f"{self.size}/{self.method}/seed{self.seed}"


@dataclass(frozen=True)
class Checkpoint:
    """Weights that are evaluated: a base model, or those of a training after its last or an earlier step."""

    size: str
    method: str | None = None
    """None for the base model."""
    seed: int | None = None
    step: int | None = None
    """The optimiser step after which a training kept them, None for its last step."""

    @classmethod
    def of(cls, run: TrainingRun, step: int | None = None) -> Self:
        """Return the checkpoint of a training after a step, or after its last one."""
        return cls(*run, step)

    @classmethod
    def parse(cls, name: str) -> Self:
        """Return the checkpoint of a name: `size/base`, `size/method/seedK` or `size/method/seedK/stepN`.

        Raises:
            ValueError: it is the name of none.
        """
        found = NAME.fullmatch(name)
        if found:
            size, method, seed, step = found.groups()
            numbers = [None if digits is None else int(digits) for digits in (seed, step)]
            checkpoint = cls(size, method, *numbers)
            if str(checkpoint) == name:  # No leading zeros.
                return checkpoint
        raise ValueError(f"no name of a checkpoint: {name!r}")

    @property
    def run(self) -> TrainingRun | None:
        """The training that made it, None for the base model."""
        if self.method is None or self.seed is None:
            return None
        return TrainingRun(self.size, self.method, self.seed)

    def __str__(self) -> str:
        """Return the name, which is also its part of the paths of responses and scores."""
        step = "" if self.step is None else f"/step{self.step}"
        return f"{self.run}{step}" if self.run else f"{self.size}/base"
