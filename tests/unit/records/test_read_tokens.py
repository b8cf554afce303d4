"""Reading of token records: a damaged file gives one line, and is never half read."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_tokens import V, population, write_tokens

from stapo.files import DamagedFileError
from stapo.records.tokens import METADATA_KEY, SCHEMA, read_token_file


@pytest.fixture
def path(tmp_path):
    # A data set would take a name of this form for a column.
    found = tmp_path / "q=0.75" / "tokens.parquet"
    write_tokens(found, population(np.random.default_rng(0), steps=1, length=6))
    return found


def rewritten(path, **metadata):
    table = pq.ParquetFile(path).read()
    about = {**table.schema.metadata, **{k.encode(): v for k, v in metadata.items()}}
    pq.write_table(table.replace_schema_metadata(about), path)


def test_records_are_read_as_they_were_written(path):
    found = read_token_file(path)
    assert found.schema.names == SCHEMA.names
    assert json.loads(found.schema.metadata[METADATA_KEY])["vocab_size"] == V


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight", float("inf")),
        ("weight", float("nan")),
        ("weight", 1e308),
        ("weight", 0.0),
        ("weight", -2.0),
        ("probability", float("nan")),
        ("entropy", float("inf")),
        ("advantage", float("nan")),
        ("reward", float("-inf")),
        ("position", -1),
        ("position", 2**31 - 1),
        ("length", 0),
        ("kind", "<b>"),
    ],
)
def test_values_without_a_meaning_are_damage(path, name, value):
    table = pq.ParquetFile(path).read()
    index = SCHEMA.get_field_index(name)
    values = [value, *table.column(name).to_pylist()[1:]]
    changed = table.set_column(index, SCHEMA.field(name), pa.array(values, SCHEMA.field(name).type))
    pq.write_table(changed, path)
    with pytest.raises(DamagedFileError, match=r"impossible values|not finite"):
        read_token_file(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_tokens", ["a"]),
        ("top_tokens", []),
        ("top_tokens", [None] * 5),
        ("top_probabilities", [0.5]),
        ("top_probabilities", [None] * 5),
    ],
)
def test_most_likely_tokens_without_a_partner_are_damage(path, name, value):
    table = pq.ParquetFile(path).read()
    index = SCHEMA.get_field_index(name)
    values = [value, *table.column(name).to_pylist()[1:]]
    changed = table.set_column(index, SCHEMA.field(name), pa.array(values, SCHEMA.field(name).type))
    pq.write_table(changed, path)
    with pytest.raises(DamagedFileError, match="most likely token"):
        read_token_file(path)


def test_unknown_most_likely_tokens_are_no_damage(path):
    table = pq.ParquetFile(path).read()
    for name in ("top_tokens", "top_probabilities"):
        index = SCHEMA.get_field_index(name)
        values = [None, *table.column(name).to_pylist()[1:]]
        field = SCHEMA.field(name)
        table = table.set_column(index, field, pa.array(values, field.type))
    pq.write_table(table, path)
    assert read_token_file(path).column("top_tokens").null_count == 1


@pytest.mark.parametrize(
    "about", [b"junk", b"\xff", b"[1]", b"{}", b'{"vocab_size": "x"}', b'{"vocab_size": 1}', b"[" * 10**5]
)  # fmt: skip
def test_metadata_without_a_vocabulary_are_damage(path, about):
    rewritten(path, stapo=about)
    with pytest.raises(DamagedFileError, match="vocabulary"):
        read_token_file(path)


@pytest.mark.parametrize("about", [b"junk", b'{"index_columns": ["step"], "columns": []}'])
def test_metadata_of_pandas_do_not_matter(path, about):
    expected = read_token_file(path).to_pandas()
    rewritten(path, pandas=about)
    assert read_token_file(path).to_pandas().equals(expected)
