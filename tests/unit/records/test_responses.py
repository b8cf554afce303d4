"""Published responses are whole, or one line says which is not."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stapo.files import DamagedFileError
from stapo.records.responses import AnsweredProblem, read_responses, write_responses

PROBLEM = AnsweredProblem(0, "q", "7", ["a", "b"], [1, 2], [False, True], ["e"])


@pytest.fixture
def path(tmp_path) -> Path:
    write_responses(tmp_path / "r.jsonl", [replace(PROBLEM, problem=i) for i in range(3)])
    return tmp_path / "r.jsonl"


def test_whole_responses_are_read(path):
    assert len(read_responses(path)) == len(read_responses(path, 3, 2)) == 3


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"responses": ["a"]}, "r.jsonl:2: not 2 responses"),
        ({"responses": "ab"}, "r.jsonl:2: not 2 responses"),
        ({"num_tokens": [1, "2"]}, "r.jsonl:2: not 2 responses"),
        ({"truncated": [0, 1]}, "r.jsonl:2: not 2 responses"),
        ({"problem": 2}, "r.jsonl: not the problems 0 to 2 in their order"),
    ],
)
def test_what_is_missing_is_named(path, change, line):
    lines = path.read_text().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), **change})
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DamagedFileError, match=line):
        read_responses(path, 3, 2)


def test_missing_problems_are_named(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    assert len(read_responses(path)) == 2
    with pytest.raises(DamagedFileError, match="not the problems 0 to 2 in their order"):
        read_responses(path, 3, 2)
    path.write_text(path.read_text()[:-5])
    with pytest.raises(
        DamagedFileError, match=r"r\.jsonl:2: truncated, the last line has no line end"
    ):
        read_responses(path)
