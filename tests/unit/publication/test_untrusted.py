"""What is read of a file that somebody else wrote, and what is refused before it is read."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stapo.publication import untrusted
from stapo.publication.untrusted import RefusedError
from stapo.records.tokens import SCHEMA as TOKENS


def test_only_regular_files_of_a_modest_size_are_read(tmp_path):
    file, fifo, link = (tmp_path / name for name in ("file", "fifo", "link"))
    file.write_text("text")
    os.mkfifo(fifo)
    link.symlink_to("/dev/zero")
    assert untrusted.read_text(file, 4) == "text"
    with pytest.raises(RefusedError, match="has 4 bytes, more than the limit of 3"):
        untrusted.read_text(file, 3)
    with pytest.raises(RefusedError, match="device, FIFO or socket"):
        untrusted.read_text(fifo, 4)
    with pytest.raises(RefusedError, match="is a link"):
        untrusted.read_text(link, 4)
    # Also where one took the place of the other after it was looked at.
    for path in (fifo, link):
        with pytest.raises((RefusedError, OSError)):
            untrusted.open_regular(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "deep"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": NaN}', "NaN"),
        ("9" * 5000, "digits"),
        ("{", "Expecting"),
    ],
)
def test_json_that_readers_would_read_differently_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        untrusted.parse_json(text)


def test_lines_are_bounded_in_number_and_length(tmp_path):
    path = tmp_path / "lines"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    assert list(untrusted.json_lines(path, 100, 2)) == [{"a": 1}, {"a": 2}]
    for line_bytes, lines, reason in ((100, 1, "more than 1 lines"), (5, 2, "longer than 5")):
        with pytest.raises(RefusedError, match=reason):
            list(untrusted.json_lines(path, line_bytes, lines))
    path.write_text('{"a": 1}\n{"a"')
    with pytest.raises(RefusedError, match="line 2: truncated"):
        list(untrusted.json_lines(path, 100, 2))


def test_a_folder_of_too_many_entries_is_not_walked(tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    assert sorted(path for path, _ in untrusted.walk(tmp_path)) == ["a", "b", "c"]
    monkeypatch.setattr(untrusted, "MAX_ENTRIES", 2)
    with pytest.raises(RefusedError, match="more than 2 files"):
        list(untrusted.walk(tmp_path))


TOKEN = {
    **dict.fromkeys(TOKENS.names),
    **dict.fromkeys(("step", "prompt", "response", "position", "length", "token_id"), 1),
    **dict.fromkeys(("token", "before", "after", "kind"), "a"),
    **dict.fromkeys(("weight", "probability", "entropy", "advantage", "reward"), 1.0),
    **dict.fromkeys(("lower_bound", "upper_bound"), 0.0),
    "kept": True,
    "top_tokens": ["a", "b"],
    "top_probabilities": [0.5, 0.5],
}


def token_records(path, rows, **options):
    pq.write_table(pa.Table.from_pylist(rows, TOKENS), path, **{"compression": "zstd", **options})
    return path


def test_token_records_are_read_as_they_were_written(tmp_path):
    rows = [TOKEN, {**TOKEN, "before": "b\0é", "top_tokens": None, "ratio": 0.5}] * 50
    path = token_records(tmp_path / "tokens.parquet", rows)
    assert untrusted.read_parquet(path, TOKENS, 100, 10**5, 10**5).to_pylist() == rows
    empty = token_records(tmp_path / "empty.parquet", [])
    assert untrusted.read_parquet(empty, TOKENS, 0, 10**5, 10**5).num_rows == 0


@pytest.mark.parametrize("name", ["before", "top_tokens"])
def test_token_records_that_unpack_to_more_than_a_limit_are_refused(tmp_path, name):
    """A text of a megabyte in ten thousand rows, in a file of some kilobytes."""
    text = "x" * 10**6
    table = pa.Table.from_pylist([TOKEN], TOKENS)
    values = pa.array([0] * 10_000, pa.int32())
    repeated = pa.DictionaryArray.from_arrays(values, pa.array([text]))
    columns = []
    for field in TOKENS:
        one = table.column(field.name).combine_chunks().take(pa.array([0] * 10_000))
        if field.name == name:
            offsets = pa.array(range(10_001), pa.int32())
            one = pa.ListArray.from_arrays(offsets, repeated) if name == "top_tokens" else repeated
        columns.append(one)
    path = tmp_path / "tokens.parquet"
    pq.write_table(pa.table(columns, names=TOKENS.names), path, compression="zstd")
    assert path.stat().st_size < 10**6
    with pytest.raises(RefusedError, match=f"column {name} unpacks to 100"):
        untrusted.read_parquet(path, TOKENS, 10_000, 10**6, 10**8)


def test_token_records_with_other_columns_nulls_or_too_many_rows_are_refused(tmp_path):
    path = token_records(tmp_path / "tokens.parquet", [TOKEN] * 3)
    for rows, size, words in ((2, 10**5, "has 3 rows"), (3, 100, "more than the limit of 100")):
        with pytest.raises(RefusedError, match=words):
            untrusted.read_parquet(path, TOKENS, rows, size, 10**6)
    table = pq.read_table(path)
    loose = pa.schema([pa.field(field.name, field.type) for field in TOKENS])
    for changed, words in (
        (table.drop_columns(["kept"]), "other columns"),
        (table.append_column("more", pa.array([1] * 3)), "other columns"),
        (pa.Table.from_pylist([{**TOKEN, "advantage": None}] * 3, loose), "advantage has nulls"),
        (table.set_column(0, "step", pa.array(["x"] * 3)), "column step is of type string"),
        # Types that could be converted are not those that were written either.
        (table.set_column(0, "step", pa.array(["1"] * 3)), "column step is of type string"),
        (table.set_column(0, "step", pa.array([1] * 3)), "column step is of type int64"),
    ):
        pq.write_table(changed, path, compression="zstd")
        with pytest.raises(RefusedError, match=words):
            untrusted.read_parquet(path, TOKENS, 3, 10**5, 10**6)
    pq.write_table(table.replace_schema_metadata({b"pandas": b"junk", b"mine": b"1"}), path)
    assert untrusted.read_parquet(path, TOKENS, 3, 10**5, 10**6).schema.metadata == {b"mine": b"1"}
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises(RefusedError, match="truncated or corrupt"):
        untrusted.read_parquet(path, TOKENS, 3, 10**5, 10**6)
