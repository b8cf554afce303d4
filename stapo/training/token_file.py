"""The published token records of a training, decoded from the log of its steps."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stapo.files import canonical, read_jsonl, replace_file
from stapo.records.tokens import CHARACTERS, METADATA_KEY, SCHEMA, VERSION

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
        tokenizer: that of the policy.
        prompts: line in the file of prompts of each prompt of the training, in its order.
        prompts_per_step: prompts of a mini-batch.
        group_size: responses per prompt.
        limit: maximum bytes of the file.
    """
    # Ids as they are, special tokens included.
    decode = partial(
        tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    token = cache(lambda token_id: decode([token_id]))
    lines, rows = read_jsonl(log), []
    for line in lines:
        own = prompts[(line["step"] - 1) * prompts_per_step :]
        rows += _rows(line, decode, token, own, group_size)
    rows.sort(key=lambda row: tuple(row[name] for name in SORTED))
    about = {name: lines[-1].get(name) if lines else None for name in ("vocab_size", "s2t")}
    about["version"] = VERSION
    schema = SCHEMA.with_metadata({METADATA_KEY: canonical(about).encode()})
    share = 1
    while True:
        data = _encoded(rows, schema, {name: most // share for name, most in CHARACTERS.items()})
        if len(data) <= limit or share > max(CHARACTERS.values()):
            break
        share *= 2
    with replace_file(path, "wb") as stream:
        stream.write(data)


def _rows(
    line: Mapping[str, Any],
    decode: Callable[[Sequence[int]], str],
    token: Callable[[int], str],
    prompts: Sequence[int],
    group_size: int,
) -> list[dict[str, Any]]:
    """Return the rows of the tokens of one step; `prompts` begins with those of the step."""
    found = []
    for index, row in enumerate(line["row"]):
        values = {k: v[index] if isinstance(v, list) else v for k, v in line.items()}
        values["prompt"], values["response"] = prompts[row // group_size], row % group_size
        values["token"] = token(values["token_id"])
        values["before"], values["after"] = decode(values["before"]), decode(values["after"])
        if values["top_tokens"] is not None:
            values["top_tokens"] = [token(one) for one in values["top_tokens"]]
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
