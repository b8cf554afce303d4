"""Files of records are read as they were written; what is damaged gives one line, and is never half read."""

import json
import math
import os
import signal
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic import RIGHT, WRONG
from synthetic_interventions import repetition
from synthetic_tokens import V, population, write_tokens

from stapo.core.checksums import file_sha256
from stapo.core.files import (
    DamagedFileError,
    fingerprint,
    read_json,
    read_jsonl,
    read_published,
    text_of,
    write_json,
    write_jsonl,
)
from stapo.suite.records import interventions, reading, responses, scores, tokens
from stapo.suite.records.responses import AnsweredProblem
from stapo.suite.records.scores import METADATA_KEY, SCHEMA
from stapo.suite.training.prompts import read_prompts

PROBLEM = AnsweredProblem(0, "q", "7", ["a", "b"], [1, 2], [False, True], ["e"], "f")
COLUMNS = (
    "problem: int32, sample: int32, gold: string, answer: string, verdict: string, correct: bool, "
    "num_tokens: int32, truncated: bool, duplicate: bool, verifier: string, verifier_cut: bool, "
    "correct_with_verifier: bool"
)


def test_published_files_have_these_fields(tmp_path):
    """With others, raise the recipe of the stage."""
    responses.write_responses(tmp_path / "r", [PROBLEM])
    assert (tmp_path / "r").read_text() == (
        '{"problem": 0, "question": "q", "gold": "7", "responses": ["a", "b"], "num_tokens": [1, 2], '
        '"truncated": [false, true], "engines": ["e"], "fingerprint": "f", '
        '"checksum": "d37cb8eef7896bd5"}\n'
    )
    response = responses.StoredResponse(0, 1, 2**62, "e", "b", 2, True)
    responses.store(tmp_path / "chain", response)
    assert (tmp_path / "chain").read_text() == (
        '{"problem": 0, "sample": 1, "seed": 4611686018427387904, "engine": "e", "text": "b", '
        '"num_tokens": 2, "truncated": true, "checksum": "aa791ec9d445ec3c"}\n'
    )
    assert responses.stored(tmp_path / "chain", pytest.fail) == {(0, 1): response}
    assert ", ".join(f"{field.name}: {field.type}" for field in SCHEMA) == COLUMNS


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gold": 7}, "gold: "),
        ({"num_tokens": [1, "2"]}, r"num_tokens\.1: "),
        ({"truncated": [0, 1]}, r"truncated\.0: "),
        ({"responses": ["a", "b", "c"]}, "not 2 responses"),
        ({"gold": "8"}, "altered"),
        *(({name: ...}, f"r:1: {name}: ") for name in (*vars(PROBLEM), "checksum")),
    ],
)
def test_a_line_of_other_types_or_lengths_is_no_answered_problem(tmp_path, change, reason):
    responses.write_responses(tmp_path / "r", [PROBLEM])
    assert responses.read_responses(tmp_path / "r") == [PROBLEM]
    whole = {**json.loads((tmp_path / "r").read_text()), **change}
    line = {name: value for name, value in whole.items() if value is not ...}
    if "responses" in change:
        line["checksum"] = fingerprint({k: v for k, v in line.items() if k != "checksum"})
    write_jsonl(tmp_path / "r", [line])
    with pytest.raises(DamagedFileError, match=reason):
        responses.read_responses(tmp_path / "r", samples=2)


