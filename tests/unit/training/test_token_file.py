"""The published token records: decoded, sorted, and never larger than their limit."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from stapo.files import append_jsonl
from stapo.models.tiny import build_tokenizer
from stapo.records.tokens import (
    CHARACTERS,
    MAX_ROWS,
    ROW_BYTES,
    TOKENS_AFTER,
    TOKENS_BEFORE,
    TOP,
    read_token_file,
    rows_per_step,
)
from stapo.training.token_file import write_tokens

GROUP, PROMPTS = 4, 3


class Hostile:
    """A tokenizer whose tokens are long texts that do not compress."""

    def __init__(self) -> None:
        chance = Random(0)
        self.texts = [
            "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(50)) for _ in range(10_000)
        ]

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(self.texts[one] for one in ids)


HOSTILE = Hostile()


def line(step: int, size: int, vocabulary: int, seed: int = 0) -> dict[str, Any]:
    """A record of a step with random tokens, in no order."""
    chance = Random(f"{seed} {step}")

    def ids(count: int) -> list[int]:
        return [chance.randrange(vocabulary) for _ in range(count)]

    def numbers() -> list[float]:
        return [chance.random() for _ in range(size)]

    return {
        "step": step,
        "vocab_size": vocabulary,
        "entropy_threshold": 0.5,
        "kind": ["other"] * size,
        "weight": [2.0] * size,
        "row": [chance.randrange(GROUP * PROMPTS) for _ in range(size)],
        "position": ids(size),
        "length": [vocabulary] * size,
        "token_id": ids(size),
        "before": [ids(TOKENS_BEFORE) for _ in range(size)],
        "after": [ids(TOKENS_AFTER) for _ in range(size)],
        "kept": [True] * size,
        "top_tokens": [ids(TOP) for _ in range(size)],
        "top_probabilities": [[0.2] * TOP for _ in range(size)],
        **{
            name: numbers()
            for name in (
                "probability", "entropy", "advantage", "reward", "ratio", "current_probability",
                "current_entropy", "collision", "gradient_norm_sq", "lower_bound", "upper_bound",
            )
        },
    }  # fmt: skip


def written(tmp_path: Path, lines: list[dict[str, Any]], tokenizer: Any, limit: int):
    """Return the table of some lines, and the size of the file."""
    log, path = tmp_path / "tokens.jsonl", tmp_path / "tokens.parquet"
    log.unlink(missing_ok=True)
    for one in lines:
        append_jsonl(log, one)
    prompts = [10 * i for i in range(PROMPTS * max(len(lines), 1))]
    write_tokens(log, path, tokenizer, prompts, PROMPTS, GROUP, limit)
    return read_token_file(path), path.stat().st_size


def test_rows_are_sorted_and_name_prompt_and_response(tmp_path) -> None:
    tokenizer = build_tokenizer()
    lines = [line(step, 30, len(tokenizer)) for step in (1, 2)]
    table, _ = written(tmp_path, lines, tokenizer, 10**6)
    rows = table.to_pylist()
    keys = [(row["step"], row["prompt"], row["response"], row["position"]) for row in rows]
    assert keys == sorted(keys)
    expected = sorted(
        (one["step"], 10 * (PROMPTS * (one["step"] - 1) + row // GROUP), row % GROUP, position)
        for one in lines
        for row, position in zip(one["row"], one["position"], strict=True)
    )
    assert keys == expected
    first = lines[0]["token_id"][0]
    found = [row["token"] for row in rows if row["token_id"] == first]
    assert found
    assert set(found) == {tokenizer.decode([first])}
    assert all(len(row["top_tokens"]) == TOP for row in rows)


@pytest.mark.parametrize(("megabytes", "steps"), [(1, 1), (2, 300)])
def test_a_file_is_never_larger_than_its_limit(tmp_path, megabytes: int, steps: int) -> None:
    """Even with tokens of 50 characters, each of three bytes, that do not repeat."""
    size = rows_per_step(megabytes, steps)
    lines = [line(step, size, 10_000) for step in range(1, steps + 1)]
    table, found = written(tmp_path, lines, HOSTILE, megabytes * 10**6)
    assert found <= megabytes * 10**6
    assert table.num_rows == size * steps
    for name in ("token", "before", "after"):
        assert max(map(len, table[name].to_pylist())) <= CHARACTERS[name]


def test_without_texts_a_row_is_small_and_without_records_the_file_is_there(tmp_path) -> None:
    """So cutting texts always ends."""
    lines = [line(step, 100, 10_000) for step in range(1, 21)]
    table, found = written(tmp_path, lines, HOSTILE, 1)
    assert found < ROW_BYTES / 2 * table.num_rows
    assert set(table["token"].to_pylist()) == {""}
    assert written(tmp_path, [], build_tokenizer(), 0)[0].num_rows == 0


def test_the_rows_of_a_step_follow_from_the_size_limit() -> None:
    found = [rows_per_step(*one) for one in ((50, 3000), (4, 96), (0, 96), (1000, 1))]
    assert found == [32, 81, 0, MAX_ROWS]
