"""Escapes for untrusted text, so that no terminal, browser or Markdown reader interprets it.

Titles, answers, responses, logs and file names are untrusted.
"""

import html
import re
import unicodedata
from collections.abc import Callable

IGNORED = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef]"
)
"""Printable characters that are invisible; all other invisible characters are not printable."""
REFUSED = {"Cc", "Cs", "Cf", "Zl", "Zp"}
"""Unicode categories that settings may not hold: controls, surrogates, formats, line separators."""
JOINERS = "\u200c\u200d"
"""Formats that scripts and emoji need."""
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
MAX_CHARACTERS = 160
"""Characters that are shown of a line of a log."""
MARKUP = re.compile(
    r"[\\|*_`~$]|\](?=[(\[])|\A\s*\[(?=.*\]:)|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE
)
"""Markup in a line of Markdown; of brackets only those of a link or an image, and of what defines a link."""


def escape(character: str) -> str:
    r"""Return the escape of a character that is shown instead of it, such as `\u200b`."""
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def short_escape(character: str) -> str:
    r"""Return a character as Python and YAML write it, such as `\n` and `\x1b`."""
    return character.encode("unicode_escape").decode()


def visible(text: str, keep: str = "", escape: Callable[[str], str] = escape) -> str:
    """Return text with every invisible character escaped.

    Control characters move the cursor, bidirectional ones reverse the text, and those without width make
    two names look the same.

    Args:
        text: untrusted text.
        keep: invisible characters that are kept, such as the end of a line.
        escape: what stands for an invisible character.
    """
    if text.isprintable() and not IGNORED.search(text):
        return text
    return "".join(c if c in keep or _is_seen(c) else escape(c) for c in text)


def _is_seen(character: str) -> bool:
    return character.isprintable() and not IGNORED.match(character)


def refused(text: str) -> str | None:
    """Return the first character that a setting may not hold, None if there is none."""
    found = (c for c in text if unicodedata.category(c) in REFUSED and c not in JOINERS)
    return next(found, None)


def shorten(text: str, characters: int) -> str:
    """Return the beginning of a text, with an ellipsis where there is more."""
    return text[:characters] + ("…" if len(text) > characters else "")


def plain(text: str) -> str:
    """Return text as one short line, without terminal colours."""
    return shorten(visible(" ".join(COLOURS.sub("", text).split())), MAX_CHARACTERS)


def markdown(text: str) -> str:
    """Return text as Markdown that shows it literally: without table cells, links, images or HTML."""
    escaped = MARKUP.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", visible(text))
    return html.escape(escaped, quote=False)
