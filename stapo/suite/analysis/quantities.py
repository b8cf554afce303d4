"""What claims of the paper are decided by: quantities of metrics, scores and tokens, with intervals."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import ceil, fsum

import numpy as np

from stapo.core.methods import BASELINES, METHODS
from stapo.suite.analysis.against_paper import has_papers_average, is_papers
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.curves import accuracy_label, quantiles_of, values_of
from stapo.suite.analysis.evidence.estimates import Mask, relative, share
from stapo.suite.analysis.evidence.gradients import spurious_at_weights
from stapo.suite.analysis.evidence.recorded import (
    PERCENTILE,
    Recorded,
    percentile,
    quadrants,
    recorded,
)
from stapo.suite.analysis.formats import with_interval
from stapo.suite.analysis.main_table import (
    BOOTSTRAP_SEED,
    accuracies,
    gain_over,
    shown_benchmarks,
)
from stapo.suite.analysis.tables.stability import entropy_of, ratio
from stapo.suite.evaluation import statistics
from stapo.suite.evaluation.statistics import AVERAGE, Array, Interval, interval, ratio_of_seeds
from stapo.suite.exhibits import PAPER_SILENCED
from stapo.suite.reference import paper
from stapo.suite.study import Study, TrainingRun
from stapo.suite.study.study import families

LATE = 0.1
"""Share of the steps that are the end of a training."""
ROUNDING = 1e-5
"""Share of (ratio * A)^2 by which a squared norm may lie outside its bounds: where p is nearly 1, all are
differences of numbers near 1 in single precision (our choice, ten times the rounding error of an entropy)."""
ABOVE = "above that of high probability and high entropy [%]"
DIGITS_AND_SIGNS = frozenset("0123456789$x")


class UnmeasuredError(Exception):
    """A study does not measure a quantity; the message says why."""


@dataclass(frozen=True)
class Measured:
    """One measured number."""

    where: str
    """Model, or what else it was measured at."""
    what: str
    """What was measured, with the unit."""
    estimate: Interval
    form: str = ".2f"

    def __str__(self) -> str:
        """Return it with its interval, such as `STAPO minus JustRL [points]: +1.20 [0.30, 2.10]`."""
        return f"{self.what}: {with_interval(self.estimate, self.form) or 'none'}"


def _need(study: Study, methods: Iterable[str] = (), decodings: Iterable[str] = ()) -> None:
    """Raise unless a study trains some methods and evaluates with some decodings."""
    if missing := [METHODS[name].title for name in methods if name not in study.run.methods]:
        raise UnmeasuredError(f"the study does not train {' and '.join(missing)}")
    for name in decodings:
        if name not in study.run.decodings:
            title = paper()["decodings"][name]
            raise UnmeasuredError(f"the study does not evaluate at {title}")


def _need_papers(study: Study, models: Iterable[str]) -> None:
    """Raise unless a study has some of the paper's models."""
    if missing := [model for model in models if model not in study.run.models]:
        raise UnmeasuredError(f"the study has no {', '.join(missing)}")
    if others := [model for model in models if not is_papers(study, model)]:
        raise UnmeasuredError(f"the model of {', '.join(others)} is not the paper's")


# Entropy and silencing over the steps


def _runs(study: Study, model: str, method: str) -> list[TrainingRun]:
    return [TrainingRun(model, method, seed) for seed in study.run.seeds]


def _entropies(artefacts: Artefacts, model: str, method: str, name: str) -> list[float]:
    runs = _runs(artefacts.study, model, method)
    return [getattr(entropy_of(artefacts, run), name) for run in runs]


def _entropy(artefacts: Artefacts, method: str, which: Sequence[str]) -> Iterator[Measured]:
    """Yield the lowest or highest entropy of a method, as docs/stability.md defines them."""
    _need(artefacts.study, [method])
    for name, model in product(which, artefacts.study.run.models):
        what = f"{name} entropy of {artefacts.study.title(method)} [ratio]"
        # The limit of a collapse is 0.1.
        yield Measured(
            model, what, ratio_of_seeds(_entropies(artefacts, model, method, name)), ".3f"
        )


def spread_against_baselines(artefacts: Artefacts, method: str) -> Iterator[Measured]:
    """Yield the spread of a method's entropy divided by that of each baseline."""
    study = artefacts.study
    _need(study, [method, *BASELINES])
    for model, name in product(study.run.models, BASELINES):
        ours, theirs = (_entropies(artefacts, model, title, "spread") for title in (method, name))
        ratios = [*map(ratio, ours, theirs)]
        what = f"spread of entropy, {study.title(method)} / {study.title(name)}"
        yield Measured(model, what, ratio_of_seeds(ratios))


