"""The paper-style table of one decoding in Markdown, LaTeX, CSV and the terminal."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import jinja2
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from stapo import paths
from stapo.analysis.against_paper import AgainstPaper, compare
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import (
    AVERAGE,
    CONTROL,
    WITHOUT,
    Comparison,
    Headline,
    MainTable,
    main_table,
)
from stapo.analysis.notes import MARKS, notes
from stapo.files import replace_file
from stapo.study import Study
from stapo.text import markdown, visible

TEMPLATES = Path(__file__).parent / "templates"


def headline_texts(table: MainTable) -> list[str]:
    """Return the headline of each target as one sentence."""
    if not table.headlines:
        return ["No headline: no method of this study is compared with others."]
    return [_headline_text(table, target, found) for target, found in table.headlines.items()]


def _headline_text(table: MainTable, target: str, found: Headline | None) -> str:
    title = table.titles[target]
    if found is None or found.interval is None:
        return f"No headline of {title}: it has no baseline, or a strongest baseline is at 0."
    bounds = found.interval
    sizes = ", ".join(
        f"{size} {gain:+.2f} % over {table.titles[found.baselines[size]]}"
        for size, gain in found.gains.items()
    )
    return (
        f"Relative gain of {title}'s Avg over the strongest baseline's, mean over sizes: "
        f"{bounds.value:+.2f} % [{bounds.low:+.2f}, {bounds.high:+.2f}] ({sizes})."
    )


def comparison_text(table: MainTable, comparison: Comparison) -> str:
    """Return a paired difference as one sentence."""
    d, without = comparison.difference, comparison.without
    target, baseline = (table.titles[n] for n in (comparison.target, comparison.baseline))
    text = (
        f"{comparison.size}: {target} minus {baseline} {100 * d.value:+.2f} points "
        f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}], p = {comparison.adjusted_p:.4f} (Holm), "
        f"{d.questions:+.1f} questions; detectable {100 * d.detectable:.2f}"
    )
    if without is None:
        return text
    bounds = f"{100 * without.value:+.2f} [{100 * without.low:+.2f}, {100 * without.high:+.2f}]"
    return f"{text}; without AIME24 {bounds}"


def sources(table: MainTable) -> dict[str, str]:
    """Return where each method of a table comes from, and what was changed of it, by title."""
    return {row.title: row.source for row in table.rows if row.source}


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
    environment.filters["tex_marks"] = lambda marks: "".join(TEX_MARKS[one] for one in marks)
    environment.filters["md"] = lambda value: markdown(str(value))
    environment.globals.update(headline_texts=headline_texts, comparison_text=comparison_text)
    return environment


TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "#": r"\#",
    "_": r"\_", "$": r"\$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip
TEX_MARKS = dict(zip(MARKS, (r"\dagger", r"\ddagger", r"\S", r"\P", r"\|"), strict=True))


def _tex(text: str) -> str:
    marks = {mark: f"${sign}$" for mark, sign in TEX_MARKS.items()}
    return "".join({**TEX, **marks}.get(c, c) for c in visible(str(text)))


def render(table: MainTable, suffix: str, against: AgainstPaper | None = None) -> str:
    """Return the table as Markdown (`md`), LaTeX (`tex`) or CSV (`csv`); Markdown also beside the paper's."""
    if suffix == "csv":
        return _csv(table)
    template = _environment(suffix).get_template(f"main.{suffix}.j2")
    return template.render(table=table, sources=sources(table), average=AVERAGE, against=against)


def _csv(table: MainTable) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        [
            "size",
            "method",
            "benchmark",
            "metric",
            "value",
            "low",
            "high",
            "problems",
            "samples",
            "seeds",
            "source",
        ]
    )
    for row in table.rows:
        for column, cell in row.cells.items():
            average = column in table.averages
            problems = sum(n for b, n in table.problems.items() if _counts(b, column))
            samples = "" if average else table.benchmarks[column].rsplit("@", 1)[1]
            numbers = [f"{x:.6f}" for x in (cell.value, cell.low, cell.high)]
            where = [row.size, row.method, column]
            writer.writerow(
                [
                    *where,
                    f"avg@{samples or 'N'}",
                    *numbers,
                    problems,
                    samples,
                    row.seeds,
                    row.source,
                ]
            )
            if average:
                continue
            further = {f"pass@{k}": value for k, value in row.pass_at_k[column].items()}
            further[f"majority@{samples}"] = row.majority[column]
            for metric, value in further.items():
                numbers = [f"{value:.6f}", "", ""]
                writer.writerow(
                    [*where, metric, *numbers, problems, samples, row.seeds, row.source]
                )
    writer.writerows(_verdict_lines(table))
    return stream.getvalue()


