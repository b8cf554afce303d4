"""The published token records of a training, decoded from the log of its steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stapo.canonical import canonical
from stapo.files import read_jsonl, replace_file
from stapo.records.tokens import CHARACTERS, METADATA_KEY, SCHEMA, VERSION

SORTED = ("step", "prompt", "response", "position")


def write_tokens(
    log: Path, path: Path, tokenizer: Any, prompts: Sequence[int], mini_batch: int, group_size: int
) -> None:
    """Write the token records of a training as one sorted file.

    Args:
        log: log of the steps, with ids; a missing one has no tokens.
        path: output file.
        tokenizer: that of the policy.
        prompts: line in the file of prompts of each prompt of the training, in its order.
        mini_batch: prompts of a step.
        group_size: responses per prompt.
    """
    # Ids as they are, special tokens included.
    decode = partial(
        tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    lines, rows = read_jsonl(log), []
    for line in lines:
        own = prompts[(line["step"] - 1) * mini_batch :]
        rows += _rows(line, decode, own, group_size)
    rows.sort(key=lambda row: tuple(row[name] for name in SORTED))
    about = {name: lines[-1].get(name) if lines else None for name in ("vocab_size", "s2t")}
    about["version"] = VERSION
    schema = SCHEMA.with_metadata({METADATA_KEY: canonical(about).encode()})
    with replace_file(path, "wb") as stream:
        table = pa.Table.from_pylist(rows, schema=schema)
        pq.write_table(table, stream, compression="zstd", compression_level=9)


def _rows(
    line: Mapping[str, Any],
    decode: Callable[[Sequence[int]], str],
    prompts: Sequence[int],
    group_size: int,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the tokens of one step; `prompts` begins with those of the step."""

    def token(token_id: int) -> str:
        return decode([token_id])[: CHARACTERS["token"]]

    for index, row in enumerate(line["row"]):
        values = {k: v[index] if isinstance(v, list) else v for k, v in line.items()}
        values["prompt"], values["response"] = prompts[row // group_size], row % group_size
        values["token"] = token(values["token_id"])
        # The characters that are nearest to the token.
        values["before"] = decode(values["before"])[-CHARACTERS["before"] :]
        values["after"] = decode(values["after"])[: CHARACTERS["after"]]
        if values["top_tokens"] is not None:
            values["top_tokens"] = [token(one) for one in values["top_tokens"]]
        yield values