def entropy_below_80th_percentile(artefacts: Artefacts, method: str) -> Iterator[Measured]:
    """Yield the highest quantile of the entropies up to 80 % divided by the highest one, late in training."""
    study = artefacts.study
    _need(study, [method])
    for model in study.run.models:
        late = _late_quantiles(artefacts, model, method)
        (*_, low), high = _levels(late)
        which = f"{100 * low:g} % / {100 * high:g} % quantile"
        ratios = [ratio(levels[low], levels[high]) for levels in late]
        what = f"entropy at the {which} of {study.title(method)}"
        yield Measured(model, what, ratio_of_seeds(ratios), ".3f")


def quantiles_against_baselines(artefacts: Artefacts, method: str, top: bool) -> Iterator[Measured]:
    """Yield a method's quantiles of the entropies minus those of each baseline, in nats, late in training.

    They are the highest quantile that was recorded, or all up to 80 %.
    """
    study = artefacts.study
    _need(study, [method, *BASELINES])
    for model, name in product(study.run.models, BASELINES):
        ours, theirs = (_late_quantiles(artefacts, model, title) for title in (method, name))
        below, highest = _levels([*ours, *theirs])
        titles = f"{study.title(method)} minus {study.title(name)}"
        for level in [highest] if top else below:
            pairs = zip(ours, theirs, strict=True)
            gap = statistics.mean_of_seeds([a[level] - b[level] for a, b in pairs])
            what = f"entropy at the {100 * level:g} % quantile, {titles} [nats]"
            yield Measured(model, what, gap, "+.3f")


def _levels(quantiles: Iterable[dict[float, float]]) -> tuple[list[float], float]:
    """Return the levels up to 80 % that all trainings recorded, in order, and the highest, which is above."""
    levels = sorted(set.intersection(*map(set, quantiles)))
    below = [level for level in levels if level <= PERCENTILE]
    if not below or levels[-1] <= PERCENTILE:
        raise UnmeasuredError("quantiles below and above 80 % were not recorded")
    return below, levels[-1]


def _late_quantiles(artefacts: Artefacts, model: str, method: str) -> list[dict[float, float]]:
    """Return level -> quantile of the entropies in nats, mean over the last tenth of the steps, by seed."""
    last = ceil(LATE * artefacts.study.training.steps)
    quantiles = [quantiles_of(artefacts, run) for run in _runs(artefacts.study, model, method)]
    return [{at: fsum(line[-last:]) / last for at, line in one.items()} for one in quantiles]


def steps_with_few_silenced(artefacts: Artefacts, method: str) -> Iterator[Measured]:
    """Yield the share of the steps in which less than 0.01 % of the tokens are silenced."""
    study = artefacts.study
    _need(study, [method])
    what = f"steps with less than {PAPER_SILENCED:g} % silenced [%]"
    for model in study.run.models:
        runs = _runs(study, model, method)
        lines = [values_of(artefacts, run, "silenced_fraction") for run in runs]
        shares = [100.0 * float((line < PAPER_SILENCED).mean()) for line in lines]
        yield Measured(model, what, statistics.mean_of_seeds(shares, least=0, most=100), ".1f")


# Accuracy


def _gain(
    artefacts: Artefacts, method: str, decoding: str, models: Sequence[str]
) -> tuple[float, Array]:
    """Return the mean over models of 100 (Avg / the cross-fitted strongest baseline - 1), and resamples."""
    benchmarks = artefacts.study.run.benchmarks
    _need(artefacts.study, [method, *BASELINES], [decoding])
    known, scores = accuracies(artefacts, decoding, tuple(benchmarks)), artefacts.scores(decoding)
    values, draws = [], []
    for model in models:
        strongest, drawn = gain_over(scores, known, (model, method), BASELINES, benchmarks)
        if strongest <= 0:
            raise UnmeasuredError("the strongest baseline is at 0")
        values.append(100 * (known[model, method].values[AVERAGE].value / strongest - 1))
        draws.append(drawn)
    mean: Array = np.mean(draws, axis=0)
    return float(np.mean(values)), mean


def _gain_at(artefacts: Artefacts, method: str, decoding: str, models: Sequence[str]) -> Measured:
    estimate = interval(*_gain(artefacts, method, decoding, models))
    what = f"relative gain of {artefacts.study.title(method)} [%]"
    return Measured(_all(models), what, estimate, "+.2f")


def gain(artefacts: Artefacts, method: str, decoding: str) -> Iterator[Measured]:
    """Yield the relative gain of a method over the strongest baseline, in percent, at each model."""
    for model in artefacts.study.run.models:
        yield _gain_at(artefacts, method, decoding, [model])


