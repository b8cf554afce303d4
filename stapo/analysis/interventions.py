"""What single updates changed: quantities of an update, their means over base models, and the lemma."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stapo.analysis.artefacts import Artefacts
from stapo.evaluation.statistics import Interval, mean_of_seeds
from stapo.records.arms import ARMS, SILENCED
from stapo.records.interventions import ArmRecord, Repetition
from stapo.study import Study

Values = NDArray[Any]


class Quantity(NamedTuple):
    """A number that each update of each repetition has."""

    heading: str
    """Of the column of a table, with the unit."""
    of: Callable[[Repetition, ArmRecord], float]


QUANTITIES = {
    "entropy": Quantity("Entropy [nats]", lambda one, arm: arm.entropy - one.entropy),
    "entropy_resampled": Quantity(
        "Entropy, sampled anew [nats]", lambda one, arm: arm.entropy_resampled - one.entropy
    ),
    "entropy_rollout": Quantity(
        "Entropy, own rollout [nats]", lambda one, arm: arm.entropy_rollout - one.entropy_rollout
    ),
    "tail_mass": Quantity(
        "Tail mass",
        lambda one, arm: nan if arm.tail_mass is None else arm.tail_mass - (one.tail_mass or 0.0),
    ),
    "reward": Quantity("Reward", lambda one, arm: arm.reward - one.reward),
    "gradient_norm": Quantity("Gradient norm", lambda one, arm: arm.gradient_norm),
    "cosine": Quantity("Cosine", lambda one, arm: arm.cosine),
    "kl": Quantity("KL [nats per token]", lambda one, arm: arm.kl),
}
"""Name -> quantity; entropies, tail mass and rewards are changes by the update."""


class Updates(NamedTuple):
    """The updates of an arm, or of a method, at checkpoints of one method or at the base models."""

    at: str
    """Title of the method whose checkpoints these are."""
    name: str
    """Of the arm or of the method that made the updates."""
    repetitions: Mapping[str, Sequence[Repetition]]
    """Base model -> repetitions at its checkpoints."""

    def over_bases(self, value: Callable[[Repetition], float]) -> Interval:
        """Return the mean over base models of the means over repetitions, with Student's interval."""
        means = [float(np.mean([*map(value, own)])) for own in self.repetitions.values()]
        return mean_of_seeds(means)


def updates_of(artefacts: Artefacts, names: Sequence[str]) -> list[Updates]:
    """Return the updates of some arms or methods: for the base models and each method of checkpoints."""
    study, groups = artefacts.study, dict[str, dict[str, list[Repetition]]]()
    for one in study.intervened():
        at = study.title(one.run.method if one.run else "base")
        done = artefacts.intervention(one).numbers.repetitions
        groups.setdefault(at, {}).setdefault(one.size, []).extend(done)
    return [Updates(at, name, own) for at, own in groups.items() for name in names]


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
