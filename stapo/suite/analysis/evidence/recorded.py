"""The recorded tokens of each method and size, with the classes that figures and tables use.

Classes, of tokens as the token selection saw them (our choice of thresholds):

- low probability: below tau_p, that of the method's selection where it has one, otherwise that of the S2T
  of the study that made the training (`Study.s2t`)
- low entropy: below tau_h, the threshold of S2T in the same mini-batch. A mini-batch without a candidate
  has none; there it is the median of the training's thresholds, and in a training without any the 80th
  percentile of its tokens' entropies.

Candidates (A > 0, low probability) have the class of their kind: those that S2T silences have a low entropy,
those that it retains a high one. So the class "low probability, low entropy, A > 0" is exactly what S2T
silences, or would silence under another method.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd

from stapo.core.methods import s2t_arguments
from stapo.suite.analysis.artefacts import ALL, Artefacts, sizes_of
from stapo.suite.analysis.evidence.estimates import Array, Indices, Mask, Sample, sample_of
from stapo.suite.analysis.interventions import predicted_change
from stapo.suite.study import TrainingRun

PERCENTILE = 0.8
"""Level of the entropies that is tau_h in a training without a candidate: that of v1 to v3."""
NO_SILENCED = "No silenced token was recorded."
ONE_SEED = "One training seed: intervals are about other prompts, not about other trainings."


@dataclass(frozen=True)
class Recorded:
    """The recorded tokens of all trainings of one method and size; arrays are (n,)."""

    size: str
    method: str
    title: str
    """Title of the method."""
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
        below = ~self.correct & (self.numbers("probability") < self.tau_p)
        rare: Mask = self.silenced | self.is_kind("retained") | below
        return rare

    @cached_property
    def sure(self) -> Mask:
        """Tokens of low entropy."""
        below = self.is_kind("other") & (self.numbers("entropy") < self.tau_h)
        sure: Mask = self.silenced | below
        return sure

    @cached_property
    def norm(self) -> Array:
        """Norm of the surrogate's gradient at the logits; 0 where clipped or A = 0, nan where unknown."""
        return np.sqrt(self.numbers("gradient_norm_sq"))

    @property
    def measured(self) -> Mask:
        """Tokens whose gradient norm is known."""
        return ~np.isnan(self.norm)

    @cached_property
    def known_norm(self) -> Array:
        """The norm, 0 where unknown."""
        return np.where(self.measured, self.norm, 0.0)

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
    """Some recorded tokens of one method and size: a row of a table."""

    recording: Recorded
    name: str
    mask: Mask
    """(n,)"""

    @property
    def size(self) -> str:
        """Size of the models."""
        return self.recording.size

    @property
    def title(self) -> str:
        """Title of the method."""
        return self.recording.title


@lru_cache(maxsize=1)
def recorded(artefacts: Artefacts) -> tuple[Recorded, ...]:
    """Return the recorded tokens of each size and method, in the order of the study."""
    study, recordings = artefacts.study, []
    tokens = artefacts.of_runs(artefacts.tokens)
    for size in study.run.sizes:
        for name in study.run.methods:
            method, prompts = study.method(name), study.training_of(name).prompts_per_mini_batch
            runs = (TrainingRun(size, name, seed) for seed in study.run.seeds)
            frames = [tokens[run].assign(seed=run.seed) for run in runs]
            # A training that another study made has that study's thresholds; before they were recorded,
            # they were those of v5.
            s2t = frames[0].attrs.get("s2t") or s2t_arguments(replace(method, s2t={}))
            recordings.append(
                Recorded(
                    size=size,
                    method=name,
                    title=method.title,
                    s2t=s2t,
                    frame=pd.concat(frames, ignore_index=True),
                    sample=sample_of(frames, prompts),
                    tau_h=np.concatenate([_thresholds(frame) for frame in frames]),
                )
            )
    return tuple(recordings)


def with_pooled(artefacts: Artefacts) -> tuple[Recorded, ...]:
    """Return the same, after the tokens of each method at all base models, if these differ in their seed."""
    recordings = recorded(artefacts)
    if ALL not in sizes_of(artefacts.study):
        return recordings
    methods = artefacts.study.run.methods
    return *(
        _pooled([recording for recording in recordings if recording.method == name])
        for name in methods
    ), *recordings


def _pooled(recordings: Sequence[Recorded]) -> Recorded:
    """Return the recorded tokens of a method at all base models, which take the place of trainings."""
    frames = [recording.frame for recording in recordings]
    return replace(
        recordings[0],
        size=ALL,
        frame=pd.concat(frames, ignore_index=True),
        sample=sample_of(frames, recordings[0].sample.prompts_per_step),
        tau_h=np.concatenate([recording.tau_h for recording in recordings]),
    )


def _thresholds(frame: pd.DataFrame) -> Array:
    """Return tau_h for each token of a training."""
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
    quantile: Array = ordered["entropy"].to_numpy(float)[
        np.searchsorted(reached, PERCENTILE * reached[-1:])
    ]
    return quantile


def notes_of(recordings: Iterable[Recorded]) -> list[str]:
    """Return the sentences below every table of token records."""
    recordings = list(recordings)
    notes = [thresholds(recordings)]
    if not any(recording.silenced.any() for recording in recordings):
        notes.append(NO_SILENCED)
    if any(recording.sample.trainings == 1 for recording in recordings):
        notes.append(ONE_SEED)
    return notes


def thresholds(recordings: Iterable[Recorded]) -> str:
    """Return with which arguments S2T silences tokens, or would silence them, as a sentence."""
    titles: dict[str, list[str]] = {}
    for recording in recordings:
        text = f"tau_p {recording.s2t['tau_p']:g}, q {recording.s2t['quantile']:g} of "
        text += "the candidates" if recording.s2t["scope"] == "candidates" else "all tokens"
        titles.setdefault(text, []).append(recording.title)
    if len(titles) == 1:
        return f"S2T: {next(iter(titles))}."
    parts = (f"{text} ({', '.join(dict.fromkeys(methods))})" for text, methods in titles.items())
    return f"S2T: {'; '.join(parts)}."
