"""What single updates with and without silencing changed: numbers, verdict, figures and table.

All differences between arms are paired by repetition: same weights, same rollout, same held-out prompts and seeds.
Their 95 % intervals are those of Student's t over the repetitions. They are about the weights of one checkpoint.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, t

from stapo.analysis.artefacts import Artefacts
from stapo.evaluation.statistics import LEVEL, Interval
from stapo.records.interventions import ARMS, NOTHING, SILENCED, ArmRecord, Repetition
from stapo.study import Checkpoint

Values = NDArray[np.float64]
Verdict = Literal["yes", "no", "cannot be decided"]


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """Something that is measured in each arm of each repetition."""

    title: str
    """With the unit."""
    of: Callable[[Repetition, ArmRecord], float]
    relative: bool = True
    """Whether an arm is shown by its difference from the arm without silencing."""


QUANTITIES: dict[str, Quantity] = {
    "entropy": Quantity(
        title="change of entropy, held-out [nats]", of=lambda one, arm: arm.entropy - one.entropy
    ),
    "entropy_resampled": Quantity(
        title="change of entropy, held-out, resampled [nats]",
        of=lambda one, arm: arm.entropy_resampled - one.entropy,
    ),
    "entropy_rollout": Quantity(
        title="change of entropy, own rollout [nats]",
        of=lambda one, arm: arm.entropy_rollout - one.entropy_rollout,
    ),
    "reward": Quantity(
        title="change of reward, held-out", of=lambda one, arm: arm.reward - one.reward
    ),
    "gradient_norm": Quantity(title="gradient norm", of=lambda one, arm: arm.gradient_norm),
    "cosine": Quantity(
        title="1 - cosine with the gradient without silencing",
        of=lambda one, arm: 1 - arm.cosine,
        relative=False,
    ),
    "kl": Quantity(title="KL(before || after) [nats per token]", of=lambda one, arm: arm.kl),
}
"""Name -> quantity, in the order of figure and table."""


def t_interval(values: Sequence[float]) -> Interval:
    """Return the mean of independent values with its 95 % interval of Student's t; at least two values."""
    found = np.asarray(values, dtype=float)
    error = found.std(ddof=1) / np.sqrt(len(found))
    half = float(t.ppf((1 + LEVEL) / 2, len(found) - 1) * error)
    mean = float(found.mean())
    return Interval(mean, mean - half, mean + half)


def measured(done: Sequence[Repetition], name: str, arm: str) -> Values:
    """Return the (repetitions,) values of a quantity in an arm."""
    of = QUANTITIES[name].of
    return np.array([of(one, one.arms[arm]) for one in done])


def difference(done: Sequence[Repetition], name: str, arm: str) -> Interval:
    """Return a quantity in an arm, minus that of the arm without silencing unless it is relative already."""
    values = measured(done, name, arm)
    if QUANTITIES[name].relative:
        values = values - measured(done, name, NOTHING)
    return t_interval([*values])


# The verdict


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Whether silencing stabilises the entropy at one checkpoint, with the intervals that decide it."""

    checkpoint: Checkpoint
    verdict: Verdict
    against: Mapping[str, Interval]
    """Other arm -> |change of entropy| with S2T minus that of the arm, in nats on held-out prompts."""


@dataclass(frozen=True, kw_only=True)
class CausalEffect:
    """The answer to: does silencing cause stability here?"""

    verdict: Verdict
    reason: str
    """One sentence."""
    effects: Sequence[Effect]


CONTROLS = (NOTHING, "random_candidates", "random_positive")
"""Arms whose entropy must move more than with S2T for a yes."""
RULE = (
    "At a checkpoint, the answer is yes if one update with S2T changes the entropy on held-out prompts less, in "
    "absolute value, than the update without silencing and than both updates with an equally large random set: the "
    "95 % intervals of all three paired differences are below 0. It is no if the interval of one of them is above 0. "
    "Otherwise it cannot be decided. For a study, checkpoints of at least two training seeds must agree."
)


def effect_at(checkpoint: Checkpoint, done: Sequence[Repetition]) -> Effect:
    """Return the effect at one checkpoint by `RULE`."""
    moved = {arm: np.abs(measured(done, "entropy", arm)) for arm in ARMS}
    against = {arm: t_interval([*(moved[SILENCED] - moved[arm])]) for arm in CONTROLS}
    verdict: Verdict = "cannot be decided"
    if all(one.high < 0 for one in against.values()):
        verdict = "yes"
    elif any(one.low > 0 for one in against.values()):
        verdict = "no"
    return Effect(checkpoint=checkpoint, verdict=verdict, against=against)


def causal_effect(artefacts: Artefacts) -> CausalEffect:
    """Return whether silencing causes stability in a study, by `RULE`.

    Raises:
        DamagedFileError: results of interventions are missing or damaged.
    """
    checkpoints = artefacts.study.intervened()
    effects = [
        effect_at(one, artefacts.intervention(one).numbers.repetitions) for one in checkpoints
    ]
    verdicts = {effect.verdict for effect in effects}
    seeds = {one.seed for one in checkpoints if one.seed is not None}
    if not effects:
        verdict, reason = "cannot be decided", "The study makes no interventions."
    elif len(verdicts) > 1:
        verdict, reason = "cannot be decided", "The checkpoints do not agree."
    elif len(seeds) < 2:
        verdict = "cannot be decided"
        reason = f"At its checkpoints the answer is: {[*verdicts][0]}; but they are not of two training seeds."
    else:
        verdict = effects[0].verdict
        reason = f"At all {len(effects)} checkpoints, of {len(seeds)} training seeds, the answer is the same."
    return CausalEffect(verdict=verdict, reason=reason, effects=effects)


# The lemma


def predicted_change(logps: Values, entropies: Values, advantages: Values) -> Values:
    """Return the entropy change of tokens that the lemma predicts, up to a positive factor.

    It is -p(y) [log p(y) - E log p] [A(y) - E A], where E log p is -H. Advantages are centred in each group, so E A
    is 0 over the responses of a prompt; for a single token it is unknown, and 0 is our choice.

    Source: STAPO v4 and v5, section on entropy change.
    """
    logps = np.asarray(logps, dtype=float)
    return -np.exp(logps) * (logps + np.asarray(entropies, dtype=float)) * advantages


def rank_correlation(one: Values, other: Values) -> float:
    """Return Spearman's rank correlation, nan where one of the two is constant."""
    ranks = [rankdata(values) - (len(values) + 1) / 2 for values in (one, other)]
    norms = np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    return float((ranks[0] * ranks[1]).sum() / norms) if norms else float("nan")


def lemma_correlation(artefacts: Artefacts, checkpoint: Checkpoint) -> Interval:
    """Return the rank correlation of predicted and measured entropy change, the mean over the repetitions."""
    tokens = artefacts.intervention(checkpoint).tokens
    found = []
    for _, own in tokens.groupby("repetition"):
        predicted = predicted_change(
            own["logp"].to_numpy(), own["entropy"].to_numpy(), own["advantage"].to_numpy()
        )
        change = (own["entropy_after"].astype(float) - own["entropy"].astype(float)).to_numpy()
        found.append(rank_correlation(predicted, change))
    known = [one for one in found if not np.isnan(one)]
    return t_interval(known) if len(known) > 1 else Interval(*[float("nan")] * 3)
