"""Comparison of finished studies: which settings differ, and by how much the accuracies do.

Differences of a benchmark are paired by problem where both studies asked the same problems; otherwise
problems are resampled in each study by itself, and permuted between them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stapo.analysis.cells import Cell
from stapo.analysis.notes import SIGNIFICANT
from stapo.analysis.rows import AVERAGE
from stapo.canonical import leaves
from stapo.evaluation.statistics import (
    RESAMPLES,
    Array,
    Interval,
    average_at_n,
    bootstrap_means,
    bootstrap_p,
    flipped_sums,
    holm,
    interval,
    percent_interval,
    permutation_p,
    problem_counts,
    seed_choices,
)
from stapo.study import Study

SEED = 0
NAMED = {"models": "sizes", "decodings": "decodings", "benchmarks": "benchmarks"}
"""Section of a study file -> list in `run` that says which of its entries are used."""


@dataclass(frozen=True)
class Finished:
    """What is compared of one finished study."""

    label: str
    """Letter that stands for its folder."""
    folder: str
    study: Study
    cells: Mapping[tuple[str, str, str, str], Cell]
    """(decoding, size, method or `base`, benchmark) -> responses."""
    problems: Mapping[str, Sequence[str] | None]
    """Benchmark -> digest of each problem's question and answer, in order; None where no responses are."""
    made_with: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What its scores were made with, such as `torch` -> versions."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One accuracy of two studies, in percent, and its difference in points."""

    decoding: str
    size: str
    method: str
    title: str
    benchmark: str
    """A benchmark, or the average over those that both studies have."""
    first: Interval
    second: Interval
    difference: Interval
    """Second minus first."""
    pairing: str
    """`paired`, `unpaired` or, of an average, `partly paired`."""
    p_value: float
    p_holm: float = 1.0


@dataclass(frozen=True, kw_only=True)
class StudyComparison:
    """Comparison of a study with the first one."""

    first: Finished
    second: Finished
    settings: list[tuple[str, Any, Any]]
    """Place and both values of each setting that differs; None where a study does not have it."""
    rows: list[Compared]
    missing: list[str]
    """What only one of the studies has."""
    warnings: list[str]


def compare_finished(first: Finished, second: Finished) -> StudyComparison:
    """Return the comparison of two studies; resamples have a fixed seed."""
    rows = list(_rows(first, second))
    adjusted = holm([row.p_value for row in rows])
    return StudyComparison(
        first=first,
        second=second,
        settings=differing_settings(first.study, second.study),
        rows=[_with_holm(row, p) for row, p in zip(rows, adjusted, strict=True)],
        missing=list(_missing(first, second)),
        warnings=list(_warnings(first, second)),
    )


def _with_holm(row: Compared, adjusted: float) -> Compared:
    return Compared(**{**vars(row), "p_holm": adjusted})


def differing_settings(first: Study, second: Study) -> list[tuple[str, Any, Any]]:
    """Return place and both values of each setting that differs and that one of the studies uses."""
    found = [leaves(_used(study)) for study in (first, second)]
    places = dict.fromkeys([*found[0], *found[1]])
    pairs = [(place, found[0].get(place), found[1].get(place)) for place in places]
    return [(place, one, other) for place, one, other in pairs if one != other]


def _used(study: Study) -> dict[str, Any]:
    """Return the settings of a study without its name and what it does not run; methods are resolved."""
    raw = study.model_dump(mode="json", exclude={"name", "all_methods"})
    for section, listed in NAMED.items():
        used = {*getattr(study.run, listed)}
        used |= {*study.evaluated()} if section == "benchmarks" else set()
        raw[section] = {name: one for name, one in raw[section].items() if name in used}
    methods = {name: vars(study.method(name)) for name in study.run.methods}
    trainings = {name: study.training_of(name).model_dump(mode="json") for name in methods}
    return {
        **{key: value for key, value in raw.items() if key != "training"},
        "methods": {
            name: {**{key: _plain(value) for key, value in found.items()}}
            for name, found in methods.items()
        },
        "training": _shared(trainings),
    }


