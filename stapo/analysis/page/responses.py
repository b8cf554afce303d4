"""The responses of the report: a bounded choice of every checkpoint's, failures included."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.cells import VERDICT_COLUMNS, read_tables
from stapo.records.responses import read_responses
from stapo.study import Checkpoint
from stapo.text import visible

MAX_BYTES = 2_500_000
"""Approximate size of all responses on the page."""
START, END = 1200, 800
"""Characters that are shown of the beginning and the end of a longer response."""
FEWEST, MOST = 1, 8
"""Limits of the number of responses of each verdict, per cell."""
KINDS = 3
"""Verdicts that a cell usually has; the number per cell follows from it."""


def response_choice(artefacts: Artefacts) -> tuple[list[dict[str, Any]], str]:
    """Return the first responses of each verdict, and the rule of the choice as a sentence.

    They are of each checkpoint, decoding and benchmark of the tables.
    """
    study = artefacts.study
    cells = [
        (decoding, checkpoint, benchmark)
        for decoding in study.run.decodings
        for checkpoint in shown_checkpoints(artefacts, decoding)
        for benchmark in study.run.benchmarks
    ]
    # Four characters per token, and the problem.
    size = 500 + min(START + END, 4 * study.evaluation.max_response_tokens)
    each = max(FEWEST, min(MOST, MAX_BYTES // (len(cells) * KINDS * size)))
    rows = [row for cell in cells for row in _rows(artefacts, *cell, each)]
    number = "response" if each == 1 else f"{each} responses"
    rule = (
        f"Of every checkpoint in the tables, every decoding and every benchmark: the first {number} of each "
        "verdict, in the order of problems and samples. Nothing else was chosen. Of a response longer than "
        f"{START + END} characters, the middle is left out."
    )
    return rows, rule


def shown_checkpoints(artefacts: Artefacts, decoding: str) -> list[Checkpoint]:
    """Return the checkpoints in the tables of a decoding: base models, and one of each training."""
    study = artefacts.study
    chosen = artefacts.scores(decoding).choices
    return [
        *(Checkpoint(size) for size in study.run.sizes),
        *(study.checkpoint(one.size, one.method, one.seed, one.selected) for one in chosen),
    ]


def _rows(
    artefacts: Artefacts, decoding: str, checkpoint: Checkpoint, benchmark: str, each: int
) -> Iterator[dict[str, Any]]:
    """Yield the first responses of each verdict of a cell."""
    study, root, seen = artefacts.study, artefacts.root, Counter[str]()
    tables, _ = read_tables(study, decoding, [(checkpoint, benchmark)], root)
    path = paths.COMPLETIONS.format(
        study=study.name, checkpoint=checkpoint, decoding=decoding, benchmark=benchmark
    )
    problems = {problem.problem: problem for problem in read_responses(root / path)}
    column = VERDICT_COLUMNS[study.evaluation.verdict]
    scores = tables[checkpoint, benchmark].to_pylist()
    for score in sorted(scores, key=lambda one: (one["problem"], one["sample"])):
        problem, sample = problems.get(score["problem"]), score["sample"]
        if problem is None or sample >= len(problem.responses):
            continue
        seen[score["verdict"]] += 1
        if seen[score["verdict"]] > each:
            continue
        yield {
            "size": checkpoint.size,
            "method": study.title(checkpoint.method or "base"),
            "seed": checkpoint.seed,
            "decoding": study.decodings[decoding].title,
            "benchmark": benchmark,
            "problem": score["problem"],
            "sample": sample,
            "verdict": score["verdict"].replace("_", " "),
            "right": bool(score[column]),
            "verifier": score["verifier"].replace("_", " "),
            "tokens": score["num_tokens"],
            "truncated": score["truncated"],
            "question": _shown(problem.question),
            "gold": _shown(problem.gold),
            "answer": _shown(score["answer"] or ""),
            "response": _shown(problem.responses[sample]),
        }


def _shown(text: str) -> str:
    """Return a text with visible escapes, without its middle if it is long."""
    if len(text) > START + END:
        left = len(text) - START - END
        text = f"{text[:START]}\n[… {left} characters …]\n{text[-END:]}"
    return visible(text, keep="\n")
