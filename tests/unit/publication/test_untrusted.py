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
    for path, limit, reason in (
        (file, 3, "has 4 bytes, more than the limit of 3"),
        (fifo, 4, "device, FIFO or socket"),
        (link, 4, "is a link"),
    ):
        with pytest.raises(RefusedError, match=reason):
            untrusted.read_text(path, limit)
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
    whole = '{"a": 1}\n{"a": 2}\n'
    path.write_text(whole)
    assert list(untrusted.json_lines(path, 100, 2)) == [{"a": 1}, {"a": 2}]
    for text, line_bytes, lines, reason in (
        (whole, 100, 1, "more than 1 lines"),
        (whole, 5, 2, "longer than 5"),
        (whole[:-4], 100, 2, "line 2: truncated"),
    ):
        path.write_text(text)
        with pytest.raises(RefusedError, match=reason):
            list(untrusted.json_lines(path, line_bytes, lines))


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
TABLE = pa.Table.from_pylist([TOKEN] * 3, TOKENS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens.parquet"


def test_token_records_are_read_as_they_were_written(path):
    rows = [TOKEN, {**TOKEN, "before": "b\0é", "top_tokens": None, "ratio": 0.5}] * 50
    for written in (rows, []):
        pq.write_table(pa.Table.from_pylist(written, TOKENS), path, compression="zstd")
        assert untrusted.read_parquet(path, TOKENS, 100, 10**5, 10**5).to_pylist() == written
    metadata = {b"pandas": b"junk", b"mine": b"1"}
    pq.write_table(TABLE.replace_schema_metadata(metadata), path)
    assert untrusted.read_parquet(path, TOKENS, 3, 10**5, 10**6).schema.metadata == {b"mine": b"1"}


@pytest.mark.parametrize("name", ["before", "top_tokens"])
def test_token_records_that_unpack_to_more_than_a_limit_are_refused(path, name):
    """A text of a megabyte in ten thousand rows, in a file of some kilobytes."""
    rows = pa.array([0] * 10_000, pa.int32())
    column = pa.DictionaryArray.from_arrays(rows, pa.array(["x" * 10**6]))
    if name == "top_tokens":
        column = pa.ListArray.from_arrays(pa.array(range(10_001), pa.int32()), column)
    table = TABLE.take(rows)
    table = table.set_column(table.schema.get_field_index(name), name, column)
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 10**6
    with pytest.raises(RefusedError, match=f"column {name} unpacks to 100"):
        untrusted.read_parquet(path, TOKENS, 10_000, 10**6, 10**8)


LOOSE = pa.schema([pa.field(field.name, field.type) for field in TOKENS])


@pytest.mark.parametrize(
    ("table", "limits", "reason"),
    [
        (TABLE, (2, 10**5), "has 3 rows"),
        (TABLE, (3, 100), "more than the limit of 100"),
        (TABLE.drop_columns(["kept"]), (3, 10**5), "other columns"),
        (TABLE.append_column("more", pa.array([1] * 3)), (3, 10**5), "other columns"),
        (pa.Table.from_pylist([{**TOKEN, "advantage": None}] * 3, LOOSE), (3, 10**5), "has nulls"),
        # Types that could be converted are not those that were written either.
        (TABLE.set_column(0, "step", pa.array(["1"] * 3)), (3, 10**5), "column step is of type string"),
        (TABLE.set_column(0, "step", pa.array([1] * 3)), (3, 10**5), "column step is of type int64"),
        (None, (3, 10**5), "truncated or corrupt"),
    ],
)  # fmt: skip
def test_token_records_of_another_form_are_refused(path, table, limits, reason):
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    if table is not None:
        pq.write_table(table, path, compression="zstd")
    with pytest.raises(RefusedError, match=reason):
        untrusted.read_parquet(path, TOKENS, *limits, 10**6)
