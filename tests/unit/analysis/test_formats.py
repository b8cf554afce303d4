"""Tables as Markdown, CSV, LaTeX and in the terminal, from one declaration."""

import csv
import io
import re
import shutil
import subprocess
import unicodedata
from math import nan
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from stapo import exhibits, paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.evidence_tables import evidence_table, write_evidence
from stapo.analysis.formats import csv_text, render, terminal_table
from stapo.analysis.latex import latex
from stapo.analysis.table import UNMEASURED, Column, Estimate, Table, with_interval
from stapo.exhibits import table_names

TABLE = Table(
    columns=[
        Column("Method", lambda row: row[0], text=True),
        Column("Count", lambda row: row[1], ",d"),
        Column("Norm", lambda row: row[2], ".3f"),
        Column("Share [%]", lambda row: row[3]),
    ],
    rows=[
        ("G_R|P", 12345, Estimate(-0.12345678901, -0.25, 0.5), 1.5),
        ("A & B <b>", 3, Estimate(2.0), nan),
    ],
    caption="What is | seen.",
    notes=["p < 0.05"],
)


def written(suffix: str, table: Table = TABLE) -> str:
    return render(table, suffix, ("demo", "token_frequencies"), "A title", "f00d")


def test_markdown_has_a_cell_per_value_and_escapes_text():
    text = written("md")
    assert text.startswith("# demo, A title\n\nWhat is \\| seen.\n")
    assert r"| G\_R\|P | 12,345 | -0.123<br>[-0.250, 0.500] | 1.5 |" in text
    assert "| A &amp; B &lt;b&gt; | 3 | 2.000 | \u2013 |" in text
    assert "\n\np &lt; 0.05\n\n\u2013: not measured.\n\nConfiguration f00d.\n" in text
    assert UNMEASURED not in "".join(
        Table(columns=TABLE.columns, rows=TABLE.rows[:1]).noted().notes
    )


def test_the_csv_has_all_digits_bounds_and_nothing_where_nothing_was_measured():
    rows = list(csv.reader(io.StringIO(written("csv"))))
    assert rows[0] == ["Method", "Count", "Norm", "Norm, low", "Norm, high", "Share [%]"]
    assert rows[1] == ["G_R|P", "12345", "-0.12345679", "-0.25", "0.5", "1.5"]
    assert rows[2] == ["A & B <b>", "3", "2", "", "", ""]


def test_no_text_of_a_csv_is_a_formula_and_numbers_stay():
    formulas = ["=cmd|' /C calc'!A0", "+x", "-x+1", "@sum(1)", "\tx", "=A1"]
    numbers = ["-1.5", "+1.20 [-0.30, +2.10]", "1e-05", "a=b", "", "=", "-"]
    (row,) = csv.reader(io.StringIO(csv_text([[*formulas, *numbers]])))
    assert row == [*(f"'{text}" for text in formulas), *numbers]


def test_intervals_as_text():
    assert with_interval(Estimate(1.234, 1.0, 1.5), ".2f") == "1.23 [1.00, 1.50]"
    assert with_interval(Estimate(1.234), ".2f") == "1.23"
    assert with_interval(Estimate(nan, 1, 2), ".2f") == ""


@pytest.mark.parametrize("width", [80, 40])
def test_no_number_is_cut_in_the_terminal(width):
    columns = [Column("A long heading" * 2, lambda row: row[0], text=True)]
    columns += [Column(f"benchmark-{i}", lambda row: row[1]) for i in range(9)]
    rows = [("A title of words " * 3, Estimate(71.29, marks="†‡")), ("x" * 60, Estimate(100.0))]
    console = Console(file=io.StringIO(), width=width)
    console.print(terminal_table(columns, [rows], Text("[red]")), crop=False)
    text = console.file.getvalue()
    assert (text.count("71.29†‡"), text.count("100.00")) == (9, 9)
    assert "[red]" in text


