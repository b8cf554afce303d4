"""Text of others, for reading: nothing in it is obeyed by a terminal, a browser or a Markdown reader.

Titles, answers, responses, logs and names of files are whatever somebody wrote.
"""

import html
import re

IGNORED = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that show nothing; whatever else shows nothing is not printable."""
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
MAX_CHARACTERS = 160
"""Of a line of a log that is shown."""
MARKUP = re.compile(r"[\\|*_`~$]|\](?=[(\[:])|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE)
"""What begins something in a line of Markdown: not each bracket, but what makes a link or image of it."""


def visible(text: str, keep: str = "") -> str:
    """Return text with an escape in place of every character that is not seen.

    Control characters move the cursor, those of bidirectional text turn it round, those without width
    make two names look the same.

    Args:
        text: of somebody.
        keep: characters that stay nevertheless, such as the end of a line.
    """
    if text.isprintable() and not IGNORED.search(text):
        return text
    return "".join(c if c in keep or _is_seen(c) else _escape(c) for c in text)


def _is_seen(character: str) -> bool:
    return character.isprintable() and not IGNORED.match(character)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain(text: str) -> str:
    """Return text as one short line, colours taken off."""
    line = visible(" ".join(COLOURS.sub("", text).split()))
    return line[:MAX_CHARACTERS] + ("…" if len(line) > MAX_CHARACTERS else "")


def markdown(text: str) -> str:
    """Return text as Markdown that shows it as it is: in it no cell ends, no link, image or HTML begins."""
    escaped = MARKUP.sub(lambda found: "\\" + found[0], visible(text))
    return html.escape(escaped, quote=False)
