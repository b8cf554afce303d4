"""Escapes for untrusted text, so that no terminal, browser or Markdown reader interprets it.

Titles, answers, responses, logs and file names are untrusted.
"""

import html
import re

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


def escape(character: str) -> str:
    r"""Return a character as Python and YAML write it, such as `\n`, `\x1b` and `\u200b`."""
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