def test_every_table_of_the_folder_is_declared_and_written(study, finished):
    declared = exhibits.declared("tables")
    assert declared == exhibits.TABLES
    assert [one.order for one in declared.values()] == sorted(o.order for o in declared.values())
    for name in table_names(study):
        files = write_evidence(study, name, finished)
        assert [str(path.relative_to(finished)) for path in files] == [
            paths.TABLE.format(study="demo", table=name, suffix=suffix)
            for suffix in ("md", "tex", "csv")
        ]
        table = evidence_table(Artefacts(study, finished), name)
        assert table.rows
        assert len(list(csv.reader(files[2].open()))) == len(table.rows) + 1


# LaTeX that pdflatex compiles whatever the texts are, and that prints them as they are

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


def test_latex_has_a_label_a_short_caption_and_minus_signs():
    text = written("tex")
    assert r"\label{tab:demo-token-frequencies}" in text
    assert r"\caption[{demo: A title}]{What is" in text
    assert r"G\_R\textbar{}P & 12,345 & $-$0.123 & 1.5 \\" in text
    assert r" &  & {\scriptsize [$-$0.250, 0.500]} &  \\" in text
    assert r"A \& B \textless{}b\textgreater{} & 3 & 2.000 & \textendash{} \\" in text
    assert "Configuration f00d" in text.splitlines()[0]
    assert latex("-1.5, [-2, 3-4] a-1 x -y 1e-06") == "$-$1.5, [$-$2, 3-4] a-1 x -y 1e$-$06"
    assert latex("(-3) --5") == "($-$3) -{}-5"
    assert latex(" a  b ") == r"\ a \ b\ "


def typeset(folder: Path, tables: list[str], preamble: str) -> str:
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
    log = (folder / "main.log").read_text(errors="replace")
    assert "Missing character" not in log
    assert not re.findall(r"Overfull .hbox \(([5-9]|\d\d)\d*\.", log)
    shown = subprocess.run(
        ["pdftotext", "-layout", "main.pdf", "-"], cwd=folder, capture_output=True, check=True
    )
    return shown.stdout.decode()


def squeezed(text: str) -> str:
    """Return text without spaces, and without what some fonts have as rules or characters of their own."""
    letters = unicodedata.normalize("NFD", text)
    return re.sub("[\\s\u0300-\u036f\u00b4\u00a8\u02d9`_^~]", "", letters).replace("\u0131", "i")


@pytest.mark.skipif(
    not (shutil.which("pdflatex") and shutil.which("pdftotext")),
    reason="needs pdflatex (texlive-latex-extra) and pdftotext (poppler-utils)",
)
@pytest.mark.parametrize("encoding", [r"\usepackage[T1]{fontenc}", ""], ids=["t1", "ot1"])
def test_a_pdf_shows_texts_as_they_are(tmp_path, encoding):
    text = Column("Text", lambda row: row, text=True)
    long = Table(
        columns=[
            Column("Token", lambda row: row[0], text=True),
            Column("Context", lambda row: row[1], text=True),
            Column("p", lambda row: row[2], ".4f"),
        ],
        rows=[("-", HOSTILE * 3 + "x" * 300, Estimate(-0.1 * i, -1.0, 0.0)) for i in range(60)],
        caption="Cases.",
    )
    grids = [
        Table(columns=[text], rows=rows, caption=HOSTILE, notes=[HOSTILE])
        for rows in ([*TEXTS], [HOSTILE])
    ]
    shown = typeset(tmp_path, [written("tex", one) for one in (*grids, long)], encoding)
    for expected in TEXTS.values():
        assert squeezed(expected) in squeezed(shown), expected
    assert r"\input{/etc/passwd}" in squeezed(shown)
    for part in ("$x_1^2$", "p<0.05", "|z|", "{y}", '"q"', "`b`", "<b>", "&#%"):
        assert squeezed(part) in squeezed(shown), part
    assert shown.count("Context") > 1  # On each page of the long table.
