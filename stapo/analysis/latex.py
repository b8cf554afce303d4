r"""Text and tables as LaTeX for pdflatex, whatever the font encoding of the document.

What is written is ASCII. A character that pdflatex cannot typeset is shown by its escape, such as `\u4e2d`.
"""

import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from stapo.analysis.notes import MARKS
from stapo.analysis.table import SIZE, Column, Estimate
from stapo.text import escape, visible

TEX_MARKS = dict(zip(MARKS, (r"\dagger", r"\ddagger", r"\S", r"\P", r"\|"), strict=True))
CHARACTERS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "#": r"\#",
    "_": r"\_", "$": r"\$", "~": r"\texttt{\char126}", "^": r"\texttt{\char94}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\texttt{\char34}",
    "`": r"\textasciigrave{}", "\u2423": r"\textvisiblespace{}", "\u2026": r"\dots{}",
    "\u2013": r"\textendash{}", "\u2014": r"\textemdash{}", "\u2018": r"\textquoteleft{}",
    "\u2019": r"\textquoteright{}", "\u201c": r"\textquotedblleft{}", "\u201d": r"\textquotedblright{}",
    "\u00a0": "~", "\u00df": r"\ss{}", "\u00e6": r"\ae{}", "\u00c6": r"\AE{}", "\u0153": r"\oe{}",
    "\u0152": r"\OE{}", "\u00f8": r"\o{}", "\u00d8": r"\O{}", "\u0142": r"\l{}", "\u0141": r"\L{}",
    "\u0131": r"\i{}", "\u00a3": r"\pounds{}", "\u00a9": r"\copyright{}",
    **{sign: f"${command}$" for sign, command in TEX_MARKS.items()},
    **{sign: f"${command}$" for sign, command in {
        "\u2212": "-", "\u00b1": r"\pm", "\u00d7": r"\times", "\u00b7": r"\cdot", "\u00f7": r"\div",
        "\u2264": r"\leq", "\u2265": r"\geq", "\u2260": r"\neq", "\u2248": r"\approx", "\u2261": r"\equiv",
        "\u2192": r"\rightarrow", "\u2190": r"\leftarrow", "\u21d2": r"\Rightarrow", "\u221e": r"\infty",
        "\u21b5": r"\hookleftarrow", "\u21e5": r"\mapsto", "\u27e6": r"[\![", "\u27e7": r"]\!]",
        "\u221a": r"\surd", "\u2211": r"\Sigma", "\u2208": r"\in",
        "\u00b0": r"^{\circ}", "\u00b2": "^{2}", "\u00b3": "^{3}", "\u03c0": r"\pi", "\u03b1": r"\alpha",
        "\u03b2": r"\beta", "\u03b3": r"\gamma", "\u03b4": r"\delta", "\u03b5": r"\varepsilon",
        "\u03b8": r"\theta", "\u03bb": r"\lambda", "\u03bc": r"\mu", "\u00b5": r"\mu", "\u03c1": r"\rho",
        "\u03c3": r"\sigma", "\u03c4": r"\tau", "\u03c6": r"\varphi", "\u03c9": r"\omega",
        "\u0394": r"\Delta", "\u03a3": r"\Sigma", "\u03a9": r"\Omega", "\u2225": r"\|",
    }.items()},
}  # fmt: skip
ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u",
    "\u0307": ".", "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}  # fmt: skip
"""Combining character -> name of the accent; an ogonek is missing because OT1 has none."""
DOTLESS = {"i": r"\i", "j": r"\j"}
MINUS = re.compile(r"(?<![\w.)\]}-])-(?=\d)|(?<=\de)-(?=\d)")
"""The minus of a number or of its exponent; other hyphens stay hyphens."""
PIECE = 12
"""Characters of a paragraph without a space after which a line may be broken."""
LONG, SHORT = 32, 12
"""Characters of a text that is set as a paragraph: in any table, and in one that is too wide otherwise."""
HEADING = 16
"""Characters in a line of a heading, unless a word is longer."""
SIZES = (("footnotesize", 72, False), ("scriptsize", 84, False), ("scriptsize", 132, True))
"""Sizes of letters, about how many of their characters a line has, and whether the page is turned."""
GAP = 2
"""Characters between two columns, about."""
NARROWEST, READABLE = 9, 16
"""Characters in a line of a paragraph: at least, and where smaller letters or a turned page allow it."""
MANY_LINES = 48
"""Lines of a table that fit on a page."""


def latex(text: object, paragraph: bool = False) -> str:
    """Return LaTeX that shows untrusted text literally, with minus signs in front of negative numbers.

    In a paragraph, words that are too long for a line may be broken.
    """
    shown = MINUS.sub("\u2212", visible(str(text)))
    found, length = [], 0
    # As after a space: TeX drops one at the beginning.
    for before, character in pairwise(f" {shown}"):
        length = 0 if character == " " else length + 1
        if paragraph and length > PIECE:
            found.append(r"\allowbreak{}")
            length = 1
        if character == before == " ":
            found.append(r"\ ")
        else:  # Of these, the font joins two into one character.
            found.append(
                "{}" * (character == before and character in "-',") + _character(character)
            )
    if found and found[-1] == " ":
        found[-1] = r"\ "
    if found and found[0] in ("[", "*"):  # An argument of the command that ends a row.
        found[0] = f"{{{found[0]}}}"
    return "".join(found)


