"""The paper-style table of one decoding: rows method within size, columns the benchmarks and Avg."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from stapo import artifacts
from stapo.analysis.cells import Scores, read_scores
from stapo.evaluation.statistics import (
    Array,
    Difference,
    Interval,
    average_at_n,
    holm,
    interval,
    paired_difference,
    resample,
)
from stapo.methods import BASELINES
from stapo.study import Study

AVERAGE = "Avg"
BOOTSTRAP_SEED = 0
TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Headline:
    """The relative gain of STAPO's average over the strongest baseline's, in percent."""

    gains: dict[str, float]
    """By size."""
    baselines: dict[str, str]
    """The strongest baseline of each size."""
    mean: float
    """Over the sizes."""


@dataclass(frozen=True)
class Row:
    """One line of the table; values in percent."""

    size: str
    method: str
    title: str
    cells: dict[str, Interval]
    """By benchmark, and `Avg`."""
    best: frozenset[str]
    """The columns in which no other row of the size is better."""
    seeds: int
    num_tokens: float
    truncated: float
    no_box: float
    failed: float


@dataclass(frozen=True)
class Comparison:
    """STAPO minus a baseline, on the average of one size; in points of percent."""

    size: str
    baseline: str
    difference: Difference
    adjusted_p: float
    questions: float
    """The difference in problems, of all benchmarks together."""


@dataclass(frozen=True)
class MainTable:
    """Everything that is printed of one decoding."""

    study: str
    decoding: str
    benchmarks: dict[str, str]
    """Name to heading."""
    problems: dict[str, int]
    rows: list[Row]
    headline: Headline | None
    headline_interval: Interval | None
    comparisons: list[Comparison]
    notes: list[str]


def headline(averages: Mapping[str, Mapping[str, float]]) -> Headline | None:
    """Return the mean over sizes of 100 (STAPO / best baseline - 1).

    Args:
        averages: size -> method -> average over the benchmarks. The strongest baseline of a size is
            that of the highest average.

    Returns:
        None where a size lacks STAPO or every baseline.

    Source: STAPO's abstract; recomputed from its table it is 7.13 at T=1.0 and 3.71 at T=0.7.
    """
    gains, baselines = {}, {}
    for size, row in averages.items():
        present = [name for name in BASELINES if name in row]
        if "stapo" not in row or not present:
            return None
        baselines[size] = max(present, key=lambda name: row[name])
        gains[size] = 100 * (row["stapo"] / row[baselines[size]] - 1)
    return Headline(gains, baselines, float(np.mean(list(gains.values())))) if gains else None


def main_table(study: Study, decoding: str, scores: Scores) -> MainTable:
    """Compute the table of one decoding; deterministic, the resamples have a fixed seed."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    names = study.run.benchmarks
    draws: dict[tuple[str, str], Array] = {}
    rows: list[Row] = []
    for size in study.run.sizes:
        of_size = []
        for method in ("base", *study.run.methods):
            cells = {b: scores.cells[size, method, b] for b in names}
            by_benchmark = {b: 100 * resample(cell.correct, rng) for b, cell in cells.items()}
            values = {b: 100 * average_at_n(cell.correct) for b, cell in cells.items()}
            average = float(np.mean(list(values.values())))
            draws[size, method] = np.mean(list(by_benchmark.values()), axis=0)
            intervals = {b: interval(values[b], by_benchmark[b]) for b in names}
            intervals[AVERAGE] = interval(average, draws[size, method])
            of_size.append((method, intervals, list(cells.values())))
        for method, intervals, parts in of_size:
            best = frozenset(
                column
                for column in (*names, AVERAGE)
                if _shown(intervals[column])
                == max(_shown(other[column]) for _, other, _ in of_size)
            )
            rows.append(
                Row(
                    size=size,
                    method=method,
                    title="Base" if method == "base" else study.method(method).title,
                    cells=intervals,
                    best=best,
                    seeds=parts[0].correct.shape[0],
                    num_tokens=float(np.mean([part.num_tokens for part in parts])),
                    truncated=100 * float(np.mean([part.truncated_fraction for part in parts])),
                    no_box=100 * float(np.mean([part.no_box_fraction for part in parts])),
                    failed=100 * float(np.mean([part.failed_fraction for part in parts])),
                )
            )
    averages = _averages(rows)
    found = headline(averages)
    return MainTable(
        study=study.name,
        decoding=decoding,
        benchmarks={b: f"{b} avg@{study.benchmarks[b].samples}" for b in names},
        problems={b: scores.cells[study.run.sizes[0], "base", b].correct.shape[1] for b in names},
        rows=rows,
        headline=found,
        headline_interval=_headline_interval(found, draws) if found else None,
        comparisons=_comparisons(study, scores, rng),
        notes=_notes(study),
    )


