r"""The paper's three categories of spurious tokens, by rules of ours.

The paper sorts its cases by reading them: uncommon syntax; hallucinations and mathematical errors;
formatting. These rules look only at the token and at the most likely one, in this order:

1. special tokens, such as the end of the text: unsorted
2. a dash or asterisks: mathematics where the most likely token is mathematical (rule 4); elsewhere a dash is
   syntax, and asterisks are formatting
3. formatting: the token is layout (white space, brackets, marks of Markdown, dollar signs, LaTeX commands for
   layout such as \boxed and \text), or it differs from the most likely token only in layout or capitals
4. mathematics: the token contains a digit, an operator or another LaTeX command, or it is a single letter
   where the most likely token is mathematical or a single letter
5. syntax: the token consists of words and punctuation, also where the model expected mathematics
6. otherwise: unsorted

A rule cannot tell a false statement in words from an odd one: a hallucination in words is sorted as syntax.
How often a reader agrees with these rules was not measured.
"""

import re
from collections.abc import Sequence
from typing import Literal

Category = Literal["syntax", "mathematics", "formatting", "unsorted"]

TITLES: dict[Category, str] = {
    "syntax": "uncommon syntax",
    "mathematics": "hallucinations and mathematical errors",
    "formatting": "formatting",
    "unsorted": "unsorted",
}

SPECIAL = re.compile(r"<\|.*\|>|</?\w+>")
COMMANDS = (
    "boxed", "text", "textbf", "mathbf", "mathrm", "begin", "end", "left", "right", "quad", "qquad",
    "displaystyle", "big", "Big", "bigg", "Bigg", "hspace", "newline",
)  # fmt: skip
"""LaTeX commands that change how something looks and not what it says."""
LAYOUT = re.compile(
    rf"\\(?:{'|'.join(COMMANDS)})(?![A-Za-z])|\\[\[\]()\\,;!]|[\s$#_|`~{{}}\[\]()&]"
)
MATHEMATICAL = re.compile(r"[\d=+/^<>%\u00b1\u00d7\u00f7\u2200-\u22ff]|\\[A-Za-z]")
EITHER = {"-", "*", "**"}
"""Operators after mathematics; a dash and marks of Markdown elsewhere."""
TEXT = re.compile(
    r"[^\W\d_]+|[\s.,:;!?\"'\u2018\u2019\u201c\u201d\u2026\u2013\u2014\u3000-\u303f-]"
)


def category_of(token: str, likely: Sequence[str] | None) -> Category:
    """Return the category of a token.

    Args:
        token: the token.
        likely: the most likely tokens, the most likely first; None if unknown.
    """
    expected = likely[0] if likely is not None and len(likely) else ""
    bare = LAYOUT.sub("", token)
    if SPECIAL.fullmatch(token.strip()):
        return "unsorted"
    in_formula = is_mathematical(expected)
    if bare in EITHER:
        return "mathematics" if in_formula else "syntax" if bare == "-" else "formatting"
    if not bare or bare.casefold() == LAYOUT.sub("", expected).casefold():
        return "formatting"
    if is_mathematical(bare) or (_is_letter(bare) and (in_formula or _is_letter(expected.strip()))):
        return "mathematics"
    return "unsorted" if TEXT.sub("", bare) else "syntax"


def is_mathematical(token: str) -> bool:
    """Return whether a token contains a digit, an operator or a LaTeX command that is not layout."""
    return MATHEMATICAL.search(LAYOUT.sub("", token)) is not None


def _is_letter(text: str) -> bool:
    return len(text) == 1 and text.isalpha()
