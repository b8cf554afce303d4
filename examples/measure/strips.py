"""Responses as strips of tokens, coloured by probability, with the tokens that S2T silences: one SVG file.

Text of models is hostile: it is escaped, and what is invisible is spelled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from math import log10

from stapo.suite.text import visible

WIDTH, SIZE, LINE, MARGIN = 92, 7.8, 24, 14
"""Characters of a line; pixels of a character, of a line and at the edges."""
LEAST = 1e-4
"""Probability with the darkest colour, and below."""
STYLE = (
    "text { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 13px; fill: #1f2328 } "
    ".title { font-family: system-ui, sans-serif; fill: #57606a }"
)
EDGES = {
    "silenced": 'stroke="#1f2328" stroke-width="2"',
    "retained": 'stroke="#1f2328" stroke-width="1" stroke-dasharray="3 2"',
}
LEGEND = (
    ("p = 1", 1.0, ""),
    ("0.1", 0.1, ""),
    ("0.01", 0.01, ""),
    ("0.001 or less", 0.001, ""),
    ("silenced: rare, and the model was sure", 0.001, "silenced"),
    ("rare, kept", 0.001, "retained"),
)


@dataclass(frozen=True)
class Token:
    """A token of a response."""

    text: str
    probability: float
    kind: str = ""
    """`silenced`, `retained`, or none of both."""


def picture(strips: Sequence[tuple[str, Sequence[Token]]]) -> str:
    """Return strips with their titles, below a legend, as SVG."""
    shapes = _line([Token(text, p, kind) for text, p, kind in LEGEND], MARGIN, gap=1)
    y = MARGIN + 2 * LINE
    for title, tokens in strips:
        shapes.append(
            f'<text class="title" x="{MARGIN}" y="{y + 14}">{escape(visible(title))}</text>'
        )
        y += LINE
        for line in _lines(tokens):
            shapes += _line(line, y)
            y += LINE
        y += LINE // 2
    width = round(WIDTH * SIZE + 2 * MARGIN)
    size = f'width="{width}" height="{y}" viewBox="0 0 {width} {y}"'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>'
    return "\n".join(
        [start, '<rect width="100%" height="100%" fill="white"/>', *shapes, "</svg>\n"]
    )


def _lines(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return tokens in lines of at most `WIDTH` characters."""
    lines, room = list[list[Token]](), 0
    for token in tokens:
        text = visible(token.text.replace("\n", "\u21b5").replace("\t", "\u21e5"))[:WIDTH]
        if not lines or len(text) > room:
            lines.append([])
            room = WIDTH
        lines[-1].append(replace(token, text=text))
        room -= len(text)
    return lines


def _line(tokens: Sequence[Token], y: float, gap: float = 0) -> list[str]:
    """Return the shapes of one line; edges are drawn last, over their neighbours."""
    below, above, x = [], [], float(MARGIN)
    for token in tokens:
        width = len(token.text) * SIZE
        box = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LINE - 4}"'
        below.append(f'<rect {box} fill="{_colour(token.probability)}"/>')
        if token.kind in EDGES:
            above.append(f'<rect {box} fill="none" {EDGES[token.kind]}/>')
        at = f'x="{x:.1f}" y="{y + 14}" textLength="{width:.1f}"'
        above.append(f'<text {at} xml:space="preserve">{escape(token.text)}</text>')
        x += width + gap * SIZE
    return below + above


def _colour(probability: float) -> str:
    """Return white for 1, and orange for `LEAST`, on a logarithmic scale."""
    share = min(log10(max(probability, LEAST)) / log10(LEAST), 1.0)
    red, green, blue = (round(255 + share * (end - 255)) for end in (240, 130, 40))
    return f"#{red:02x}{green:02x}{blue:02x}"
