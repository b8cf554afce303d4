"""The recorded tokens of each method and model, with the classes that figures and tables use.

Classes, of tokens as the token selection saw them (our choice of thresholds):

- low probability: below tau_p, that of the method's selection where it has one, otherwise that of the S2T
  of the study that made the training (`Study.s2t`)
- low entropy: below tau_h, the threshold of S2T in the same mini-batch. A mini-batch without a candidate
  has none; there it is the median of the training's thresholds, and in a training without any the 80th
  percentile of its tokens' entropies.

Candidates (A > 0, low probability) have the class of their kind: those that S2T silences have a low entropy,
those that it retains a high one. So the class "low probability, low entropy, A > 0" is exactly what S2T
silences, or would silence under another method.

With the sign of A, these are quadrants: v4 and v5 of the paper have the four with A > 0, v1 to v3 all eight;
tokens with A = 0 have no gradient and belong to none. Gradient norms are those of the surrogate at the logits
of a token, without the loss's divisor (0 where the ratio is clipped). The learning potential of v1 to v3 is
not computed: its formula is not known here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product

import numpy as np
import pandas as pd

from stapo.core.methods import s2t_arguments
from stapo.suite.analysis.artefacts import ALL, Artefacts, models_of
from stapo.suite.analysis.evidence import estimates
from stapo.suite.analysis.evidence.estimates import Indices, Mask, Sample, sample_of
from stapo.suite.analysis.evidence.updates import predicted_change
from stapo.suite.evaluation.statistics import UNKNOWN, Array, Interval
from stapo.suite.reference import CONFIDENCE, paper
from stapo.suite.study import TrainingRun

PERCENTILE = 0.8
"""Level of the entropies that is tau_h in a training without a candidate: that of v1 to v3."""
NO_SILENCED = "No silenced token was recorded."
ONE_SEED = "One training seed: intervals are about other prompts, not about other trainings."
SILENCED = " (S2T silences)"
QUADRANTS = (
    f"low probability, low entropy{SILENCED}",
    "low probability, high entropy",
    "high probability, low entropy",
    "high probability, high entropy",
)


@dataclass(frozen=True)
class Recorded:
    """The recorded tokens of all trainings of one method and model; arrays are (n,)."""

    model: str
    method: str
    title: str
    s2t: Mapping[str, float | str]
    """Arguments with which S2T silences tokens, or would silence them, as they were recorded."""
    frame: pd.DataFrame
    """The records, with the column `seed`, the training seed."""
    sample: Sample
    tau_h: Array

    @property
    def tau_p(self) -> float:
        """Probability below which a token is rare."""
        return float(self.s2t["tau_p"])

    @property
    def silenced(self) -> Mask:
        """What S2T silences, or would silence under another method."""
        return self.is_kind("silenced")

    @property
    def correct(self) -> Mask:
        """Tokens with A > 0."""
        return self.numbers("advantage") > 0

    @cached_property
    def rare(self) -> Mask:
        """Tokens of low probability."""
        below: Mask = ~self.correct & (self.numbers("probability") < self.tau_p)
        return below | self.silenced | self.is_kind("retained")

    @cached_property
    def sure(self) -> Mask:
        """Tokens of low entropy."""
        below: Mask = self.is_kind("other") & (self.numbers("entropy") < self.tau_h)
        return below | self.silenced

    @cached_property
    def norm(self) -> Array:
        """Norm of the surrogate's gradient at the logits; 0 where clipped or A = 0, nan where unknown."""
        return np.sqrt(self.numbers("gradient_norm_sq"))

    def numbers(self, column: str) -> Array:
        """Return a column as numbers, nan where it is null."""
        return self.frame[column].to_numpy(dtype=float, na_value=np.nan)

    def is_kind(self, kind: str) -> Mask:
        """Return which tokens are of a kind."""
        mask: Mask = (self.frame["kind"] == kind).to_numpy(dtype=bool)
        return mask

    def shuffled(self, mask: Mask) -> Indices:
        """Return the indices of some tokens in a random order, which is always the same."""
        indices: Indices = np.random.default_rng(0).permutation(np.flatnonzero(mask))
        return indices

    def predicted_change(self, advantages: Array) -> Array:
        """Return the change of the entropy that the lemma predicts for each token with an advantage."""
        logps = np.log(np.maximum(self.numbers("probability"), np.finfo(float).tiny))
        return predicted_change(logps, self.numbers("entropy"), advantages)


@dataclass(frozen=True)
class Tokens:
    """Some recorded tokens of one method and model: a row of a table."""

    recording: Recorded
    name: str
    mask: Mask
    whole: Mask
    """Tokens in which they have a share, such as those with the same sign of A."""

    @property
    def model(self) -> str:
        """Name of the base model."""
        return self.recording.model

    @property
    def title(self) -> str:
        """Title of the method."""
        return self.recording.title

    @property
    def sample(self) -> Sample:
        """Of the recording."""
        return self.recording.sample

    @cached_property
    def share(self) -> Interval:
        """Share in the whole."""
        return estimates.share(self.sample, self.mask, self.whole)


