"""What single updates changed: quantities of an update, their means over base models, and the lemma."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.evaluation.statistics import Interval, mean_of_seeds
from stapo.suite.records.arms import ARMS, SILENCED
from stapo.suite.records.interventions import Repetition
from stapo.suite.study import Study

Values = NDArray[Any]
QUANTITIES: dict[str, tuple[str, str]] = {
    "entropy": ("Entropy [nats]", "entropy"),
    "entropy_resampled": ("Entropy, sampled anew [nats]", "entropy"),
    "entropy_rollout": ("Entropy, own rollout [nats]", "entropy_rollout"),
    "tail_mass": ("Tail mass", "tail_mass"),
    "reward": ("Reward", "reward"),
    "gradient_norm": ("Gradient norm", ""),
    "cosine": ("Cosine", ""),
    "kl": ("KL [nats per token]", ""),
}
"""Number of an update -> heading, and number of the repetition of which it is a change; empty: of none."""


class Updates(NamedTuple):
    """The updates of an arm or of a method."""

    at: str
    """Title of the checkpoint, or of the method whose checkpoints these are."""
    name: str
    """Of the arm or of the method that made the updates."""
    units: Collection[Sequence[Repetition]]
    """Repetitions by what intervals are over: base models, or single repetitions."""

    def over_units(self, value: Callable[[Repetition], float]) -> Interval:
        """Return the mean over units of the means over their repetitions, with Student's interval."""
        return mean_of_seeds([float(np.mean([*map(value, unit)])) for unit in self.units])

    def change(self, quantity: str, minus: str = "", kind: str = "arms") -> Interval:
        """Return the mean of a quantity, or of its difference from that of another arm or method."""

        def value(repetition: Repetition) -> float:
            made, (_, before) = getattr(repetition, kind), QUANTITIES[quantity]
            numbers = [getattr(made[name], quantity) for name in (self.name, minus) if name]
            # A tail mass of None is nan.
            first = np.array(getattr(repetition, before) if before else 0.0, float)
            ours, *reference = np.array(numbers, float) - first
            return float(ours - sum(reference))

        return self.over_units(value)


def updates_of(artefacts: Artefacts, names: Sequence[str]) -> list[Updates]:
    """Return the updates of some arms or methods: for the base models and each method of checkpoints."""
    study, groups = artefacts.study, dict[str, dict[str, list[Repetition]]]()
    for checkpoint in study.intervened():
        at, done = study.title(checkpoint.method or "base"), artefacts.intervention(checkpoint)
        units = groups.setdefault(at, {}).setdefault(checkpoint.model, [])
        units += done.numbers.repetitions
    return [Updates(at, name, units.values()) for at, units in groups.items() for name in names]


def measured(artefacts: Artefacts, names: Iterable[str] = tuple(QUANTITIES)) -> list[str]:
    """Return which of some quantities were measured."""
    first = artefacts.intervention(artefacts.study.intervened()[0]).numbers.repetitions[0]
    return [name for name in names if name != "tail_mass" or first.tail_mass is not None]


def arm_title(study: Study, arm: str) -> str:
    """Return the title of an arm; that of S2T names the method with its arguments."""
    return study.title(study.interventions.method) if arm == SILENCED else ARMS[arm]


def predicted_change(logps: Values, entropies: Values, advantages: Values) -> Values:
    """Return the entropy change of tokens that the lemma predicts, up to a positive factor.

    It is -p(y) [log p(y) - E log p] [A(y) - E A], where E log p is exactly -H. The advantages of a group have
    mean 0; E A over the continuations at a token is unknown, and 0 is our choice.

    Source: STAPO v4 and v5, lemma on the entropy change of a token.
    """
    logps = np.asarray(logps, dtype=float)
    predicted: Values = -np.exp(logps) * (logps + np.asarray(entropies, dtype=float)) * advantages
    return predicted
