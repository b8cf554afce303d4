"""The main table of one decoding, computed: values, intervals, differences, headlines, notes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

import numpy as np

from stapo.suite.analysis.artefacts import Artefacts, Cell, Scores
from stapo.suite.evaluation import statistics
from stapo.suite.evaluation.statistics import AVERAGE, Accuracies, Array, Difference, Interval
from stapo.suite.jobs import jobs_of
from stapo.suite.study import Study, TrainingRun
from stapo.suite.study.functions import reader_name

SHOWN = "aime24"
BOOTSTRAP_SEED = 0
MANY_SEEDS = 6
"""From here, p-values of resampled seeds are nearly those of the null hypothesis, also far below 5 %."""
Row = tuple[str, str]
"""Model and method of a row."""
Resampled = Mapping[Row, Accuracies]
"""Row -> its accuracies. Resamples contain the same problems for all rows and for all decodings, so that
differences of resamples are paired by problem."""


@dataclass(frozen=True)
class Headline:
    """The relative gain of a method's average over the strongest baseline's, in percent."""

    gains: dict[str, float]
    """By model."""
    baselines: dict[str, str]
    """Model -> strongest baseline."""
    mean: Interval
    """Mean gain over the models; its interval is that of the cross-fitted gain."""
    cross_fitted: float


@dataclass(frozen=True)
class TableRow:
    """One row of every table of a decoding: a method at a model."""

    model: str
    method: str
    title: str
    source: str
    """Source of the method and the study's changes of it; empty for the base model."""
    cells: dict[str, Interval]
    """Benchmark, then Avg -> accuracy in percent."""
    best: frozenset[str]
    """Columns in which no other row of the model is better."""
    responses: dict[str, Cell]


@dataclass(frozen=True)
class BaselineComparison:
    """Difference of Avg between a target and a baseline at one model, in shares of 1."""

    model: str
    """Empty if the two rows are checkpoints, of whatever model."""
    target: str
    baseline: str
    difference: Difference
    adjusted_p: float


@dataclass(frozen=True)
class MainTable:
    """Content of all tables of one decoding."""

    study: Study
    decoding: str
    samples: dict[str, int]
    """Benchmark -> responses per problem."""
    problems: dict[str, int]
    rows: list[TableRow]
    headlines: dict[str, Headline | None]
    comparisons: list[BaselineComparison]
    notes: list[str]
    made_by: str
    """Fingerprint of everything that determines this table."""

    @property
    def titles(self) -> dict[str, str]:
        """Method -> title."""
        return {row.method: row.title for row in self.rows}


@lru_cache(maxsize=16)
def main_table(artefacts: Artefacts, decoding: str) -> MainTable:
    """Return the table of one decoding; resamples have a fixed seed, so that the result is deterministic."""
    study, scores = artefacts.study, artefacts.scores(decoding)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    known = _resampled(study, scores, study.run.benchmarks, rng)
    targets, baselines = study.compared()
    pairs = {
        (model, target, baseline): ((model, target), (model, baseline))
        for model, target, baseline in product(study.run.models, targets, baselines)
        if target != baseline
    }
    if not study.run.methods:
        # Checkpoints from anywhere, each minus every earlier one: a base model comes first.
        pairs = {
            ("", later, earlier): ((later, "base"), (earlier, "base"))
            for earlier, later in combinations(study.run.models, 2)
        }
    return MainTable(
        study=study,
        decoding=decoding,
        samples={b: study.benchmarks[b].samples for b in study.run.benchmarks},
        problems=_problems(study, scores),
        rows=[*_rows(study, scores, known)],
        headlines={t: _headline(study, t, baselines, scores, known) for t in targets},
        comparisons=_comparisons(pairs, study, scores, known, rng),
        notes=[*_notes(study, scores, bool(pairs))],
        made_by=jobs_of(study).job("tables", decoding).fingerprint,
    )


