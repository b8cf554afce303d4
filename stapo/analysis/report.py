"""The report: one self-contained HTML page that shows what was measured."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from stapo import artifacts
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import AVERAGE, MARK, MainTable, main_table
from stapo.analysis.figures import FIGURES
from stapo.analysis.tables import TEMPLATES, comparison_text, headline_text
from stapo.evaluation.grading import grade_all
from stapo.methods import METHODS
from stapo.reference import paper
from stapo.schema import HubModel
from stapo.study import Study, fingerprint

EXAMPLES = 3
"""Problems of which every method's first response is shown."""
MAX_CHARACTERS = 2000


@dataclass(frozen=True)
class Example:
    """One problem and the first response of every checkpoint."""

    benchmark: str
    question: str
    gold: str
    responses: list[tuple[str, str, str]]
    """Checkpoint, verdict, text."""


def write_report(study: Study, root: Path = Path()) -> Path:
    """Write the report of a finished study.

    Raises:
        StaleScoreError: scores that do not belong to this study as it is now.
    """
    scores = {name: read_scores(study, name, root) for name in study.run.decodings}
    tables = [main_table(study, name, scores[name]) for name in study.run.decodings]
    figures = {
        name: _data_address(
            root / artifacts.FIGURE.format(study=study.name, figure=name, suffix="png")
        )
        for name in FIGURES
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(headline_text=headline_text, comparison_text=comparison_text)
    page = environment.get_template("report.html.j2").render(
        study=study,
        tables=tables,
        average=AVERAGE,
        mark=MARK,
        figures={name: (FIGURES[name].label, address) for name, address in figures.items()},
        examples=_examples(study, root),
        against_paper=[_against_paper(study, table) for table in tables],
        methods=[(name, study.method(name)) for name in study.run.methods],
        known_methods=METHODS,
        provenance=json.dumps(next(iter(scores.values())).provenance, indent=1, sort_keys=True),
        fingerprints={
            checkpoint: fingerprint(study.checkpoint_config(checkpoint))
            for checkpoint in study.checkpoints()
        },
    )
    path = root / artifacts.REPORT.format(study=study.name)
    with artifacts.replace_file(path) as stream:
        stream.write(page)
    return path


def _data_address(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()


def _examples(study: Study, root: Path) -> list[Example]:
    """Return the first problem of some benchmarks with every checkpoint's first response."""
    decoding = study.run.decodings[0]
    examples = []
    step = max(1, len(study.run.benchmarks) // EXAMPLES)
    for benchmark in study.run.benchmarks[::step][:EXAMPLES]:
        problems = {}
        for checkpoint in study.checkpoints():
            path = artifacts.COMPLETIONS.format(
                study=study.name, checkpoint=checkpoint, decoding=decoding, benchmark=benchmark
            )
            problems[checkpoint] = artifacts.read_jsonl(root / path)[0]
        first = next(iter(problems.values()))
        texts = [problem["responses"][0] for problem in problems.values()]
        grades = grade_all([(first["gold"], text) for text in texts])
        examples.append(
            Example(
                benchmark,
                first["question"],
                first["gold"],
                [
                    (checkpoint, grade.verdict.replace("_", " "), _visible(text))
                    for checkpoint, grade, text in zip(problems, grades, texts, strict=True)
                ],
            )
        )
    return examples


def _visible(text: str) -> str:
    """Return hostile text for reading: control characters shown, not obeyed; cut where long."""
    shown = "".join(
        character if character.isprintable() or character == "\n" else f"\\u{ord(character):04x}"
        for character in text[:MAX_CHARACTERS]
    )
    return shown + ("…" if len(text) > MAX_CHARACTERS else "")


def _against_paper(study: Study, table: MainTable) -> list[dict[str, Any]]:
    """Return ours, the paper's and the difference for each cell that the paper has."""
    reference = paper()
    rows = []
    for row in table.rows:
        is_hub = isinstance(study.models[row.size], HubModel)
        stated = reference["table"].get(table.decoding, {}).get(row.size, {}).get(row.method)
        if not is_hub or stated is None:
            continue
        columns = dict(zip([*reference["benchmarks"], AVERAGE], stated, strict=True))
        if not set(reference["benchmarks"]) <= set(row.cells):
            columns.pop(AVERAGE)  # An average over other benchmarks is another quantity.
        rows += [
            {
                "size": row.size,
                "title": row.title,
                "column": column,
                "ours": row.cells[column].value,
                "paper": value,
            }
            for column, value in columns.items()
            if column in row.cells
        ]
    return rows