def gain_between_decodings(
    artefacts: Artefacts, method: str, decoding: str, other: str
) -> Iterator[Measured]:
    """Yield the relative gain under a decoding minus that under another, means over the study's models."""
    study = artefacts.study
    _need(study, decodings=[decoding, other])
    first, second = (_gain(artefacts, method, name, study.run.models) for name in (decoding, other))
    value = interval(first[0] - second[0], first[1] - second[1])
    here, there = (study.decodings[name].title for name in (decoding, other))
    what = f"relative gain of {study.title(method)} at {here} minus at {there} [%]"
    yield Measured(_all(study.run.models), what, value, "+.2f")


def _all(models: Sequence[str]) -> str:
    return models[0] if len(models) == 1 else f"mean of {', '.join(models)}"


def headline(
    artefacts: Artefacts, method: str, decoding: str, model: str | None = None
) -> Iterator[Measured]:
    """Yield the relative gain over the strongest baseline: mean over the paper's models, or at one."""
    study, models = artefacts.study, [model] if model else [*paper()["models"]]
    _need_papers(study, models)
    if not has_papers_average(study):
        raise UnmeasuredError("the benchmarks are not the paper's")
    yield _gain_at(artefacts, method, decoding, models)


def against_masks(
    artefacts: Artefacts, method: str, others: Sequence[str], decoding: str
) -> Iterator[Measured]:
    """Yield the accuracy of a method minus that of methods with other selections, in points.

    They have the same tau_p and scope where their selections have them, and the same quantile if one has.
    """
    study = artefacts.study
    _need(study, [method], [decoding])
    pairs = [(method, name) for other in others for name in _rivals(study, method, other)]
    yield from _differences(artefacts, pairs, decoding)


def _rivals(study: Study, method: str, selection: str) -> list[str]:
    arguments = study.method(method).arguments_of("selection")

    def equal(name: str, *keys: str) -> bool:
        theirs = study.method(name).arguments_of("selection")
        return all(theirs.get(key, arguments.get(key)) == arguments.get(key) for key in keys)

    rivals = [name for name in study.run.methods if study.method(name).selection == selection]
    rivals = [name for name in rivals if equal(name, "tau_p", "scope")]
    if not rivals:
        title = next(known.title for known in METHODS.values() if known.selection == selection)
        raise UnmeasuredError(f"the study does not train {title} with these thresholds")
    return [name for name in rivals if equal(name, "quantile")] or rivals


def change(
    artefacts: Artefacts, method: str, argument: str, to: str, decoding: str
) -> Iterator[Measured]:
    """Yield the accuracy with other values of an argument minus that of a method, in points.

    The argument is one of its selection; values are the `highest` or `lowest` of the study, or all `others`.
    """
    study = artefacts.study
    _need(study, [method], [decoding])
    current = float(study.method(method).arguments_of("selection")[argument])
    alike = (family.members for family in families(study) if family.argument == argument)
    members = next((group for group in alike if method in group.values()), {})
    ends = {"highest": max(members, default=current), "lowest": min(members, default=current)}
    values = [ends[to]] if to in ends else [*members]
    pairs = [(members[value], method) for value in values if value != current]
    if not pairs:
        which = {"highest": "a higher", "lowest": "a lower", "others": "another"}[to]
        raise UnmeasuredError(f"the study trains no method with {which} {argument}")
    yield from _differences(artefacts, pairs, decoding)


def _differences(
    artefacts: Artefacts, pairs: Sequence[tuple[str, str]], decoding: str
) -> Iterator[Measured]:
    study, benchmarks = artefacts.study, shown_benchmarks(artefacts.study)
    known, scores = accuracies(artefacts, decoding, tuple(benchmarks)), artefacts.scores(decoding)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    unit = f"[points of {accuracy_label(study, benchmarks).removesuffix(' [%]')}]"
    for model, (ours, theirs) in product(study.run.models, pairs):
        what = f"{study.title(ours)} minus {study.title(theirs)} {unit}"
        first, second = (scores.verdicts(model, method, benchmarks) for method in (ours, theirs))
        draws = (known[model, ours].draws[AVERAGE] - known[model, theirs].draws[AVERAGE]) / 100
        gap = statistics.paired_difference(first, second, draws, rng)
        yield Measured(model, what, gap.times(100), "+.2f")


# Token records


