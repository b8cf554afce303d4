"""The published token records of a training, decoded from the log of its steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stapo.canonical import canonical
from stapo.files import read_jsonl, replace_file
from stapo.records.tokens import CHARACTERS, METADATA_KEY, SCHEMA, VERSION

OF_STEP = ("step", "entropy_threshold")
"""Columns with one value per step in the log."""
SORTED = ("step", "prompt", "response", "position")


def write_tokens(
    log: Path,
    path: Path,
    tokenizer: Any,
    prompts: Sequence[int],
    prompts_per_step: int,
    group_size: int,
    limit: int,
) -> None:
    """Write the token records of a training as one sorted file.

    If the file would be larger than the limit, texts are cut to half of their length, a quarter and so on.

    Args:
        log: log of the steps, with ids; a missing one has no tokens.
        path: output file.
        tokenizer: tokenizer of the policy.
        prompts: line in the file of prompts of each prompt of the training, in its order.
        prompts_per_step: prompts of a mini-batch.
        group_size: responses per prompt.
        limit: maximum bytes of the file.
    """
    lines = read_jsonl(log)
    texts = _Texts(tokenizer)
    rows = [
        row for line in lines for row in _rows(line, texts, prompts, prompts_per_step, group_size)
    ]
    rows.sort(key=lambda row: tuple(row[name] for name in SORTED))
    about = {"version": VERSION, "vocab_size": lines[-1]["vocab_size"] if lines else None}
    schema = SCHEMA.with_metadata({METADATA_KEY: canonical(about).encode()})
    share = 1
    while True:
        data = _encoded(rows, schema, {name: most // share for name, most in CHARACTERS.items()})
        if len(data) <= limit or share > max(CHARACTERS.values()):
            break
        share *= 2
    with replace_file(path, "wb") as stream:
        stream.write(data)


class _Texts:
    """Decodes ids as they are, special tokens included."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.known = tokenizer, dict[int, str]()

    def __call__(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def token(self, token_id: int) -> str:
        """Return the text of one token."""
        if token_id not in self.known:
            self.known[token_id] = self([token_id])
        return self.known[token_id]


def _rows(
    line: Mapping[str, Any],
    texts: _Texts,
    prompts: Sequence[int],
    prompts_per_step: int,
    group_size: int,
) -> list[dict[str, Any]]:
    """Return the rows of the tokens of one step."""
    start = (line["step"] - 1) * prompts_per_step
    found = []
    for index, row in enumerate(line["row"]):
        values: dict[str, Any] = {
            name: line[name] if name in OF_STEP else None for name in SCHEMA.names
        }
        values |= {
            name: line[name][index] for name in SCHEMA.names if isinstance(line.get(name), list)
        }
        values["prompt"] = prompts[start + row // group_size]
        values["response"] = row % group_size
        values["token"] = texts.token(values["token_id"])
        values["before"], values["after"] = texts(values["before"]), texts(values["after"])
        if values["top_tokens"] is not None:
            values["top_tokens"] = [texts.token(one) for one in values["top_tokens"]]
        found.append(values)
    return found


def _encoded(
    rows: Sequence[Mapping[str, Any]], schema: pa.Schema, most: Mapping[str, int]
) -> bytes:
    """Return the file with texts of at most these numbers of characters."""

    def cut(row: Mapping[str, Any]) -> dict[str, Any]:
        top, before = row["top_tokens"], row["before"]
        return {
            **row,
            "token": row["token"][: most["token"]],
            # The characters that are nearest to the token.
            "before": before[max(len(before) - most["before"], 0) :],
            "after": row["after"][: most["after"]],
            "top_tokens": None if top is None else [one[: most["token"]] for one in top],
        }

    table = pa.Table.from_pylist([cut(row) for row in rows], schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=9)
    data: bytes = sink.getvalue().to_pybytes()
    return data