@cache
def _character(character: str) -> str:
    if character in CHARACTERS or character.isascii():
        return CHARACTERS.get(character, character)
    parts = unicodedata.normalize("NFD", character)
    letter, accent = parts[0], ACCENTS.get(parts[1:])
    if letter.isascii() and letter.isalpha() and accent:
        return f"\\{accent}{{{DOTLESS.get(letter, letter)}}}"
    return "".join(CHARACTERS.get(c, c) for c in escape(character))


def latex_label(*parts: str) -> str:
    """Return the label of a table; characters that a label may not hold become hyphens."""
    return "tab:" + re.sub("[^A-Za-z0-9.:+-]", "-", "-".join(parts))


@dataclass(frozen=True)
class Layout:
    """Layout of a table: the argument of `tabular`, and the columns that are set as paragraphs."""

    preamble: str
    paragraphs: frozenset[int] = frozenset()
    size: str = ""
    """Command for the size of the letters in a table that may have several pages; empty for others."""
    turned: bool = False
    """Whether it needs a page in landscape format."""


def layout(columns: Sequence[Column[Any]], rows: Sequence[Any]) -> Layout:
    """Return the layout of a table: long texts are paragraphs, which share what others leave of the line.

    Tables of long texts or of many lines may have several pages; others are made as narrow as the line.
    """
    widths = [max(map(len, (*c.heading.split(), *_texts(c, rows))), default=0) for c in columns]
    texts = {i: w for i, w in enumerate(widths) if columns[i].text}
    kinds = ["l" if column.text else "r" for column in columns]
    if max(texts.values(), default=0) <= LONG:
        intervals = any(
            isinstance(cell, Estimate) and column.bounds(cell)
            for column in columns
            for cell in map(column.shown, rows)
        )
        if len(rows) * (1 + intervals) <= MANY_LINES:
            return Layout("".join(kinds))
        width = sum(widths) + GAP * len(widths)
        size, _, turned = next((one for one in SIZES if width <= one[1]), SIZES[-1])
        return Layout("".join(kinds), size=size, turned=turned)
    # In a wide table, shorter texts are paragraphs too, and then the letters are smaller.
    for least, (size, line, turned) in ((LONG, SIZES[0]), *((SHORT, one) for one in SIZES)):  # noqa: B007
        long = {i: w for i, w in texts.items() if w > least}
        left = line - sum(w + GAP for i, w in enumerate(widths) if i not in long)
        if left >= sum(min(w, READABLE) + GAP for w in long.values()):
            break
    left = max(left - len(long) * (NARROWEST + GAP), 0)
    for i, width in long.items():
        # Square roots: a text of four times the length gets twice the width.
        share = width**0.5 / sum(w**0.5 for w in long.values())
        part = (NARROWEST + left * share) / line
        kinds[i] = rf">{{\raggedright\arraybackslash}}p{{{part:.2f}\linewidth}}"
    return Layout("".join(kinds), frozenset(long), size, turned)


def _texts(column: Column[Any], rows: Sequence[Any]) -> Iterator[str]:
    for cell in map(column.shown, rows):
        if isinstance(cell, str):
            yield cell
        else:
            yield from (column.number(cell) + cell.marks, ", ".join(column.bounds(cell) or ()))


def table_lines(
    columns: Sequence[Column[Any]], rows: Sequence[Any], found: Layout
) -> Iterator[str]:
    """Yield the lines of a table's body, with rules between sizes if they are the first column."""
    before = None
    for row in rows:
        cells = [column.shown(row) for column in columns]
        if columns[0] is SIZE and before not in (None, cells[0]):
            yield r"\midrule"
        before = cells[0]
        parts = [
            _parts(column, cell, i in found.paragraphs)
            for i, (column, cell) in enumerate(zip(columns, cells, strict=True))
        ]
        if found.size:
            # A line of its own would stand below the last line of the paragraphs, or on the next page.
            yield _line([
                rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{value} \\ {interval}\end{{tabular}}"
                if interval else value for value, interval in parts
            ])  # fmt: skip
            continue
        values, intervals = zip(*parts, strict=True)
        yield _line(values)
        if any(intervals):
            yield _line(intervals)


def _parts(column: Column[Any], cell: str | Estimate, paragraph: bool) -> tuple[str, str]:
    """Return a cell, and the interval below it; empty without one."""
    if isinstance(cell, str):
        return latex(cell, paragraph), ""
    number, bounds = latex(column.number(cell)), column.bounds(cell)
    marks = "".join(TEX_MARKS[mark] for mark in cell.marks)
    value = (rf"\textbf{{{number}}}" if cell.best else number) + (f"$^{{{marks}}}$" * bool(marks))
    return value, rf"{{\scriptsize [{', '.join(map(latex, bounds))}]}}" if bounds else ""


def heading_line(columns: Sequence[Column[Any]], paragraphs: frozenset[int]) -> str:
    """Return the line of headings; long ones have several lines, so that columns are narrow."""
    cells = []
    for i, column in enumerate(columns):
        heading = column.heading + column.footnote
        lines = textwrap.wrap(heading, HEADING, break_long_words=False, break_on_hyphens=False)
        if i in paragraphs:
            cells.append(latex(heading, True))
        elif len(lines) > 1:
            stacked = r"\\".join(map(latex, lines))
            cells.append(rf"\shortstack[{'l' if column.text else 'r'}]{{{stacked}}}")
        else:
            cells.append(latex(heading))
    return _line(cells)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