def _shown(cell: Interval) -> float:
    # Ties as a reader sees them.
    return round(cell.value, 2)


def _averages(rows: list[Row]) -> dict[str, dict[str, float]]:
    averages: dict[str, dict[str, float]] = {}
    for row in rows:
        averages.setdefault(row.size, {})[row.method] = row.cells[AVERAGE].value
    return averages


def _headline_interval(found: Headline, draws: dict[tuple[str, str], Array]) -> Interval:
    """Return the headline's interval; the strongest baseline is chosen anew in every resample."""
    gains = []
    for size in found.gains:
        present = [draws[size, name] for name in BASELINES if (size, name) in draws]
        gains.append(100 * (draws[size, "stapo"] / np.max(present, axis=0) - 1))
    return interval(found.mean, np.mean(gains, axis=0))


def _comparisons(study: Study, scores: Scores, rng: np.random.Generator) -> list[Comparison]:
    names = study.run.benchmarks
    pairs = [
        (size, baseline)
        for size in study.run.sizes
        for baseline in BASELINES
        if "stapo" in study.run.methods and baseline in study.run.methods
    ]
    differences = []
    for size, baseline in pairs:
        ours = [scores.cells[size, "stapo", b].correct for b in names]
        theirs = [scores.cells[size, baseline, b].correct for b in names]
        differences.append(paired_difference(ours, theirs, rng))
    adjusted = holm([difference.p_value for difference in differences])
    problems = {
        size: sum(scores.cells[size, "base", b].correct.shape[1] for b in names)
        for size in study.run.sizes
    }
    return [
        Comparison(size, baseline, difference, p, difference.value * problems[size])
        for (size, baseline), difference, p in zip(pairs, differences, adjusted, strict=True)
    ]


def _notes(study: Study) -> list[str]:
    seeds = len(study.run.seeds)
    notes = [
        "Mean over samples, then problems; 95 % intervals by bootstrap over problems"
        + (" and training seeds." if seeds > 1 else "."),
        "Avg is the plain mean of the benchmarks. Differences are paired by problem; p-values by "
        "sign flips, adjusted by Holm over the baselines and sizes of this table.",
    ]
    if seeds == 1:
        notes.append("1 training seed: no claim about the methods, only about these checkpoints.")
    return notes


def headline_text(table: MainTable) -> str:
    """Return the headline as one sentence."""
    if table.headline is None or table.headline_interval is None:
        return "No headline: STAPO or every baseline is not in this study."
    bounds = table.headline_interval
    titles = {row.method: row.title for row in table.rows}
    sizes = ", ".join(
        f"{size} {gain:+.2f} % over {titles[table.headline.baselines[size]]}"
        for size, gain in table.headline.gains.items()
    )
    return (
        f"Relative gain of STAPO's Avg over the strongest baseline's, mean over sizes: "
        f"{bounds.value:+.2f} % [{bounds.low:+.2f}, {bounds.high:+.2f}] ({sizes})."
    )


def comparison_text(comparison: Comparison) -> str:
    """Return a paired difference as one sentence."""
    d = comparison.difference
    return (
        f"{comparison.size}: STAPO minus {comparison.baseline} {100 * d.value:+.2f} points "
        f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}], p = {comparison.adjusted_p:.4f} (Holm), "
        f"{comparison.questions:+.1f} questions"
    )


