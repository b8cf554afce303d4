"""The names of checkpoints: what is parsed is what is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stapo.study import Checkpoint, TrainingRun

RUN = TrainingRun("1.7B", "stapo", 0)


@pytest.mark.parametrize(
    ("name", "checkpoint", "run"),
    [
        ("1.7B/base", Checkpoint("1.7B"), None),
        ("1.7B/stapo/seed0", Checkpoint("1.7B", "stapo", 0), RUN),
        ("1.7B/stapo/seed0/step500", Checkpoint("1.7B", "stapo", 0, 500), RUN),
        ("base/step5/seed10", Checkpoint("base", "step5", 10), TrainingRun("base", "step5", 10)),
    ],
)
def test_a_name_is_parsed_into_its_parts(name, checkpoint, run):
    assert Checkpoint.parse(name) == checkpoint
    assert str(checkpoint) == name
    assert checkpoint.run == run


@pytest.mark.parametrize(
    "name",
    [
        "", "tiny", "tiny/base/", "/base", "tiny/stapo", "tiny/stapo/0", "tiny/stapo/seed",
        "tiny/stapo/seed-1", "tiny/stapo/seed01", "tiny/stapo/seed0/20", "tiny/stapo/seed0/step",
        "tiny/stapo/seed0/step020", "tiny/stapo/seed0/step20/x", "tiny/base/seed0/step1\n",
        "tiny/stapo/seed\u0661",
    ],
)  # fmt: skip
def test_anything_else_is_the_name_of_no_checkpoint(name):
    with pytest.raises(ValueError, match="no name of a checkpoint"):
        Checkpoint.parse(name)


NUMBERS = st.integers(0, 2**31)
NAMES = st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1)


@given(NAMES, NAMES, NUMBERS, st.none() | NUMBERS)
def test_every_name_leads_back_to_its_checkpoint(size, method, seed, step):
    checkpoint = Checkpoint.of(TrainingRun(size, method, seed), step)
    assert Checkpoint.parse(str(checkpoint)) == checkpoint
    assert Checkpoint.parse(str(Checkpoint(size))) == Checkpoint(size)