def spurious_gradient(
    artefacts: Artefacts, method: str, model: str | None = None, scope: str = "candidates"
) -> Iterator[Measured]:
    """Yield by how many percent the mean gradient norm of spurious tokens exceeds that of high/high ones.

    It is that of one of the paper's models, or of all of the study's; at the logits, and where measured at
    all weights. With scope `all`, tau_h is the 80th percentile of all tokens' entropies, as in v1 to v3.
    """
    study = artefacts.study
    _need(study, [method])
    if model is not None:
        _need_papers(study, [model])
    also = study.interventions.gradient_tokens and scope == "candidates"
    at_logits = " at the logits" if also else ""
    for tokens in recorded(artefacts):
        if tokens.method == method and model in (None, tokens.model):
            spurious, *_, high = (quadrant.mask for quadrant in quadrants(tokens))
            if scope == "all":
                low = tokens.numbers("entropy") < percentile(tokens.frame)
                spurious = tokens.correct & tokens.rare & low
                high = tokens.correct & ~tokens.rare & ~low
            estimate = relative(tokens.sample, tokens.norm, spurious, high)
            what = f"mean gradient norm{at_logits} of spurious tokens of {tokens.title}, {ABOVE}"
            yield Measured(tokens.model, what, estimate, "+.1f")
            if also and (at_weights := spurious_at_weights(artefacts, method, tokens.model)):
                what = f"mean gradient norm at all weights of spurious tokens of {at_weights[0]}, {ABOVE}"
                yield Measured(tokens.model, what, at_weights[1], "+.1f")


def _within_bounds(tokens: Recorded) -> tuple[Mask, Mask]:
    """Return the tokens whose gradient norm is within its bounds, and those with a gradient.

    With w the derivative of the surrogate by the log-probability (ratio * A, 0 where clipped),
    w^2 (1 - 2 p + e^-H) <= |grad_z J|^2 <= w^2 (2 - 2 p - C H^2) (v5); the bounds are as recorded.
    """
    exact, derivative = tokens.numbers("gradient_norm_sq"), tokens.numbers("ratio")
    low, high = tokens.numbers("lower_bound"), tokens.numbers("upper_bound")
    derivative = derivative * tokens.numbers("advantage")
    square = np.where(np.nan_to_num(exact) > 0, derivative, np.nan) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.maximum(low - exact, exact - high) / square
    return distance <= ROUNDING, ~np.isnan(distance)


def _texts(tokens: Recorded, is_it: Callable[[str], bool]) -> Mask:
    return np.array([is_it(text.strip()) for text in tokens.frame["token"]], dtype=bool)


def _share(
    artefacts: Artefacts, method: str, what: str, classes: Callable[[Recorded], tuple[Mask, Mask]]
) -> Iterator[Measured]:
    _need(artefacts.study, [method])
    for tokens in recorded(artefacts):
        if tokens.method != method:
            continue
        part, whole = classes(tokens)
        if not whole.any():
            raise UnmeasuredError(f"{tokens.model}, {tokens.title}: no such token was recorded")
        estimate = share(tokens.sample, part & whole, whole)
        yield Measured(tokens.model, f"{what}, {tokens.title} [%]", estimate.times(100), ".1f")


QUANTITIES: dict[str, Callable[..., Iterator[Measured]]] = {
    "lowest_entropy": partial(_entropy, which=["lowest"]),
    "highest_entropy": partial(_entropy, which=["highest"]),
    "entropy_range": partial(_entropy, which=["lowest", "highest"]),
    "spread_against_baselines": spread_against_baselines,
    "quantiles_against_baselines": quantiles_against_baselines,
    "entropy_below_80th_percentile": entropy_below_80th_percentile,
    "steps_with_few_silenced": steps_with_few_silenced,
    "gain": gain,
    "gain_between_decodings": gain_between_decodings,
    "headline": headline,
    "gain_at_model": headline,
    "against_masks": against_masks,
    "change": change,
    "spurious_gradient": spurious_gradient,
    "within_bounds": partial(_share, what="tokens within the bounds", classes=_within_bounds),
    "silenced_digits": partial(
        _share,
        what='silenced tokens that are digits, "$" or "x"',
        classes=lambda tokens: (
            _texts(tokens, lambda text: bool(text) and {*text} <= DIGITS_AND_SIGNS),
            tokens.silenced,
        ),
    ),
    "retained_words": partial(
        _share,
        what="retained rare tokens that are words",
        # A word has two letters or more, and nothing else.
        classes=lambda tokens: (
            _texts(tokens, lambda text: len(text) > 1 and text.isalpha()),
            tokens.is_kind("retained"),
        ),
    ),
}
"""Name in `claims.yaml` -> function of artefacts, method and the arguments of the claim."""
