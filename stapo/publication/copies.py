"""Check for responses that were copied from another checkpoint and cannot be generated again.

With the same seeds, two similar checkpoints often give the same responses. Equal responses to a whole
benchmark are therefore accepted if the two agree on other benchmarks too, and if no update lies between
them.
"""

import hashlib
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stapo.publication.folder import Results
from stapo.publication.trainings import recorded_steps
from stapo.publication.weights import is_looked_at, may_be_equal, named_weights, step_of
from stapo.study import Checkpoint, Study

VARIED = 0.3
"""Minimum share of distinct responses in a compared cell: a model may always respond the same."""
CHANCE = 1e-6
MOVED = 1e-4
"""Learning rate times steps, about the most that Adam moves a weight; above it, responses must differ."""

Texts = dict[tuple[str, str], NDArray[np.uint64]]


def copy_errors(results: Results) -> Iterator[str]:
    """Yield one line for each pair of checkpoints with copied responses."""
    study, steps = results.study, recorded_steps(results)
    texts = {checkpoint: _texts(results, checkpoint) for checkpoint in study.checkpoints()}
    drawn = {checkpoint: is_looked_at(results, checkpoint) for checkpoint in texts}
    weights = {checkpoint: named_weights(results, checkpoint) for checkpoint in texts}
    for one, other in combinations(texts, 2):
        if one.size != other.size:
            continue
        if (drawn[one] and drawn[other]) or weights[one] == weights[other]:
            continue
        common = texts[one].keys() & texts[other].keys()
        found = _equal_cells(texts[one], texts[other])
        if not found or may_be_equal(results, one, other, steps):
            continue
        everywhere = len(found) == len(common)
        if _moved(study, one, other) or not everywhere:
            where = "everywhere" if everywhere else f"to {', '.join(found)}"
            yield f"{one} and {other}: the same responses {where}, from different weights"


def _moved(study: Study, one: Checkpoint, other: Checkpoint) -> bool:
    """Return whether so many updates lie between two checkpoints that their responses must differ."""
    ends = [step_of(study, checkpoint) for checkpoint in (one, other)]
    same = one.run == other.run
    between = abs(ends[0] - ends[1]) if same else sum(ends)
    return study.training.learning_rate * between >= MOVED


def _texts(results: Results, checkpoint: Checkpoint) -> Texts:
    """Return (decoding, benchmark) -> a hash of each response."""
    found = {}
    for decoding in results.study.run.decodings:
        for benchmark in results.study.answered(checkpoint, decoding):
            problems = results.responses(checkpoint, decoding, benchmark)
            digests = b"".join(
                hashlib.sha256(text.encode(errors="replace")).digest()[:8]
                for problem in problems
                for text in problem.responses
            )
            found[decoding, benchmark] = np.frombuffer(digests, dtype=np.uint64)
    return found


def _equal_cells(one: Texts, other: Texts) -> list[str]:
    """Return the cells in which all responses are equal although this is improbable."""
    differing = {
        cell: int((one[cell] != other[cell]).sum())
        for cell in one
        if cell in other and len(one[cell]) == len(other[cell])
    }
    total = sum(len(one[cell]) for cell in differing)
    found = []
    for cell, count in differing.items():
        varied = len(set(one[cell].tolist())) >= VARIED * len(one[cell])
        if count or not varied:
            continue
        elsewhere = total - len(one[cell])
        share = sum(differing.values()) / elsewhere if elsewhere else 0.0
        all_equal = not any(differing.values())
        if all_equal or (1 - share) ** len(one[cell]) < CHANCE:
            found.append(" ".join(cell))
    return found