def _environment(suffix: str) -> jinja2.Environment:
    latex = suffix == "tex"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        **({"variable_start_string": "<<", "variable_end_string": ">>"} if latex else {}),  # type: ignore[arg-type]
    )
    environment.filters["tex"] = _tex
    environment.filters["md"] = lambda text: str(text).replace("\\", "\\\\").replace("|", "\\|")
    environment.globals.update(headline_text=headline_text, comparison_text=comparison_text)
    return environment


TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "#": r"\#",
    "_": r"\_", "$": r"\$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(TEX.get(character, character) for character in str(text))


def render(table: MainTable, suffix: str) -> str:
    """Return the table as Markdown (`md`), LaTeX (`tex`) or CSV (`csv`)."""
    if suffix == "csv":
        return _csv(table)
    template = _environment(suffix).get_template(f"main.{suffix}.j2")
    return template.render(table=table, average=AVERAGE)


def _csv(table: MainTable) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        ["size", "method", "benchmark", "value", "low", "high", "problems", "samples", "seeds"]
    )
    for row in table.rows:
        for column, cell in row.cells.items():
            problems = sum(table.problems.values()) if column == AVERAGE else table.problems[column]
            samples = "" if column == AVERAGE else table.benchmarks[column].rsplit("@", 1)[1]
            numbers = [f"{x:.6f}" for x in (cell.value, cell.low, cell.high)]
            writer.writerow([row.size, row.method, column, *numbers, problems, samples, row.seeds])
    return stream.getvalue()


def write_tables(study: Study, decoding: str, root: Path = Path()) -> list[Path]:
    """Write the table of one decoding in its three forms.

    Raises:
        StaleScoreError: scores that do not belong to this study as it is now.
    """
    table = main_table(study, decoding, read_scores(study, decoding, root))
    paths = []
    for suffix in ("md", "tex", "csv"):
        path = root / artifacts.MAIN_TABLE.format(
            study=study.name, decoding=decoding, suffix=suffix
        )
        with artifacts.replace_file(path) as stream:
            stream.write(render(table, suffix))
        paths.append(path)
    return paths


def print_table(table: MainTable, console: Console) -> None:
    """Print the table; every name is plain text."""
    samples = sorted({heading.rsplit(" ", 1)[1] for heading in table.benchmarks.values()})
    title = f"{table.study}, {table.decoding}, {', '.join(samples)} in %"
    # Without vertical lines seven columns fit into 80 characters.
    shown = RichTable(title=Text(title), box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("size", "method"):
        shown.add_column(Text(heading), no_wrap=True)
    for heading in (*table.benchmarks, AVERAGE):
        shown.add_column(Text(heading), justify="right", overflow="fold", min_width=6)
    for i, row in enumerate(table.rows):
        cells = [
            Text(f"{cell.value:.2f}", style="bold" if column in row.best else "")
            for column, cell in row.cells.items()
        ]
        shown.add_row(Text(row.size), Text(row.title), *cells)
        if i + 1 < len(table.rows) and table.rows[i + 1].size != row.size:
            shown.add_section()
    console.print(shown)
    console.print(Text(headline_text(table)))
    for comparison in table.comparisons:
        console.print(Text("  " + comparison_text(comparison)))


def show_study(study: Study, root: Path = Path()) -> None:
    """Print the main tables and the paths of tables, figures and report."""
    console = Console()
    for decoding in study.run.decodings:
        print_table(main_table(study, decoding, read_scores(study, decoding, root)), console)
    for note in _notes(study):
        console.print(Text(note), style="dim")
    results = artifacts.RESULTS.format(study=study.name)
    console.print(Text(f"\ntables   {results}/tables/\nfigures  {results}/figures/"))
    console.print(Text(f"report   {artifacts.REPORT.format(study=study.name)}"))
