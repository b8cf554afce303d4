"""Escapes for untrusted text, so that no terminal, browser or Markdown reader interprets it.

Titles, answers, responses, logs and file names are untrusted. Unknown names get a similar one.
"""

import html
import re
from collections.abc import Iterable
from difflib import get_close_matches

IGNORED = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef]"
)
"""Printable characters that are invisible; all other invisible characters are not printable."""
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
MAX_CHARACTERS = 160
"""Characters that are shown of a line of a log."""
MARKUP = re.compile(
    r"[\\|*_`~$]|\](?=[(\[])|\A\s*\[(?=.*\]:)|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE
)
"""Markup in a line of Markdown; of brackets only those of a link or an image, and of what defines a link."""
WHITE = str.maketrans({" ": "\u2423", "\n": "\u21b5", "\t": "\u21e5"})
"""White space -> the sign that stands for it where a token is shown alone."""
RUNS = re.compile("\n+|\t+| {2,}")
RUN_NAMES = {"\n": "newline", "\t": "tab", " ": "blank"}


def escape(character: str) -> str:
    r"""Return a character as Python and YAML write it, such as `\n`, `\x1b` and `\u200b`.

    Beyond ASCII, `\x` is left to the bytes of a part of a character.
    """
    if "\x80" <= character <= "\xff":
        return f"\\u{ord(character):04x}"
    return character.encode("unicode_escape").decode()


def visible(text: str, keep: str = "") -> str:
    """Return text with every invisible character escaped.

    Control characters move the cursor, bidirectional ones reverse the text, and those without width make
    two names look the same. Those in `keep` stay, such as the end of a line.
    """
    if text.isprintable() and not IGNORED.search(text):
        return text
    return "".join(c if c in keep or _is_seen(c) else escape(c) for c in text)


def _is_seen(character: str) -> bool:
    return character.isprintable() and not IGNORED.match(character)


def token_signs(token: str) -> str:
    """Return a token that is shown alone, with a sign for each blank, newline and tab."""
    return visible(token.translate(WHITE))


def token_quoted(token: str, characters: int) -> str:
    """Return a token that is shown alone in a figure, whose font lacks signs for white space.

    Newlines, tabs and runs of blanks, which SVG draws as one, are named. Of a long token, the beginning.
    """
    named = RUNS.sub(_named, token)
    return f'"{shorten(visible(named), characters)}"'


def _named(run: re.Match[str]) -> str:
    name, count = RUN_NAMES[run[0][0]], len(run[0])
    return f"[{name}]" if count == 1 else f"[{count} {name}s]"


def shorten(text: str, characters: int) -> str:
    """Return the beginning of a text, with an ellipsis where there is more."""
    return text[:characters] + ("…" if len(text) > characters else "")


def plain(text: str) -> str:
    """Return text as one short line, without terminal colours."""
    return shorten(visible(" ".join(COLOURS.sub("", text).split())), MAX_CHARACTERS)


def markdown(text: str) -> str:
    """Return text as Markdown that shows it literally: without table cells, links, images or HTML."""
    escaped = MARKUP.sub(lambda match: f"{match[0][:-1]}\\{match[0][-1]}", visible(text))
    return html.escape(escaped, quote=False)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a similar name that is known, as a question; empty without one."""
    near = get_close_matches(name, [*known], 1)
    return f"did you mean {near[0]}? " if near and near[0] != name else ""


def normalised(text: str) -> str:
    """Return a question for comparisons, without differences of white space and case."""
    return " ".join(text.split()).casefold()
