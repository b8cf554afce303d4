"""The tokens of the report: a bounded choice of the records of every training, for the token browser."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.charts import cell
from stapo.analysis.evidence.categories import TITLES, category_of
from stapo.analysis.evidence.quadrants import quadrants
from stapo.analysis.evidence.recorded import Recorded, recorded
from stapo.records.tokens import KINDS
from stapo.text import visible

MOST = 4000
"""Tokens on the page; each takes at most 2 kB."""
NAMES = ("size", "method", "seed", "step", "prompt", "response", "position", "length", "kind", "kept",
         "token", "before", "after", "probability", "entropy", "advantage", "reward", "ratio",
         "gradient_norm", "quadrant", "category", "top_tokens", "top_probabilities")  # fmt: skip
PLACE = ["step", "prompt", "response", "position"]
SIGNIFICANT = 4
"""Significant digits of the numbers, which the browser shows."""


def token_rows(artefacts: Artefacts, most: int = MOST) -> list[dict[str, Any]]:
    """Return token records of every training.

    Every training gets the same number of tokens. Within it, kinds take turns: a silenced candidate, a
    retained one, another token. Tokens of a kind are drawn with probabilities proportional to their weights.

    Args:
        artefacts: files of the study.
        most: number of tokens, at most.

    Returns:
        For each token, ordered by size, method, seed and place: `NAMES`. Unknown numbers and lists are None,
        quadrant is None for tokens without A > 0, and category None for tokens that are no candidates.
        Texts are untrusted, but without invisible characters.
    """
    each = most // sum(1 for _ in artefacts.study.runs())
    return [
        row
        for one in recorded(artefacts)
        for training in range(one.sample.trainings)
        for row in _of_training(one, training, each)
    ]


def _of_training(one: Recorded, training: int, most: int) -> Iterator[dict[str, Any]]:
    own = one.sample.training == training
    kinds = [one.drawn(own & one.is_kind(kind)).tolist() for kind in KINDS]
    turns = (place for turn in zip_longest(*kinds) for place in turn if place is not None)
    places = [place for _, place in zip(range(most), turns, strict=False)]
    quadrant = np.full(len(one.frame), None, dtype=object)
    for found in quadrants(one):
        quadrant[found.mask] = found.name
    rows = one.frame.iloc[places].assign(
        size=one.size, method=one.title, gradient_norm=one.norm[places], quadrant=quadrant[places]
    )
    for row in rows.sort_values(PLACE).to_dict("records"):
        candidate = row["kind"] != "other"
        row["category"] = (
            TITLES[category_of(row["token"], row["top_tokens"])] if candidate else None
        )
        yield {name: _shown(name, row[name]) for name in NAMES}


def _shown(name: str, value: Any) -> Any:
    """Return a value as JSON has it: texts with escapes, numbers rounded."""
    if isinstance(value, str):
        # Of a token, every character counts; its context is read as text.
        return visible(value, keep="" if "token" in name else "\n")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return cell(float(f"{value:.{SIGNIFICANT}g}"))
    return [_shown(name, one) for one in np.asarray(value, dtype=object).tolist()]