def _shared(trainings: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return settings of trainings: once where all methods have the same, else by method."""
    first = next(iter(trainings.values()), {})
    return {
        key: value
        if all(one[key] == value for one in trainings.values())
        else {name: one[key] for name, one in trainings.items()}
        for key, value in first.items()
    }


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _rows(first: Finished, second: Finished) -> Iterator[Compared]:
    rng = np.random.default_rng(SEED)
    shared = [b for b in first.study.run.benchmarks if b in second.study.run.benchmarks]
    for decoding, size, method in _row_names(first, second):
        tested = {}
        for name in shared:
            place = (decoding, size, method, name)
            same = _same_order(first.problems.get(name), second.problems.get(name))
            one, other = (found.cells[place].correct for found in (first, second))
            tested[name] = _test(
                one, other if same is None else other[:, same], same is not None, rng
            )
        if len(shared) > 1:
            tested[AVERAGE] = _mean(list(tested.values()))
        for name, found in tested.items():
            yield found.row(decoding, size, method, first.study.title(method), name)


def _row_names(first: Finished, second: Finished) -> Iterator[tuple[str, str, str]]:
    there = {place[:3] for place in second.cells}
    yield from (p for p in dict.fromkeys(place[:3] for place in first.cells) if p in there)


def _same_order(one: Sequence[str] | None, other: Sequence[str] | None) -> list[int] | None:
    """Return where the other study has each problem of one; None if their problems are not the same."""
    if one is None or other is None or len({*one}) < len(one) or sorted(one) != sorted(other):
        return None
    places = {digest: i for i, digest in enumerate(other)}
    return [places[digest] for digest in one]


@dataclass(frozen=True)
class _Tested:
    """A difference with its resamples and its permutations, in shares of 1."""

    values: tuple[float, float]
    draws: tuple[Array, Array]
    permuted: Array | None
    """None where one of the studies has several training seeds: permuting problems leaves those out."""
    pairing: str

    def row(self, decoding: str, size: str, method: str, title: str, benchmark: str) -> Compared:
        """Return the difference in points, with interval and p-value."""
        (a, b), (drawn_a, drawn_b) = self.values, self.draws
        return Compared(
            decoding=decoding,
            size=size,
            method=method,
            title=title,
            benchmark=benchmark,
            first=percent_interval(100 * a, 100 * drawn_a),
            second=percent_interval(100 * b, 100 * drawn_b),
            difference=interval(100 * (b - a), 100 * (drawn_b - drawn_a)),
            pairing=self.pairing,
            p_value=bootstrap_p(drawn_b - drawn_a)
            if self.permuted is None
            else permutation_p(b - a, self.permuted),
        )


def _test(first: Array, second: Array, paired: bool, rng: np.random.Generator) -> _Tested:
    """Return the difference of two cells (S, P, N) of verdicts."""
    counts = problem_counts(first.shape[1], rng)
    others = counts if paired else problem_counts(second.shape[1], rng)
    draws = tuple(
        bootstrap_means(cell, drawn, seed_choices(len(cell), rng))
        for cell, drawn in ((first, counts), (second, others))
    )
    one, other = (cell.mean(axis=(0, 2)) for cell in (first, second))
    permuted = None
    if len(first) == len(second) == 1:
        permuted = (
            flipped_sums(other - one, rng) / len(one) if paired else _exchanged(one, other, rng)
        )
    return _Tested(
        (average_at_n(first), average_at_n(second)),
        (draws[0], draws[1]),
        permuted,
        "paired" if paired else "unpaired",
    )


def _exchanged(one: Array, other: Array, rng: np.random.Generator) -> Array:
    """Return (resamples,) differences of means when problems are exchanged between two studies at random."""
    pooled = np.concatenate([one, other])
    found = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        shuffled = rng.permutation(pooled)
        found[i] = shuffled[len(one) :].mean() - shuffled[: len(one)].mean()
    return found


def _mean(tested: Sequence[_Tested]) -> _Tested:
    """Return the difference of the averages over benchmarks."""
    kinds = {one.pairing for one in tested}
    permuted = [one.permuted for one in tested if one.permuted is not None]
    (first, second), (drawn, others) = (
        [[getattr(one, part)[i] for one in tested] for i in (0, 1)] for part in ("values", "draws")
    )
    return _Tested(
        (float(np.mean(first)), float(np.mean(second))),
        (np.mean(drawn, axis=0), np.mean(others, axis=0)),
        np.mean(permuted, axis=0) if len(permuted) == len(tested) else None,
        kinds.pop() if len(kinds) == 1 else "partly paired",
    )


def _missing(first: Finished, second: Finished) -> Iterator[str]:
    """Yield what only one study has: sizes, methods, decodings, benchmarks, training seeds."""
    for kind in ("sizes", "methods", "decodings", "benchmarks", "seeds"):
        lists = [getattr(found.study.run, kind) for found in (first, second)]
        for found, mine, theirs in ((first, *lists), (second, *reversed(lists))):
            only = [str(name) for name in mine if name not in theirs]
            if only:
                yield f"only in {found.label}: {kind} {', '.join(only)}"


def _warnings(first: Finished, second: Finished) -> Iterator[str]:
    for key in sorted(first.made_with.keys() | second.made_with.keys()):
        one, other = (found.made_with.get(key, frozenset()) for found in (first, second))
        if one != other:
            shown = [", ".join(sorted(values)) or "unknown" for values in (one, other)]
            yield f"made with different {key}: {first.label} {shown[0]}; {second.label} {shown[1]}"
    for name in first.study.run.benchmarks:
        if name not in second.study.run.benchmarks:
            continue
        if None in (first.problems.get(name), second.problems.get(name)):
            yield f"{name}: unpaired, since a folder has no responses that say what its problems are"
        elif _same_order(first.problems[name], second.problems[name]) is None:
            yield f"{name}: unpaired, since the problems are not the same"
    if 1 in (len(first.study.run.seeds), len(second.study.run.seeds)):
        yield "one training seed: differences are between checkpoints, not between methods or settings"


def summary(found: StudyComparison) -> list[str]:
    """Return the result in words."""
    a, b = found.first.label, found.second.label
    if not found.rows:
        return [f"{b} and {a} have no size, method, decoding and benchmark in common."]
    lines = []
    differ = [row for row in found.rows if row.p_holm < SIGNIFICANT]
    equal = sum(
        row.difference.value == row.difference.low == row.difference.high for row in found.rows
    )
    kinds = dict.fromkeys(row.pairing for row in found.rows)
    lines.append(
        f"{b} minus {a}: {len(differ)} of {len(found.rows)} accuracies differ (p < {SIGNIFICANT}, Holm's "
        f"adjustment over all of them; {' and '.join(kinds)})."
    )
    if equal == len(found.rows):
        lines.append("All accuracies are the same.")
    averages = [row for row in differ if row.benchmark == AVERAGE] or differ
    for row in averages:
        d = row.difference
        lines.append(
            f"{row.size} {row.title}, {row.decoding}, {row.benchmark}: {d.value:+.2f} points "
            f"[{d.low:+.2f}, {d.high:+.2f}], p = {row.p_holm:.4f} (Holm)"
        )
    changed = len(found.settings)
    lines.append(f"{changed} setting{'s differ' if changed != 1 else ' differs'}.")
    return lines
