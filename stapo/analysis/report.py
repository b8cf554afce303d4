"""The report: one self-contained HTML page with all results."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from stapo import paths
from stapo.analysis.against_paper import compare
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.formats import template
from stapo.analysis.paper_audit import (
    audit_headlines,
    audit_rows,
    audit_text,
    claim_lines,
    headline_line,
    independent_lines,
    note_lines,
)
from stapo.evaluation.grading import grade_all
from stapo.exhibits import FIGURES
from stapo.files import AGAIN, DamagedFileError, replace_file
from stapo.records.responses import read_responses
from stapo.study import Study, identity
from stapo.text import shorten

EXAMPLES = 3
"""Number of example problems, each shown with the first response of every checkpoint."""
MAX_CHARACTERS = 2000
PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"


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
        StaleScoreError: scores do not belong to this study in its current state.
        DamagedFileError: responses or a figure are truncated or corrupt.
    """
    page = render_report(study, root)
    path = root / paths.REPORT.format(study=study.name)
    with replace_file(path) as stream:
        stream.write(page)
    return path


def render_report(study: Study, root: Path = Path()) -> str:
    """Return the page; equal results give equal bytes.

    Raises:
        StaleScoreError: scores do not belong to this study in its current state.
    """
    scores = {name: read_scores(study, name, root) for name in study.run.decodings}
    tables = [main_table(study, name, scores[name]) for name in study.run.decodings]
    figures = {
        name: _data_address(root / paths.FIGURE.format(study=study.name, figure=name, suffix="png"))
        for name in paths.figure_names(study)
    }
    return template("report.html.j2").render(
        study=study,
        tables=tables,
        shared_notes=[n for n in tables[0].notes if all(n in table.notes for table in tables)],
        figures={name: (FIGURES[name].title, address) for name, address in figures.items()},
        examples=_examples(study, root),
        against_paper=[compare(study, table) for table in tables],
        audit=audit_rows(),
        audit_text=audit_text(),
        said={
            "Headlines": [headline_line(found) for found in audit_headlines()],
            "Ablations and sensitivities": claim_lines(),
            "Worth knowing": note_lines(),
            "Trained by others": independent_lines(),
        },
        methods=[(name, study.method(name)) for name in study.run.methods],
        made_by=identity.report_fingerprint(study),
        provenance=json.dumps(next(iter(scores.values())).provenance, indent=1, sort_keys=True),
        fingerprints={
            str(checkpoint): identity.checkpoint_fingerprint(study, checkpoint)
            for checkpoint in filter(study.is_full, study.checkpoints())
        },
    )


def _data_address(path: Path) -> str:
    image = path.read_bytes()
    if not (image.startswith(PNG_START) and image.endswith(PNG_END)):
        raise DamagedFileError(f"{path}: truncated or corrupt, no PNG; {AGAIN}")
    return "data:image/png;base64," + base64.b64encode(image).decode()


def _examples(study: Study, root: Path) -> list[Example]:
    """Return the first problem of some benchmarks, with responses of the fully evaluated checkpoints."""
    decoding = study.run.decodings[0]
    examples = []
    step = max(1, len(study.run.benchmarks) // EXAMPLES)
    for benchmark in study.run.benchmarks[::step][:EXAMPLES]:
        problems = {}
        for checkpoint in filter(study.is_full, study.checkpoints()):
            path = paths.COMPLETIONS.format(
                study=study.name, checkpoint=checkpoint, decoding=decoding, benchmark=benchmark
            )
            problems[str(checkpoint)] = read_responses(root / path)[0]
        first = next(iter(problems.values()))
        texts = [problem.responses[0] for problem in problems.values()]
        grades = grade_all([(first.gold, text) for text in texts])
        examples.append(
            Example(
                benchmark,
                first.question,
                first.gold,
                [
                    (checkpoint, grade.verdict.replace("_", " "), shorten(text, MAX_CHARACTERS))
                    for checkpoint, grade, text in zip(problems, grades, texts, strict=True)
                ],
            )
        )
    return examples
