"""What single updates with and without silencing changed: numbers, and the verdict.

All differences between arms are paired by repetition: same weights, same rollout, same held-out prompts and
seeds. Their 95 % intervals are Student's over the repetitions, and are about the weights of one checkpoint.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stapo.analysis.artefacts import Artefacts
from stapo.evaluation.statistics import Interval, mean_of_seeds
from stapo.records.arms import ARMS, NOTHING, SILENCED
from stapo.records.interventions import ArmRecord, Repetition
from stapo.study import Checkpoint, Study

Values = NDArray[Any]
Verdict = Literal["yes", "no", "cannot be decided"]


@dataclass(frozen=True)
class Quantity:
    """A number that each arm of each repetition has."""

    title: str
    unit: str
    heading: str
    """Of the column of the table."""
    of: Callable[[Repetition, ArmRecord], float]


QUANTITIES = {
    "entropy": Quantity(
        "entropy, held-out prompts", "nats", "Entropy [nats]",
        lambda one, arm: arm.entropy - one.entropy,
    ),
    "entropy_resampled": Quantity(
        "entropy, held-out prompts, sampled anew", "nats", "Entropy, sampled anew [nats]",
        lambda one, arm: arm.entropy_resampled - one.entropy,
    ),
    "entropy_rollout": Quantity(
        "entropy, own rollout", "nats", "Entropy, own rollout [nats]",
        lambda one, arm: arm.entropy_rollout - one.entropy_rollout,
    ),
    "tail_mass": Quantity(
        "probability below tau_p, held-out prompts", "", "Tail mass",
        lambda one, arm: (arm.tail_mass or nan) - (one.tail_mass or nan),
    ),
    "reward": Quantity(
        "mean reward, held-out prompts", "", "Reward", lambda one, arm: arm.reward - one.reward
    ),
    "gradient_norm": Quantity(
        "gradient norm", "", "Gradient norm", lambda one, arm: arm.gradient_norm
    ),
    "cosine": Quantity("cosine of gradients", "", "Cosine", lambda one, arm: arm.cosine),
    "kl": Quantity(
        "KL divergence", "nats per token", "KL [nats per token]", lambda one, arm: arm.kl
    ),
}  # fmt: skip
"""Name -> quantity; entropies and rewards are changes by the update."""


def measured(done: Sequence[Repetition], name: str, arm: str) -> Values:
    """Return the (repetitions,) values of a quantity in an arm."""
    of = QUANTITIES[name].of
    return np.array([of(one, one.arms[arm]) for one in done])


def difference(done: Sequence[Repetition], name: str, arm: str) -> Interval:
    """Return a quantity in an arm minus that without silencing, the mean over the repetitions."""
    return mean_of_seeds([*map(float, measured(done, name, arm) - measured(done, name, NOTHING))])


def quantities_of(done: Sequence[Repetition]) -> list[str]:
    """Return the quantities that were measured."""
    without = {"tail_mass"} if done[0].tail_mass is None else set()
    return [name for name in QUANTITIES if name not in without]


def over_bases(
    artefacts: Artefacts, name: str, arm: str, reference: str, method: str | None
) -> Interval:
    """Return a quantity in an arm minus that in another, the mean over base models with Student's interval.

    Args:
        artefacts: those of the study.
        name: a key of `QUANTITIES`.
        arm: the arm.
        reference: the other arm.
        method: which checkpoints: those of a method, or the base models themselves for None.
    """
    by_base: dict[str, list[float]] = {}
    for one in artefacts.study.intervened():
        if (one.run.method if one.run else None) == method:
            done = artefacts.intervention(one).numbers.repetitions
            moved = measured(done, name, arm) - measured(done, name, reference)
            by_base.setdefault(one.size, []).append(float(moved.mean()))
    return mean_of_seeds([float(np.mean(own)) for own in by_base.values()])


def title_of(study: Study, checkpoint: Checkpoint) -> str:
    """Return a checkpoint as people say it."""
    run = checkpoint.run
    if run is None:
        return f"{checkpoint.size}, {study.title('base')}"
    step = "" if checkpoint.step is None else f", step {checkpoint.step}"
    return f"{run.size}, {study.title(run.method)}, seed {run.seed}{step}"


def arm_title(study: Study, arm: str) -> str:
    """Return the title of an arm; that of S2T names the method with its arguments."""
    return study.title(study.interventions.method) if arm == SILENCED else ARMS[arm]


def caption_of(study: Study) -> str:
    """Return what the figure and the table of the interventions show."""
    number = study.interventions.repetitions
    return (
        f"One update of a checkpoint from the same weights and the same rollout, in {number} repetitions: "
        "arms that silence equally many tokens, minus the update in which nothing is silenced. Entropy and "
        "reward are changes by the update. 95 % intervals over the repetitions (Student's t)."
    )


# The verdict


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Whether silencing stabilises the entropy at one checkpoint, with the intervals that decide it."""

    checkpoint: Checkpoint
    verdict: Verdict
    against: Mapping[str, Interval]
    """Control -> |change of entropy| with S2T minus that of the control, held-out prompts, in nats."""


class CausalEffect(NamedTuple):
    """The answer to: does silencing cause stability here?"""

    verdict: Verdict
    reason: str
    effects: Sequence[Effect]


CONTROLS = (NOTHING, "random_candidates", "random_positive")
"""Arms with which S2T is compared."""
RULE = (
    "At a checkpoint the answer is yes if one update with S2T changes the entropy on held-out prompts less, "
    "in absolute value, than the update without silencing and than both updates with an equally large random "
    "set: the 95 % intervals of all three paired differences lie below 0. It is no if one of them lies above "
    "0. Otherwise it cannot be decided. For a study, checkpoints of at least two training seeds must agree."
)


