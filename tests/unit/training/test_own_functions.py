"""A training with functions of a study's own: what they raise is a line with its place."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training_jobs import TRAINING, job_in

from stapo.files import read_jsonl
from stapo.training import run
from stapo.training.own_functions import OwnFunctionError

CODE = """
import torch

def length(completions, **_):
    return [float(len(one[-1]["content"]) % 5) for one in completions]

def looked_up(table):
    return table["absent"]

def key(logps, entropies, advantages, mask):
    return looked_up({})

def inside_torch(logps, entropies, advantages, mask):
    return mask & torch.nn.functional.softmax(logps, dim=7)

def two_lines(logps, entropies, advantages, mask):
    raise ValueError("one" + chr(10) + "two")

def empty(completions, **_):
    raise StopIteration

def none(completions, **_):
    return None

def exits(completions, **_):
    raise SystemExit(0)

def nothing(logps, entropies, advantages, mask):
    return torch.zeros_like(mask)

def untaken(completions):
    return [1.0] * len(completions)
"""
LINES = CODE.split("\n")


def line_of(text: str) -> int:
    (found,) = [number for number, line in enumerate(LINES, start=1) if text in line]
    return found


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return path


def train(
    world: Path, own: Path, selection: str = "", reward: str = "length", **changes: Any
) -> None:
    """Train with functions of the file; without a selection, every token is kept."""
    sha256 = hashlib.sha256(own.read_bytes()).hexdigest()
    training = TRAINING.model_copy(
        update={"reward": f"{own}:{reward}", "reward_sha256": sha256, **changes}
    )
    job = job_in(world, own.parent, training, "justrl")
    if selection:
        method = replace(job.method, selection=f"{own}:{selection}", selection_sha256=sha256)
        job = replace(job, method=method)
    run.train(job)


@pytest.mark.parametrize(
    ("kind", "function", "place", "error"),
    [
        ("selection", "key", 'return table["absent"]', "KeyError: 'absent'"),
        ("selection", "inside_torch", "softmax(logps", "IndexError: Dimension out of range .*"),
        ("selection", "two_lines", "raise ValueError", "ValueError: one two"),
        ("reward", "empty", "raise StopIteration", "StopIteration"),
        ("reward", "exits", "raise SystemExit", "SystemExit: 0"),
        ("reward", "none", "", "TypeError: 'NoneType' object is not iterable"),
        ("reward", "untaken", "", "TypeError: untaken.* got an unexpected keyword argument .*"),
    ],
)
def test_an_error_is_a_line_with_its_place_in_the_file(
    world, own, monkeypatch, kind, function, place, error
):
    monkeypatch.chdir(own.parent)
    with pytest.raises(OwnFunctionError) as raised:
        train(world, own, **{kind: function})
    kept = own.parent / "work" / "traceback-rank0.txt"
    at = f", line {line_of(place)}" if place else ""
    line = rf"own\.py:{function}{at}: {error}; fix the function, then run the same command again"
    assert re.fullmatch(rf"{line} \(traceback: {kept}\)", str(raised.value))
    assert (place or error.split(":")[0]) in kept.read_text()


def test_a_training_that_never_keeps_a_token_ends_with_a_line(world, own):
    # At the same step when it is resumed.
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"^step 2: \S*own.py:nothing keeps no token, as in all"
        ):
            train(world, own, selection="nothing", steps=2)
    assert len(read_jsonl(own.parent / "work" / "metrics.jsonl")) == 2
    assert not (own.parent / "model").exists()
