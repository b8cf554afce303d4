"""Published responses are whole, or one line says which is not."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stapo.files import DamagedFileError
from stapo.records import responses
from stapo.records.responses import (
    FIELDS,
    AnsweredProblem,
    StoredResponse,
    answered_problem,
    read_responses,
    store,
    stored,
    write_responses,
)

PROBLEM = AnsweredProblem(0, "q", "7", ["a", "b"], [1, 2], [False, True], ["e"])


@pytest.fixture
def path(tmp_path) -> Path:
    write_responses(tmp_path / "r.jsonl", [replace(PROBLEM, problem=i) for i in range(3)])
    return tmp_path / "r.jsonl"


def test_other_fields_are_another_version(tmp_path):
    """Published files and stores have these lines: with others, raise the version and the recipe."""
    write_responses(tmp_path / "r", [PROBLEM])
    store(tmp_path / "chain", StoredResponse(0, 1, 2**62, "e", "b", 2, True))
    assert responses.VERSION == 1
    assert (tmp_path / "r").read_text() == (
        '{"problem": 0, "question": "q", "gold": "7", "responses": ["a", "b"], "num_tokens": [1, 2], '
        '"truncated": [false, true], "engines": ["e"]}\n'
    )
    assert (tmp_path / "chain").read_text() == (
        '{"problem": 0, "sample": 1, "seed": 4611686018427387904, "engine": "e", "text": "b", '
        '"num_tokens": 2, "truncated": true, "checksum": "aa791ec9d445ec3c"}\n'
    )
    found = stored(tmp_path / "chain", pytest.fail)
    assert found == {(0, 1): StoredResponse(0, 1, 2**62, "e", "b", 2, True)}


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


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gold": 7}, "gold: of another type"),
        ({"problem": True}, "problem: of another type"),
        ({"engines": "e"}, "engines: of another type"),
        ({"responses": [], "num_tokens": [], "truncated": []}, "not as many responses"),
        ({"responses": ["a", "b", "c"]}, "not as many responses"),
        ({"num_tokens": [True, 2]}, "not as many responses"),
    ],
)
def test_a_record_of_other_types_or_lengths_is_no_answered_problem(change, reason):
    assert answered_problem({**vars(PROBLEM), "note": 1}) == PROBLEM
    with pytest.raises(ValueError, match=reason):
        answered_problem({**vars(PROBLEM), **change})
    for name in FIELDS:
        with pytest.raises(ValueError, match=f"no {name}$"):
            answered_problem({key: value for key, value in vars(PROBLEM).items() if key != name})
