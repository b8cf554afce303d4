"""Responses that stand under the name of another checkpoint, where the two answer different benchmarks."""

import numpy as np
import pytest

from stapo.publication.copies import _equal_cells, _moved
from stapo.study import Checkpoint, merge, parse_study

ONE, OTHER = ("t1.0-p1.0", "chain-2"), ("t1.0-p1.0", "chain-3")


def test_checkpoints_are_compared_in_what_both_answer():
    rng = np.random.default_rng(0)
    texts = rng.integers(0, 2**63, 100, dtype=np.uint64)
    others = rng.integers(0, 2**63, 100, dtype=np.uint64)
    full, of_curve = {ONE: texts, OTHER: others}, {OTHER: others}
    assert _equal_cells(of_curve, full) == _equal_cells(full, of_curve) == ["t1.0-p1.0 chain-3"]
    assert _equal_cells({OTHER: texts}, full) == _equal_cells(full, {OTHER: texts}) == []
    assert _equal_cells({ONE: texts}, {OTHER: texts}) == []


@pytest.mark.parametrize(
    ("one", "other", "moved"),
    [
        ("base", "stapo/seed0/step20", False),
        ("base", "stapo/seed0", True),
        ("stapo/seed0/step40", "stapo/seed0/step60", False),
        ("stapo/seed0/step40", "stapo/seed0", True),
        ("stapo/seed0/step60", "grpo/seed0/step60", True),
    ],
)
def test_neighbours_on_the_curve_may_answer_alike(raw_study, one, other, moved):
    change = {"steps": 1200, "learning_rate": 1e-6}
    study = parse_study(merge(raw_study, {"training": change}))
    assert _moved(study, *(Checkpoint.parse(f"tiny/{name}") for name in (one, other))) == moved
