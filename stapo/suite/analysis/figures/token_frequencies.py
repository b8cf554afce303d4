"""The most frequent silenced and retained candidates, in place of the paper's clouds of words.

The share of a token is estimated in all candidates of its kind of one method and model: the sum of the
weights of its records / the sum of the weights of the kind. Tokens are compared as text, with their white
space. Those with the same estimate are ordered as text.

In a real vocabulary most tokens were recorded once, and say nothing alone: there, bars are of kinds of tokens
(number, word and so on), with the most frequent ones as examples. A word begins with a blank, as byte-level
BPE cuts words; the first word of a line has none, and counts as a piece. Of old records, U+FFFD is a part of
a character. The kinds are our choice.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import altair as alt

from stapo.suite.analysis import charts
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.estimates import Mask, share
from stapo.suite.analysis.evidence.recorded import NO_SILENCED, Recorded, recorded, thresholds
from stapo.suite.exhibits import Exhibit
from stapo.suite.text import token_quoted

EXHIBIT = Exhibit(order=110, title="Silenced and retained tokens")
SHOWN, EXAMPLES = 10, 4
"""Tokens of each kind of candidate, and of each kind of token; per method and model; our choice."""
CHARACTERS = 24
MANY, SINGLE = 20, 0.5
"""Bars are of kinds of tokens from as many different ones, of which so large a share was recorded once."""
ROOM = 220
"""Pixels for the examples of a kind."""
KINDS = ("silenced", "retained")
SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z]+\]")
"""Such as `<|im_end|>`, `</s>` and `[PAD]`; tokenizers do not join brackets and letters otherwise."""
PART = re.compile(r"\\x[89a-f][0-9a-f]|\ufffd")
"""A byte of a character, as records spell it."""
WORDS = ("number", "word", "word piece", "sign", "blank", "special", "part of a character")
"""Kinds of tokens by their text alone."""


def make(artefacts: Artefacts) -> Any:
    """Return shares of the most frequent tokens, or of kinds, as bars: a panel per model, method and kind."""
    recordings, group, panels = recorded(artefacts), charts.colours(KINDS), []
    candidates = [r.frame["token"][r.frame["kind"].isin(KINDS)] for r in recordings]
    is_grouped = any(map(has_many, candidates))
    for recording in recordings:
        for kind in KINDS:
            rows = _rows(recording, kind, is_grouped)
            layers = charts.bars(rows, f"share of the {kind} candidates [%]", group)
            if is_grouped:
                layers = _labelled(rows, layers)
            title = f"{recording.model}, {recording.title}: {kind}" + (
                "" if rows else " (no token)"
            )
            panels.append(charts.panel(layers, title))
    missing = "" if any(recording.silenced.any() for recording in recordings) else f" {NO_SILENCED}"
    what = f"The {SHOWN} most frequent tokens"
    if is_grouped:
        what = f"Kinds of tokens, with up to {EXAMPLES} of the most frequent ones,"
    caption = (
        f"{what} among the candidates that S2T silences, or would silence, and among those that it retains, "
        f"with 95 % intervals. {thresholds(recordings)}"
    )
    if is_grouped:
        caption += (
            " A word begins with a blank; a piece of a word, or the first word of a line, does not."
        )
    return charts.grid(panels, caption + missing, columns=2)


def has_many(tokens: Iterable[str]) -> bool:
    """Return whether tokens are many different ones, most of which are there once."""
    counts = Counter(tokens)
    single = sum(count == 1 for count in counts.values())
    return len(counts) >= MANY and single > SINGLE * len(counts)


def _labelled(rows: list[dict[str, Any]], layers: list[Any]) -> list[Any]:
    """Return bars in the upper half of their bands, and the examples below them."""
    for layer in layers:
        layer.mark.yOffset = -6
        layer.mark.height = 9 if layer.mark.type == "bar" else alt.Undefined
    if layers:
        text = alt.Chart(charts.data(rows)).mark_text(
            align="left", dx=3, dy=8, fontSize=10, limit=ROOM, color=charts.GREY
        )
        layers.append(text.encode(x=alt.datum(0), y=layers[0].encoding.y, text="examples:N"))
    return layers


def _ordered(recording: Recorded, among: Mask) -> list[str]:
    weights = recording.frame[among].groupby("token")["weight"].sum().round(6)
    return sorted(weights.index, key=lambda token: (-weights[token], token))


def _rows(recording: Recorded, kind: str, is_grouped: bool) -> list[dict[str, Any]]:
    """Return the rows of the bars; none without a token.

    They are of the most frequent tokens, shortened and all different, or of all kinds of tokens, in the same
    order in each panel.
    """
    among, tokens = recording.is_kind(kind), recording.frame["token"]
    if not among.any():
        return []
    bars = (tokens.map(kind_of) if is_grouped else tokens).to_numpy(dtype=object)
    rows: list[dict[str, Any]] = []
    for rank, bar in enumerate(WORDS if is_grouped else _ordered(recording, among)[:SHOWN], 1):
        these: Mask = among & (bars == bar)
        frequent = [token_quoted(t, CHARACTERS) for t in _ordered(recording, these)[:EXAMPLES]]
        name = bar if is_grouped else frequent[0]
        name += f" #{rank}" if name in {row["y"] for row in rows} else ""
        interval = charts.interval(share(recording.sample, these, among), 100, axis="x")
        examples = {"examples": ", ".join(frequent)} if is_grouped else {}
        rows.append({**interval, "y": name, "group": kind, **examples})
    return rows


def kind_of(token_text: str) -> str:
    """Return the kind of a token, one of `WORDS`."""
    text = token_text.strip()
    if not text:
        return "blank"
    if SPECIAL.fullmatch(text):
        return "special"
    if PART.search(text):
        return "part of a character"
    if any(character.isalpha() for character in text):
        return "word" if token_text[0].isspace() else "word piece"
    return "number" if any(character.isnumeric() for character in text) else "sign"
