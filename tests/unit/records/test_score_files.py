"""A score file has the columns of its row, and says of itself what made it."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stapo.files import DamagedFileError
from stapo.records import scores
from stapo.records.scores import (
    METADATA_KEY,
    SCHEMA,
    ScoreRow,
    read_identity,
    read_score_file,
    rows_of,
    write_score_file,
)

ROW = ScoreRow(0, 0, "7", None, "no_box", False, 3, False, False, "not_asked", False, False)


COLUMNS = (
    "problem: int32, sample: int32, gold: string, answer: string, verdict: string, correct: bool, "
    "num_tokens: int32, truncated: bool, duplicate: bool, verifier: string, verifier_cut: bool, "
    "correct_with_verifier: bool"
)


def test_other_columns_are_another_version():
    """Published files have these: with others, raise the version and the recipe of scores."""
    found = ", ".join(f"{field.name}: {field.type}" for field in SCHEMA)
    assert (scores.VERSION, found) == (1, COLUMNS)
    assert all(field.nullable for field in SCHEMA)


def test_what_is_written_is_read(tmp_path):
    rows = [ROW, ScoreRow(0, 1, "7", "7", "correct", True, 9, True, True, "not_asked", False, True)]
    identity = {"engine": "e", "samples": 2, "fingerprint": "f"}
    write_score_file(tmp_path / "s", rows, identity)
    table, found = read_score_file(tmp_path / "s")
    assert rows_of(table) == rows
    assert found == read_identity(tmp_path / "s") == identity
    assert table.schema.names == list(vars(ROW))
    # More columns are no fault: those of a later version.
    more = table.append_column("more", pa.array([1, 2]))
    pq.write_table(more, tmp_path / "s")
    assert rows_of(read_score_file(tmp_path / "s")[0]) == rows


@pytest.mark.parametrize("name", SCHEMA.names)
def test_every_column_is_there_and_whole(tmp_path, name):
    table = pa.Table.from_pylist([vars(ROW)], SCHEMA.with_metadata({METADATA_KEY: "{}"}))
    pq.write_table(table.drop_columns([name]), tmp_path / "s")
    with pytest.raises(DamagedFileError, match=f"no column {name}"):
        read_score_file(tmp_path / "s")
    index = table.schema.get_field_index(name)
    field = table.schema.field(index)
    empty = table.set_column(index, field, pa.array([None], field.type))
    pq.write_table(empty, tmp_path / "s")
    if name == "answer":
        assert read_score_file(tmp_path / "s")[0]["answer"].to_pylist() == [None]
    else:
        with pytest.raises(DamagedFileError, match=f"column {name} has missing values"):
            read_score_file(tmp_path / "s")
    other = table.set_column(index, name, pa.array([0.5]))
    pq.write_table(other, tmp_path / "s")
    with pytest.raises(DamagedFileError, match=f"column {name} is of double"):
        read_score_file(tmp_path / "s")


@pytest.mark.parametrize("said", ["", "[1]", "{", "[" * 100_000, '{"provenance": 1}'])
def test_a_file_that_does_not_say_what_made_it_is_no_score_file(tmp_path, said):
    table = pa.Table.from_pylist([vars(ROW)], SCHEMA.with_metadata({METADATA_KEY: said}))
    pq.write_table(table, tmp_path / "s")
    with pytest.raises(DamagedFileError, match="does not say what made it"):
        read_identity(tmp_path / "s")