def effect_at(checkpoint: Checkpoint, done: Sequence[Repetition]) -> Effect:
    """Return the effect at one checkpoint by `RULE`."""
    moved = {arm: np.abs(measured(done, "entropy", arm)) for arm in (SILENCED, *CONTROLS)}
    against = {arm: mean_of_seeds([*map(float, moved[SILENCED] - moved[arm])]) for arm in CONTROLS}
    verdict: Verdict = "cannot be decided"
    if all(one.high < 0 for one in against.values()):
        verdict = "yes"
    elif any(one.low > 0 for one in against.values()):
        verdict = "no"
    return Effect(checkpoint=checkpoint, verdict=verdict, against=against)


def causal_effect(artefacts: Artefacts) -> CausalEffect:
    """Return whether silencing causes stability in a study, by `RULE`."""
    checkpoints = artefacts.study.intervened()
    effects = [
        effect_at(one, artefacts.intervention(one).numbers.repetitions) for one in checkpoints
    ]
    seeds = {one.seed for one in checkpoints if one.seed is not None}
    found, undecided = {effect.verdict for effect in effects}, "cannot be decided"
    if not effects:
        reason = "The study makes no interventions."
    elif len(found) > 1:
        reason = "The checkpoints do not agree."
    elif found == {undecided}:
        reason = "The intervals leave it open at every checkpoint."
    elif len(seeds) < 2:
        reason = (
            f"At the checkpoints that were examined the answer is {effects[0].verdict}, but they are not of "
            "two training seeds."
        )
    else:
        where = f"{len(effects)} checkpoints of {len(seeds)} training seeds"
        return CausalEffect(effects[0].verdict, f"The answer is the same at {where}.", effects)
    return CausalEffect("cannot be decided", reason, effects)


# The lemma


def predicted_change(logps: Values, entropies: Values, advantages: Values) -> Values:
    """Return the entropy change of tokens that the lemma predicts, up to a positive factor.

    It is -p(y) [log p(y) - E log p] [A(y) - E A], where E log p is -H. The advantages of a group have mean 0;
    E A over the vocabulary at a single token is unknown, and 0 is our choice.

    Source: STAPO v4 and v5, lemma on the entropy change of a token.
    """
    logps = np.asarray(logps, dtype=float)
    predicted: Values = -np.exp(logps) * (logps + np.asarray(entropies, dtype=float)) * advantages
    return predicted


def ranks_of(values: Values) -> Values:
    """Return the ranks from 1, equal values sharing the mean of theirs."""
    ranks: Values = pd.Series(values).rank().to_numpy()
    return ranks


def rank_correlation(one: Values, other: Values) -> float:
    """Return Spearman's rank correlation, nan where one of the two is constant."""
    if len({*one}) == 1 or len({*other}) == 1:
        return nan
    return float(np.corrcoef(ranks_of(one), ranks_of(other))[0, 1])


def changes(artefacts: Artefacts, checkpoint: Checkpoint) -> list[tuple[Values, Values]]:
    """Return predicted and measured entropy change of the tokens of each repetition."""
    found = []
    for _, own in artefacts.intervention(checkpoint).tokens.groupby("repetition"):
        logps, entropies, after, advantages = (
            own[name].to_numpy(float) for name in ("logp", "entropy", "entropy_after", "advantage")
        )
        found.append((predicted_change(logps, entropies, advantages), after - entropies))
    return found


def lemma_correlation(artefacts: Artefacts, checkpoint: Checkpoint) -> Interval:
    """Return the rank correlation of predicted and measured change, the mean over the repetitions."""
    return _over_repetitions([rank_correlation(*pair) for pair in changes(artefacts, checkpoint)])


def lemma_sizes(artefacts: Artefacts, checkpoint: Checkpoint) -> Interval:
    """Return the rank correlation of the absolute values of predicted and measured change."""
    pairs = changes(artefacts, checkpoint)
    return _over_repetitions([rank_correlation(*map(np.abs, pair)) for pair in pairs])


def lemma_signs(artefacts: Artefacts, checkpoint: Checkpoint) -> Interval:
    """Return the share of tokens whose entropy rises or falls as predicted, in percent."""
    pairs = changes(artefacts, checkpoint)
    return _over_repetitions([100 * float(((x > 0) == (y > 0)).mean()) for x, y in pairs])


def covariance_signs(artefacts: Artefacts, checkpoint: Checkpoint) -> tuple[int, int]:
    """Return in how many repetitions -Cov(log p, p A) has the sign of the mean change, and their number.

    The covariance, and the mean of the entropy change, are over the tokens of a rollout.

    Source: arXiv 2505.22617, for a softmax policy; that it is the covariance form of STAPO v1 to v3 is our
    reading.
    """
    right = total = 0
    for _, own in artefacts.intervention(checkpoint).tokens.groupby("repetition"):
        logps, entropies, after, advantages = (
            own[name].to_numpy(float) for name in ("logp", "entropy", "entropy_after", "advantage")
        )
        predicted = -float(np.cov(logps, np.exp(logps) * advantages)[0, 1])
        right += (predicted > 0) == (float((after - entropies).mean()) > 0)
        total += 1
    return right, total


def _over_repetitions(found: Sequence[float]) -> Interval:
    known = [one for one in found if not isnan(one)]
    return mean_of_seeds(known) if known else Interval(nan, nan, nan)
