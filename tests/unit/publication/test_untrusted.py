"""What is read of a file that somebody else wrote, and what is refused before it is read."""

import os
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stapo.publication import untrusted, weights
from stapo.publication.untrusted import RefusedError
from stapo.records.scores import SCHEMA, ScoreRow

ROW = vars(ScoreRow(0, 0, "1", "1", "correct", True, 3, False, False, "not_asked", False, True))


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


def test_a_file_of_holes_is_refused(tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as stream:
        stream.truncate(2**41)
    assert "holes" in str(untrusted.irregular(path.stat()))
    path.write_bytes(b"x" * 1000)
    assert untrusted.irregular(path.stat()) is None


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


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.Table.from_pylist([ROW] * 5, SCHEMA), "has 5 rows, expected 4"),
        (
            pa.Table.from_pylist([{**ROW, "answer": "a" * 1000}] * 4, SCHEMA),
            "unpacks to 4000 bytes",
        ),
        (pa.Table.from_pylist([ROW], SCHEMA).drop_columns(["gold"]), "other columns"),
        (
            pa.Table.from_pylist([ROW], SCHEMA).append_column("x", pa.array([[None] * 1000])),
            "other columns",
        ),
    ],
)
def test_parquet_is_judged_by_its_footer(tmp_path, table, reason):
    path = tmp_path / "scores.parquet"
    pq.write_table(table, path)
    assert reason in str(untrusted.parquet_fault(path, SCHEMA, 4, 3999))


def test_parquet_is_read_only_as_it_is_written(tmp_path):
    path = tmp_path / "scores.parquet"
    table = pa.Table.from_pylist([ROW] * 4, SCHEMA)
    pq.write_table(table, path)
    assert untrusted.parquet_fault(path, SCHEMA, 4, 4000) is None
    pq.write_table(table, path, compression="zstd")
    assert "ZSTD" in str(untrusted.parquet_fault(path, SCHEMA, 4, 4000))
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    assert "truncated or corrupt" in str(untrusted.parquet_fault(path, SCHEMA, 4, 4000))


@pytest.mark.parametrize(
    "value", [[0] * 1001, {"a": "x" * 20_001}, 2**64, [[[[[[[[[[[[[[0]]]]]]]]]]]]]]]
)
def test_a_study_beyond_any_size_is_refused(value):
    with pytest.raises(RefusedError, match="the study"):
        untrusted.require_modest({"key": value})


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', b"x" * 9),
        (b'{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}', b"x" * 8),
        (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}', b"x" * 12),
        (b"[", b""),
    ],
)
def test_what_is_no_safetensors_is_refused(tmp_path, header, data):
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    with pytest.raises(RefusedError, match=r"not a (valid )?safetensors file"):
        weights.read_header(path)
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(RefusedError, match="not a safetensors file"):
        weights.read_header(path)