def test_responses_are_whole_or_a_line_says_which_is_not(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    responses.write_responses(path, [replace(PROBLEM, problem=i) for i in range(3)])
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(responses.read_responses(path)) == len(responses.read_responses(path, 3, 2)) == 3
    for content, line in (
        (lines[:2], "r.jsonl: not the problems 0 to 2 in their order"),
        ([*lines[:2], lines[2][:-5]], r"r.jsonl:3: truncated, the last line has no line end"),
        ([lines[0], lines[1][:20] + b"\n", lines[2]], "r.jsonl:2: .*remove it"),
        ([], "r.jsonl: no responses"),
    ):
        path.write_bytes(b"".join(content))
        with pytest.raises(DamagedFileError, match=line):
            responses.read_responses(path, 3, 2)


def test_scores_are_read_as_written_with_all_columns(tmp_path):
    rows = [WRONG, replace(RIGHT, sample=1, num_tokens=9, truncated=True, duplicate=True)]
    identity = {"engine": "e", "samples": 2, "fingerprint": "f"}
    scores.write_score_file(tmp_path / "s", rows, identity)
    table, found = scores.read_score_file(tmp_path / "s")
    assert scores.rows_of(table) == rows
    assert found == scores.read_identity(tmp_path / "s") == identity
    whole, refused = (tmp_path / "s").read_bytes(), 0
    for place in range(4, len(whole), 5):  # No changed bit gives other scores.
        damaged = bytes([*whole[:place], whole[place] ^ 1, *whole[place + 1 :]])
        (tmp_path / "s").write_bytes(damaged)
        try:
            assert scores.read_score_file(tmp_path / "s")[0].equals(table)
        except DamagedFileError:
            refused += 1
    assert refused > 100
    pq.write_table(table.drop_columns(["gold"]), tmp_path / "s")
    with pytest.raises(DamagedFileError, match="not the columns of this version; remove it"):
        scores.read_score_file(tmp_path / "s")


def test_a_small_file_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    rows = [replace(WRONG, gold="x" * 10_000, sample=sample) for sample in range(500)]
    scores.write_score_file(tmp_path / "s", rows, {"fingerprint": "f"})
    assert (tmp_path / "s").stat().st_size < 50_000
    monkeypatch.setattr(reading, "MOST_TABLE_BYTES", 5_000_000)
    with pytest.raises(DamagedFileError, match="bytes in memory, more than 5,000,000"):
        scores.read_score_file(tmp_path / "s")


@pytest.mark.parametrize(
    ("column", "content"),
    [("top_tokens", ["x" * 10_000] * 1_000), ("top_probabilities", [0.5] * 1_000_000)],
)
def test_a_small_file_of_long_lists_is_refused(tmp_path, monkeypatch, column, content):
    path = tmp_path / "tokens.parquet"
    write_tokens(path, population(np.random.default_rng(0), steps=1, length=6))
    table = pq.read_table(path)
    at, field = table.column_names.index(column), table.schema.field(column)
    lists = pa.array([content, *[None] * (table.num_rows - 1)], field.type)
    pq.write_table(table.set_column(at, field, lists), path)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(reading, "MOST_TABLE_BYTES", 5_000_000)
    with pytest.raises(DamagedFileError, match="bytes in memory, more than 5,000,000"):
        tokens.read_token_file(path)


@pytest.mark.parametrize("said", ["", "[1]", "{", "[" * 100_000, '{"provenance": 1}'])
def test_a_file_that_does_not_say_what_made_it_is_no_score_file(tmp_path, said):
    table = pa.Table.from_pylist([vars(WRONG)], SCHEMA.with_metadata({METADATA_KEY: said}))
    pq.write_table(table, tmp_path / "s")
    with pytest.raises(DamagedFileError, match="does not say what made it"):
        scores.read_identity(tmp_path / "s")


def test_token_records_are_read_as_written(tmp_path):
    # A data set would take a name of this form for a column.
    path = tmp_path / "q=0.75" / "tokens.parquet"
    write_tokens(path, population(np.random.default_rng(0), steps=1, length=6))
    found = tokens.read_token_file(path)
    assert json.loads(found.schema.metadata[METADATA_KEY])["vocab_size"] == V


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"more": 1},
        {"repetitions": [asdict(repetition(1, {}))]},
        {"repetitions": [asdict(repetition(0, {})) | {"reward": math.nan}]},
        {"repetitions": [asdict(repetition(0, {})) | {"arms": {}}]},
    ],
)
def test_interventions_with_other_fields_or_values_are_damage(tmp_path, change):
    whole = interventions.Intervention("c", "f", "stapo", 8, (repetition(0, {}), repetition(1, {})))
    write_json(tmp_path / "i", asdict(whole))
    assert interventions.read_intervention(tmp_path / "i") == whole
    (tmp_path / "i").write_text(json.dumps({**asdict(whole), **change}))
    with pytest.raises(DamagedFileError, match="; remove it"):
        interventions.read_intervention(tmp_path / "i")


@pytest.mark.parametrize(
    "read",
    [read_json, read_jsonl, read_published, file_sha256, read_prompts, tokens.read_token_file,
     interventions.read_intervention, scores.read_score_file, scores.read_identity,
     partial(responses.read_responses, samples=1)],
)  # fmt: skip
def test_a_fifo_in_place_of_a_file_is_named_and_not_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "fifo")
    signal.alarm(20)  # Ends the tests: reading would wait for a writer.
    try:
        with pytest.raises(DamagedFileError, match="fifo: not a regular file"):
            read(tmp_path / "fifo")
        assert text_of(tmp_path / "fifo") == ""
    finally:
        signal.alarm(0)