def _resampled(
    study: Study, scores: Scores, averaged: Sequence[str], rng: np.random.Generator
) -> Resampled:
    """Return the accuracies of all rows under one decoding, on all benchmarks and averaged over some."""
    problems = _problems(study, scores)
    counts = {name: statistics.problem_counts(n, rng) for name, n in problems.items()}
    known = {}
    for row in product(study.run.models, ("base", *study.run.methods)):
        cells = {b: scores.cells[*row, b].correct for b in counts}
        known[row] = statistics.accuracies_of(cells, counts, averaged, rng)
    return known


def _problems(study: Study, scores: Scores) -> dict[str, int]:
    first = study.run.models[0]
    return {b: scores.cells[first, "base", b].correct.shape[1] for b in study.run.benchmarks}


def _rows(study: Study, scores: Scores, known: Resampled) -> Iterator[TableRow]:
    for (model, method), estimates in known.items():
        others = [row.values for (other, _), row in known.items() if other == model]
        # Values that are equal as printed are ties.
        best = frozenset(
            column
            for column, cell in estimates.values.items()
            if round(cell.value, 2) == max(round(row[column].value, 2) for row in others)
        )
        source = "" if method == "base" else study.method(method).source
        cells = {b: scores.cells[model, method, b] for b in study.run.benchmarks}
        yield TableRow(model, method, study.title(method), source, estimates.values, best, cells)


def _headline(
    study: Study, target: str, baselines: Sequence[str], scores: Scores, known: Resampled
) -> Headline | None:
    """Return the mean over models of 100 (target / strongest baseline - 1); None without a baseline above 0.

    The strongest baseline of a model is the one with the highest average.
    Source: STAPO's abstract; recomputed from its table it is 7.13 at T=1.0 and 3.71 at T=0.7.
    """
    others = [name for name in baselines if name != target]
    if not others:
        return None
    gains, strongest, crossed, draws = {}, {}, [], []
    for model in study.run.models:
        values = {name: known[model, name].values[AVERAGE].value for name in [target, *others]}
        level, drawn = gain_over(scores, known, (model, target), others, study.run.benchmarks)
        if level <= 0:
            return None
        strongest[model] = max(others, key=lambda name: values[name])
        gains[model] = 100 * (values[target] / values[strongest[model]] - 1)
        crossed.append(100 * (values[target] / level - 1))
        draws.append(drawn)
    mean = statistics.interval(float(np.mean([*gains.values()])), np.mean(draws, axis=0))
    return Headline(gains, strongest, mean, float(np.mean(crossed)))


def gain_over(
    scores: Scores, known: Resampled, row: Row, baselines: Iterable[str], benchmarks: Sequence[str]
) -> tuple[float, Array]:
    """Return `over_strongest` of a row and some baselines of its model."""
    rows = {name: (row[0], name) for name in baselines}
    cells = {name: scores.verdicts(*other, benchmarks) for name, other in rows.items()}
    draws = {name: known[other].draws[AVERAGE] for name, other in rows.items()}
    return statistics.over_strongest(known[row].draws[AVERAGE], cells, draws)


def _comparisons(
    pairs: Mapping[tuple[str, str, str], tuple[Row, Row]],
    study: Study,
    scores: Scores,
    known: Resampled,
    rng: np.random.Generator,
) -> list[BaselineComparison]:
    """Return the first minus the second row of each pair, adjusted by Holm as one family."""
    differences = []
    for rows in pairs.values():
        ours, theirs = (scores.verdicts(*row, study.run.benchmarks) for row in rows)
        first, second = (known[row].draws[AVERAGE] for row in rows)
        gap = (first - second) / 100
        differences.append(statistics.paired_difference(ours, theirs, gap, rng))
    adjusted = statistics.holm([difference.p_value for difference in differences])
    both = zip(pairs, differences, adjusted, strict=True)
    return [BaselineComparison(*pair, difference, p) for pair, difference, p in both]


