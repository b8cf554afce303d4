"""Scores refuse responses that were not drawn independently, or not by one engine."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from stapo.artifacts import write_jsonl
from stapo.evaluation.scores import METADATA_KEY, duplicates, score


def write(path: Path, responses: list[str], tokens: int, engine: str = "vllm 1 on A") -> Path:
    record: dict[str, Any] = {
        "problem": 0,
        "question": "q",
        "gold": "7",
        "responses": responses,
        "num_tokens": [tokens] * len(responses),
        "truncated": [False] * len(responses),
        "engines": [engine],
    }
    other = {
        **record,
        "problem": 1,
        "responses": [f"{i} \\boxed{{7}}" for i in range(len(responses))],
    }
    write_jsonl(path, [record, other])
    return path


def test_copies_of_long_responses_fail_the_score(tmp_path):
    copies = [r"long \boxed{7}"] * 4
    with pytest.raises(RuntimeError, match=r"37\.5% of the responses of 100 tokens.*independently"):
        score(write(tmp_path / "c", copies, 100), {}, tmp_path / "s")
    assert not (tmp_path / "s").exists()
    # Short ones coincide by chance; they are counted.
    assert score(write(tmp_path / "c", copies, 99), {}, tmp_path / "s") == 1.0
    assert (
        pq.read_table(tmp_path / "s")["duplicate"].to_pylist()
        == [False, True, True, True] + [False] * 4
    )
    assert duplicates(["a", "b", "a", "a"]) == [False, False, True, True]


def test_two_engines_are_not_mixed(tmp_path):
    path = write(tmp_path / "c", ["a", "b"], 5)
    lines = path.read_text().splitlines()
    path.write_text(lines[0] + "\n" + lines[1].replace("on A", "on B") + "\n")
    with pytest.raises(RuntimeError, match="vllm 1 on A and by vllm 1 on B"):
        score(path, {}, tmp_path / "s")
    score(write(tmp_path / "c", ["a", "b"], 5), {"fingerprint": "f"}, tmp_path / "s")
    identity = json.loads(pq.read_schema(tmp_path / "s").metadata[METADATA_KEY])
    assert (identity["engine"], identity["fingerprint"]) == ("vllm 1 on A", "f")
