"""A bounded choice of token records for the report's token browser."""

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.evidence.cases import drawn_in_order
from stapo.analysis.evidence.categories import TITLES, category_of
from stapo.analysis.evidence.quadrants import NAMES, masks
from stapo.analysis.evidence.recorded import Recorded, recorded
from stapo.records.tokens import KINDS

SIGNIFICANT = 4
"""Significant digits of the numbers, which the browser shows."""


def token_choice(artefacts: Artefacts, max_bytes: int) -> list[dict[str, Any]]:
    """Return token records of every training, as many as fit into a number of bytes.

    Every training gets the same number of bytes. Within it, kinds take turns: a silenced candidate, a
    retained one, another token, until one does not fit. Tokens of a kind are drawn with probabilities
    proportional to their weights, by a hash of their places: the same files give the same choice.

    Args:
        artefacts: files of the study.
        max_bytes: size of the choice as JSON in UTF-8, at most.

    Returns:
        For each token, ordered by size, method, seed, step, prompt, response and position: size, method
        (its title), seed, step, prompt, response, position, length, kind, kept, token, before, after,
        probability, entropy, advantage, reward, ratio, gradient_norm, quadrant, category, top_tokens and
        top_probabilities. Unknown numbers and lists are None, quadrant is None for tokens without A > 0,
        and category None for tokens that are no candidates. Texts are untrusted.

    Raises:
        DamagedFileError: token records are missing or damaged; one line for each file.
    """
    found = recorded(artefacts)
    trainings = sum(one.sample.trainings for one in found)
    # Two bytes for the brackets of the list.
    share = (max_bytes - 2) // max(trainings, 1)
    chosen = []
    for one in found:
        for training in range(one.sample.trainings):
            chosen += _of_training(one, training, share)
    return chosen


def _of_training(one: Recorded, training: int, max_bytes: int) -> list[dict[str, Any]]:
    own = one.sample.training == training
    kinds = [drawn_in_order(one, np.flatnonzero(own & one.is_kind(kind))) for kind in KINDS]
    quadrants = _quadrants(one)
    # Rows of a data frame, one by one, take most of the time.
    columns = {str(name): values.to_numpy() for name, values in one.frame.items()}
    chosen: list[dict[str, Any]] = []
    size = 0
    for place in _in_turns(kinds):
        record = _record(one, columns, place, quadrants)
        # With the comma and the space between records.
        size += len(json.dumps(record, ensure_ascii=False).encode(errors="replace")) + 2
        if size > max_bytes:
            break
        chosen.append(record)
    return sorted(chosen, key=lambda r: (r["step"], r["prompt"], r["response"], r["position"]))


def _in_turns(kinds: Sequence[NDArray[np.int64]]) -> Iterator[int]:
    for turn in zip_longest(*(kind.tolist() for kind in kinds)):
        yield from (place for place in turn if place is not None)


def _quadrants(one: Recorded) -> NDArray[np.int64]:
    """Return the index of each token's quadrant in `NAMES`, -1 for none."""
    found = np.full(len(one.frame), -1)
    for i, mask in enumerate(masks(one)):
        found[mask] = i
    return found


def _record(
    one: Recorded, columns: dict[str, NDArray[Any]], place: int, quadrants: NDArray[np.int64]
) -> dict[str, Any]:
    record = {name: values[place] for name, values in columns.items()}
    quadrant = int(quadrants[place])
    tokens, probabilities = record["top_tokens"], record["top_probabilities"]
    category = TITLES[category_of(record["token"], tokens)]
    return {
        "size": one.size,
        "method": one.title,
        **{
            name: int(record[name])
            for name in ("seed", "step", "prompt", "response", "position", "length")
        },
        "kind": str(record["kind"]),
        "kept": bool(record["kept"]),
        "token": str(record["token"]),
        "before": str(record["before"]),
        "after": str(record["after"]),
        **{
            name: _number(record[name])
            for name in ("probability", "entropy", "advantage", "reward", "ratio")
        },
        "gradient_norm": _number(one.norm[place]),
        "quadrant": NAMES[quadrant] if quadrant >= 0 else None,
        "category": category if record["kind"] != "other" else None,
        "top_tokens": None if tokens is None else [*map(str, tokens)],
        "top_probabilities": None if probabilities is None else [*map(_number, probabilities)],
    }


def _number(value: Any) -> float | None:
    number = float(value)
    return None if np.isnan(number) else float(f"{number:.{SIGNIFICANT}g}")