def shown_benchmarks(study: Study) -> list[str]:
    """Return AIME24, whose accuracy the paper shows in figures, or all benchmarks of a study without it."""
    return [SHOWN] if SHOWN in study.run.benchmarks else [*study.run.benchmarks]


@lru_cache(maxsize=16)
def accuracies(artefacts: Artefacts, decoding: str, averaged: tuple[str, ...]) -> Resampled:
    """Return the accuracies of the main table's rows with the average over some benchmarks."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    return _resampled(artefacts.study, artefacts.scores(decoding), averaged, rng)


def of_trainings(
    artefacts: Artefacts, decoding: str, benchmarks: Sequence[str]
) -> dict[TrainingRun, Interval]:
    """Return the accuracy of each training in percent; intervals are over problems."""
    study, scores = artefacts.study, artefacts.scores(decoding)
    rng, problems = np.random.default_rng(BOOTSTRAP_SEED), _problems(study, scores)
    counts = {b: statistics.problem_counts(problems[b], rng) for b in benchmarks}

    def accuracy(run: TrainingRun) -> Interval:
        place = study.run.seeds.index(run.seed)
        cells = {b: scores.cells[run.model, run.method, b].correct[[place]] for b in benchmarks}
        return statistics.accuracies_of(cells, counts, benchmarks, rng).values[AVERAGE]

    return artefacts.of_runs(accuracy)


def _notes(study: Study, scores: Scores, compares: bool) -> Iterator[str]:
    several = len(study.run.seeds) > 1
    over = "problems and training seeds" if several else "problems"
    yield f"Mean over samples, then problems; 95 % intervals by bootstrap over {over}."
    how = "from the resamples of the intervals" if several else "by sign flips"
    how += ", rough below 5 % with so few seeds" if 1 < len(study.run.seeds) < MANY_SEEDS else ""
    differences = (
        f" Differences are paired by problem; p-values {how}, adjusted by Holm over all "
        "differences of this table, intervals not. Questions are summed over the "
        "benchmarks. Detectable: the smallest difference found with a chance of 80 %, without Holm's "
        "adjustment."
    )
    yield "Avg is the plain mean of the benchmarks." + differences * compares
    if study.full_steps():
        yield "Checkpoint of each training: the last."
    if verifier := study.evaluation.verifier:
        counted = (
            "count" if study.evaluation.verdict == "verifier" else "are not counted here, also"
        )
        words = "{name} of {github} at {revision:.8}".format(**verifier.template)
        yield (
            f"Answers that the rules reject {counted} where {verifier.hub} accepts them; prompt: {words}; of "
            f"one longer than {verifier.max_prompt_tokens} tokens it read the end of the response."
        )
    yield from seed_notes(study)
    if " and " in (engines := scores.provenance["engine"]):
        yield f"Responses by {engines}."
    if shares := [
        f"{study.title(name)} {100 * counts['accepted'] / counts['responses']:.2f} % and "
        f"{100 * counts['rewarded'] / counts['responses']:.2f} %"
        for name, counts in scores.beside_reward.items()
    ]:
        reward = reader_name(study.training.reward)
        yield (
            f"Responses that the grader accepts and the training's reward ({reward}) does not, and the "
            f"reverse: {', '.join(shares)}."
        )
    if scores.overlap:
        shared, sharing = (
            ", ".join(f"{name} {n}" for name, n in scores.overlap[kind].items() if n) or "none"
            for kind in ("shared", "sharing_13_words")
        )
        yield (
            f"Problems that are training prompts: {shared}; "
            f"with 13 words in a row in common with one: {sharing}."
        )


def seed_notes(study: Study) -> list[str]:
    """Return what a single training seed leaves open."""
    note = "1 training seed: no claim about the methods, only about these checkpoints."
    return [note] if len(study.run.seeds) == 1 and study.run.methods else []