@dataclass(frozen=True)
class Quadrant(Tokens):
    """A quadrant of one method and model; its name is one of `QUADRANTS`."""

    advantage: str
    """Sign of A, "> 0" or "< 0"."""

    @cached_property
    def norm(self) -> Interval:
        """Mean norm of the gradient."""
        return estimates.mean(self.sample, self.recording.norm, self.mask)

    @cached_property
    def against(self) -> Interval:
        """Percent by which the norm exceeds that of high probability and entropy; nan for this one."""
        if self.name == QUADRANTS[-1]:
            return UNKNOWN
        last = self.whole & ~self.recording.rare & ~self.recording.sure
        return estimates.relative(self.sample, self.recording.norm, self.mask, last)

    @cached_property
    def gradient_share(self) -> Interval:
        """Share in the sum of squared norms; its interval ends at 1, and none is without a record."""
        squares = np.nan_to_num(np.where(self.whole, self.recording.norm**2, 0.0))
        inside = np.where(self.mask, squares, 0.0)
        fraction = estimates.ratio(self.sample, inside, squares, self.mask)
        return replace(fraction, high=min(fraction.high, 1.0))

    @cached_property
    def entropy_change(self) -> Interval:
        """Mean of the predicted entropy change, with p and H as the token selection saw them."""
        change = self.recording.predicted_change(self.recording.numbers("advantage"))
        return estimates.mean(self.sample, change, self.mask)


def quadrants(recording: Recorded, signs: Sequence[str] = ("> 0",)) -> list[Quadrant]:
    """Return the quadrants of one method and model, in the order of `QUADRANTS` for each sign of A."""
    rows = []
    for sign in signs:
        whole: Mask = recording.numbers("advantage") * (1 if sign == "> 0" else -1) > 0
        for name, (rare, sure) in zip(QUADRANTS, product((True, False), repeat=2), strict=True):
            mask: Mask = whole & (recording.rare == rare) & (recording.sure == sure)
            # S2T silences none with A < 0.
            name = name if sign == "> 0" else name.removesuffix(SILENCED)
            rows.append(Quadrant(recording, name, mask, whole, sign))
    return rows


def paper_note() -> str:
    """Return what the paper prints of the gradient norm of spurious tokens."""
    stated = paper()["quadrants"]
    return (
        f"The paper ({stated['revision']}, {stated['model']} under {stated['under']}) prints "
        f"{stated['spurious_against_high_high']:+.1f} % for the first quadrant against the last "
        f"({CONFIDENCE[stated['confidence']]})."
    )


@lru_cache(maxsize=1)
def recorded(artefacts: Artefacts) -> tuple[Recorded, ...]:
    """Return the recorded tokens of each model and method, in the order of the study."""
    study, recordings = artefacts.study, []
    for model, name in product(study.run.models, study.run.methods):
        method, prompts = study.method(name), study.training_of(name).prompts_per_mini_batch
        runs = (TrainingRun(model, name, seed) for seed in study.run.seeds)
        frames = [artefacts.tokens(run).assign(seed=run.seed) for run in runs]
        # A training that another study made has that study's thresholds; before they were recorded,
        # they were those of v5.
        s2t = frames[0].attrs.get("s2t") or s2t_arguments(method)
        sample, frame = sample_of(frames, prompts), pd.concat(frames, ignore_index=True)
        tau_h = np.concatenate([*map(_thresholds, frames)])
        recordings.append(Recorded(model, name, method.title, s2t, frame, sample, tau_h))
    return tuple(recordings)


def with_pooled(artefacts: Artefacts) -> tuple[Recorded, ...]:
    """Return the same, after the tokens of each method at all base models, if these differ in their seed."""
    recordings, pooled = recorded(artefacts), []
    for name in artefacts.study.run.methods if ALL in models_of(artefacts.study) else ():
        # Base models take the place of trainings.
        models = [recording for recording in recordings if recording.method == name]
        frames = [recording.frame for recording in models]
        sample = sample_of(frames, models[0].sample.prompts_per_step)
        tau_h = np.concatenate([recording.tau_h for recording in models])
        frame = pd.concat(frames, ignore_index=True)
        pooled.append(replace(models[0], model=ALL, frame=frame, sample=sample, tau_h=tau_h))
    return *pooled, *recordings


def _thresholds(frame: pd.DataFrame) -> Array:
    given: Array = frame["entropy_threshold"].to_numpy(dtype=float, na_value=np.nan)
    missing = np.isnan(given)
    if not missing.all():
        _, first = np.unique(frame["step"].to_numpy()[~missing], return_index=True)
        return np.where(missing, np.median(given[~missing][first]), given)
    return np.full(len(given), percentile(frame))


def percentile(frame: pd.DataFrame) -> Array:
    """Return the (1,) smallest entropy up to which `PERCENTILE` of the weight of some tokens lies."""
    ordered = frame.sort_values("entropy", kind="stable")
    reached = ordered["weight"].to_numpy(float).cumsum()
    place = np.searchsorted(reached, PERCENTILE * reached[-1:])
    return ordered["entropy"].to_numpy(float)[place]


def notes_of(recordings: Sequence[Recorded]) -> list[str]:
    """Return the sentences below every table of token records."""
    silent = not any(recording.silenced.any() for recording in recordings)
    alone = any(recording.sample.trainings == 1 for recording in recordings)
    return [thresholds(recordings), *[NO_SILENCED] * silent, *[ONE_SEED] * alone]


def thresholds(recordings: Iterable[Recorded]) -> str:
    """Return with which arguments S2T silences tokens, or would silence them, as a sentence."""
    titles: dict[str, list[str]] = {}
    for recording in recordings:
        text = f"tau_p {recording.s2t['tau_p']:g}, q {recording.s2t['quantile']:g} of "
        text += "the candidates" if recording.s2t["scope"] == "candidates" else "all tokens"
        titles.setdefault(text, []).append(recording.title)
    if len(titles) == 1:
        return f"S2T: {next(iter(titles))}."
    parts = [f"{text} ({', '.join(dict.fromkeys(methods))})" for text, methods in titles.items()]
    return f"S2T: {'; '.join(parts)}."
