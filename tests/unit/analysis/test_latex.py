"""LaTeX that pdflatex compiles whatever the texts are, and that prints them as they are."""

import re
import shutil
import subprocess
import unicodedata
from pathlib import Path

import pytest
from synthetic import write_score

from stapo.analysis import formats
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.latex import latex
from stapo.analysis.main_tables import render
from stapo.analysis.table import Column, Estimate, Table
from stapo.study import parse_study

DECODING = "t1.0-p1.0"
HOSTILE = (
    r"""\input{/etc/passwd} $x_1^2$ & # % ~ {y} "q" `b` <b> p < 0.05 |z| -- --- ?` !` 'a' ''b''"""
)
TEXTS = {
    "-1.5 [-2, 3] a-b 2-3 1e-06": "\u22121.5 [\u22122, 3] a-b 2-3 1e\u221206",
    "Caf\u00e9 na\u00efve \u0120x \u2264 \u03c4": "Caf\u00e9 na\u00efve \u0120x \u2264 \u03c4",
    "\u4e2d\u6587 \U0001f600 \u0430": r"\u4e2d\u6587 \U0001f600 \u0430",
    "\u202eabc\x1b[31m\ud800": r"\u202eabc\u001b[31m\ud800",
    "[1] word": "[1] word",
    "*star": "*star",
    r"\end{tabular}\\": r"\end{tabular}\\",
    "100% & _x_ {y} \\boxed{7}": r"100% & _x_ {y} \boxed{7}",
}
"""Text -> what a PDF shows of it."""

needs_pdflatex = pytest.mark.skipif(
    not (shutil.which("pdflatex") and shutil.which("pdftotext")),
    reason="needs pdflatex (texlive-latex-extra) and pdftotext (poppler-utils)",
)


def typeset(folder: Path, tables: list[str], preamble: str = "") -> str:
    """Return the text of the PDF of a document that reads tables by `input`."""
    for i, table in enumerate(tables):
        assert table.isascii()
        (folder / f"t{i}.tex").write_text(table)
    inputs = "\n".join(rf"\input{{t{i}.tex}}" for i in range(len(tables)))
    (folder / "main.tex").write_text(
        r"\documentclass{article}" + preamble + "\n"
        r"\usepackage{adjustbox,array,booktabs,longtable,pdflscape}" + "\n"
        r"\input{glyphtounicode}\pdfgentounicode=1 \begin{document}\listoftables "
        + inputs
        + r"\clearpage\end{document}"
    )
    for _ in range(2):
        done = subprocess.run(
            ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "-no-shell-escape", "main"],
            cwd=folder, capture_output=True, text=True, errors="replace", timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:]
    assert "Missing character" not in (folder / "main.log").read_text(errors="replace")
    shown = subprocess.run(
        ["pdftotext", "-layout", "main.pdf", "-"], cwd=folder, capture_output=True, check=True
    )
    return shown.stdout.decode()


def squeezed(text: str) -> str:
    """Return text without spaces, and without what some fonts have as rules or characters of their own."""
    letters = unicodedata.normalize("NFD", text)
    return re.sub("[\\s\u0300-\u036f\u00b4\u00a8\u02d9`_^~]", "", letters).replace("\u0131", "i")


ENCODINGS = {
    "t1": r"\usepackage[T1]{fontenc}",
    "ot1": "",
}


@needs_pdflatex
@pytest.mark.parametrize("encoding", ["t1", "ot1"])
def test_a_pdf_shows_texts_as_they_are(tmp_path, encoding):
    column = Column("Text", lambda row: row, text=True)
    grids = [Table(columns=[column], rows=list(TEXTS)), Table(columns=[column], rows=[HOSTILE])]
    grids = [
        Table(columns=grid.columns, rows=grid.rows, caption=HOSTILE, notes=[HOSTILE])
        for grid in grids
    ]
    tables = [formats.render(grid, "tex", ("a", "cases"), "Cases", "f") for grid in grids]
    shown = squeezed(typeset(tmp_path, tables, ENCODINGS[encoding]))
    for expected in TEXTS.values():
        assert squeezed(expected) in shown, expected
    assert r"\input{/etc/passwd}" in shown
    for part in ("$x_1^2$", "p<0.05", "|z|", "{y}", '"q"', "`b`", "<b>", "&#%"):
        assert squeezed(part) in shown, part


@needs_pdflatex
def test_every_table_of_a_study_with_hostile_titles_compiles(raw_study, tmp_path):
    raw_study["name"] = "demo"
    raw_study["run"] |= {"decodings": [DECODING], "benchmarks": ["chain-2", "linear-equation"]}
    raw_study["methods"] = {"grpo": {"title": "G_R&P|O <b> \\input{x} \u4e2d\u6587"}}
    study = parse_study(raw_study)
    for checkpoint in study.checkpoints():
        for benchmark in study.run.benchmarks:
            write_score(tmp_path, study, checkpoint, benchmark)
    table = main_table(study, DECODING, read_scores(study, DECODING, tmp_path))
    text = render(table, "tex")
    assert rf"\label{{tab:demo-{DECODING}}}" in text
    assert text.index(r"\caption") < text.index(r"\toprule")
    long = Table(
        columns=[
            Column("Token", lambda row: row[0], text=True),
            Column("Context", lambda row: row[1], text=True),
            Column("p", lambda row: row[2], ".4f"),
        ],
        rows=[("-", HOSTILE * 3 + "x" * 300, Estimate(-0.1 * i, -1.0, 0.0)) for i in range(60)],
        caption="Cases.",
    )
    shown = typeset(
        tmp_path,
        [text, formats.render(long, "tex", ("demo", "cases"), "Cases", "f")],
        ENCODINGS["t1"],
    )
    assert squeezed(r"G_R&P|O <b> \input{x} \u4e2d\u6587") in squeezed(shown)
    assert "demo, T = 1.0, top-p = 1.0: accuracy" in shown
    row = next(row for row in table.rows if row.method == "stapo")
    assert f"{row.cells['Avg'].value:.2f}" in shown
    log = (tmp_path / "main.log").read_text(errors="replace")
    assert not re.findall(r"Overfull .hbox \(([5-9]|\d\d)\d*\.", log)
    assert shown.count("Context") > 1  # On each page of the long table.


def test_numbers_get_a_minus_and_words_keep_their_hyphen():
    assert latex("-1.5, [-2, 3-4] a-1 x -y 1e-06") == "$-$1.5, [$-$2, 3-4] a-1 x -y 1e$-$06"
    assert latex("(-3) --5") == "($-$3) -{}-5"
    assert latex(" a  b ") == r"\ a \ b\ "