def _counts(benchmark: str, column: str) -> bool:
    """Return whether a column of the table is of a benchmark, or an average over it."""
    return column in (benchmark, AVERAGE) or (column == WITHOUT and benchmark != CONTROL)


def _verdict_lines(table: MainTable) -> Iterator[list[str | int]]:
    """Yield the lines of the CSV that set rules and verifier side by side."""
    of_row: dict[tuple[str, str], list[str | int]] = {
        (row.size, row.method): [row.seeds, row.source] for row in table.rows
    }
    for row in table.verdicts:
        of = of_row[row.size, row.method]
        for name, heading in table.benchmarks.items():
            samples = heading.rsplit("@", 1)[1]
            counts = {"flips": row.flips, "judged": row.judged, "cut": row.cut}
            values = {
                f"avg@{samples} by the rules": f"{row.rule[name]:.6f}",
                f"avg@{samples} with the verifier": f"{row.with_verifier[name]:.6f}",
                **{what: str(count[name]) for what, count in counts.items()},
            }
            for metric, value in values.items():
                where = [row.size, row.method, name, metric, value, "", ""]
                yield [*where, table.problems[name], samples, *of]
        averages = {
            "avg@N by the rules": row.rule_average,
            "avg@N with the verifier": row.verifier_average,
        }
        problems = sum(table.problems.values())
        for metric, average in averages.items():
            where = [row.size, row.method, AVERAGE, metric, f"{average:.6f}", "", ""]
            yield [*where, problems, "", *of]


def write_tables(study: Study, decoding: str, root: Path = Path()) -> list[Path]:
    """Write the table of one decoding in its three forms.

    Raises:
        StaleScoreError: scores that do not belong to this study as it is now.
    """
    table = main_table(study, decoding, read_scores(study, decoding, root))
    return write_table(table, compare(study, table), root)


def write_table(
    table: MainTable, against: AgainstPaper | None = None, root: Path = Path()
) -> list[Path]:
    """Write a table in its three forms, in Markdown also beside the paper's."""
    written = []
    for suffix in ("md", "tex", "csv"):
        path = root / paths.MAIN_TABLE.format(
            study=table.study, decoding=table.decoding, suffix=suffix
        )
        with replace_file(path) as stream:
            stream.write(render(table, suffix, against))
        written.append(path)
    return written


def print_table(table: MainTable, console: Console) -> None:
    """Print the table; every name is plain text."""
    samples = sorted({heading.rsplit(" ", 1)[1] for heading in table.benchmarks.values()})
    title = f"{table.study}, {table.decoding}, {', '.join(samples)} in %"
    # Without vertical lines seven columns fit into 80 characters, and titles are folded before numbers.
    shown = RichTable(title=Text(title), box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column(Text("size"), no_wrap=True)
    shown.add_column(Text("method"), overflow="fold", min_width=10)
    for heading in table.benchmarks:
        shown.add_column(Text(heading), justify="right", overflow="fold", min_width=6)
    shown.add_column(Text(AVERAGE), justify="right", no_wrap=True)
    for i, row in enumerate(table.rows):
        cells = [
            Text(
                f"{cell.value:.2f}{row.marks if column == AVERAGE else ''}",
                style="bold" if column in row.best else "",
            )
            for column, cell in row.cells.items()
            if column != WITHOUT
        ]
        shown.add_row(Text(row.size), Text(visible(row.title)), *cells)
        if i + 1 < len(table.rows) and table.rows[i + 1].size != row.size:
            shown.add_section()
    console.print(shown)
    for line in (*_without_texts(table), *headline_texts(table)):
        console.print(Text(visible(line)))
    for comparison in table.comparisons:
        console.print(Text("  " + visible(comparison_text(table, comparison))))


def _without_texts(table: MainTable) -> list[str]:
    """Return the average without AIME24 as a line for each size: another column does not fit."""
    sizes: dict[str, list[str]] = {}
    for row in table.rows:
        if WITHOUT in row.cells:
            shown = f"{row.title} {row.cells[WITHOUT].value:.2f}"
            sizes.setdefault(row.size, []).append(shown)
    return [f"{WITHOUT}, {size}: {', '.join(found)}" for size, found in sizes.items()]


def show_study(study: Study, root: Path = Path()) -> None:
    """Print the main tables and the paths of tables, figures and report."""
    console = Console()
    for decoding in study.run.decodings:
        print_table(main_table(study, decoding, read_scores(study, decoding, root)), console)
    for note in notes(study):
        console.print(Text(note), style="dim")
    results = paths.RESULTS.format(study=study.name)
    console.print(Text(f"\ntables   {results}/tables/\nfigures  {results}/figures/"))
    console.print(Text(f"report   {paths.REPORT.format(study=study.name)}"))
    console.print(Text(f"check    stapo verify {results}"))
