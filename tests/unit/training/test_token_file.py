"""The published token records: decoded and sorted."""

from pathlib import Path
from random import Random
from typing import Any

from stapo.files import append_jsonl
from stapo.models.tiny import build_tokenizer
from stapo.records.tokens import (
    MAX_ROWS,
    TOKENS_AFTER,
    TOKENS_BEFORE,
    TOP,
    read_token_file,
    rows_per_step,
)
from stapo.training.token_file import write_tokens

GROUP, PROMPTS = 4, 3


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


def written(tmp_path: Path, lines: list[dict[str, Any]], tokenizer: Any) -> Any:
    """Return the table of some lines."""
    log, path = tmp_path / "tokens.jsonl", tmp_path / "tokens.parquet"
    log.unlink(missing_ok=True)
    for one in lines:
        append_jsonl(log, one)
    prompts = [10 * i for i in range(PROMPTS * max(len(lines), 1))]
    write_tokens(log, path, tokenizer, prompts, PROMPTS, GROUP)
    return read_token_file(path)


def test_rows_are_sorted_and_name_prompt_and_response(tmp_path) -> None:
    tokenizer = build_tokenizer()
    lines = [line(step, 30, len(tokenizer)) for step in (1, 2)]
    table = written(tmp_path, lines, tokenizer)
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
    assert written(tmp_path, [], tokenizer).num_rows == 0


def test_the_rows_of_a_step_follow_from_the_size_limit() -> None:
    found = [rows_per_step(*one) for one in ((50, 3000), (4, 96), (0, 96), (1000, 1))]
    assert found == [32, 81, 0, MAX_ROWS]
