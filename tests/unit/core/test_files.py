"""Files appear whole or not at all; a work directory has one owner and one purpose."""

import pytest

from stapo.core.files import (
    DamagedFileError,
    append_jsonl,
    read_jsonl,
    read_published,
    replace_directory,
    replace_file,
    write_jsonl,
)
from stapo.suite.locks import ForeignDirectoryError, work_directory


def test_a_file_is_replaced_only_when_the_block_ends_well(tmp_path):
    path = tmp_path / "deep" / "file"
    with replace_file(path) as stream:
        stream.write("old")
    with pytest.raises(RuntimeError), replace_file(path) as stream:
        stream.write("half of the n")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_a_directory_is_replaced_only_when_the_block_ends_well(tmp_path):
    path = tmp_path / "model"
    with replace_directory(path) as aside:
        (aside / "weights").write_text("old")
    with pytest.raises(RuntimeError), replace_directory(path) as aside:
        (aside / "weights").write_text("new")
        raise RuntimeError
    assert (path / "weights").read_text() == "old"
    with replace_directory(path) as aside:
        (aside / "other").write_text("new")
    assert [item.name for item in path.iterdir()] == ["other"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", [1, 200_000])
def test_a_truncated_last_line_is_passed_over_and_removed_before_the_next(tmp_path, size):
    path = tmp_path / "metrics.jsonl"
    append_jsonl(path, {"step": 1})
    with path.open("a") as stream:
        stream.write("x" * size)
    assert read_jsonl(path) == [{"step": 1}]
    append_jsonl(path, {"step": 2})
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    assert read_jsonl(tmp_path / "absent") == []
    path.write_text("x" * size)
    append_jsonl(path, {"step": 1})
    assert path.read_text() == '{"step": 1}\n'


@pytest.mark.parametrize("line", [b"{", b"[1]", b"\x00" * 9, b"\xff", b"", b"[" * 100_000])
def test_another_damaged_line_is_named_with_its_number_and_the_remedy(tmp_path, line):
    path = tmp_path / "log"
    path.write_bytes(b'{"a": 1}\n' + line + b'\n{"a": 3}\n')
    with pytest.raises(DamagedFileError, match=r"log:2: truncated or corrupt, not JSON; do this"):
        read_jsonl(path, "do this")


def test_a_file_written_atomically_has_no_unfinished_line_and_every_field(tmp_path):
    path = tmp_path / "published"
    write_jsonl(path, [{"a": 1, "b": 2}, {"a": 3}])
    assert read_published(path, ["a"]) == [{"a": 1, "b": 2}, {"a": 3}]
    with pytest.raises(DamagedFileError, match=r"published:2: no b; remove it and run snakemake"):
        read_published(path, ["a", "b"])
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DamagedFileError, match=r"published:2: truncated, the last line has no"):
        read_published(path, ["a"])
    assert read_published(tmp_path / "absent") == []


def test_a_work_directory_of_another_configuration_is_refused(tmp_path):
    with work_directory(tmp_path, {"lr": 1, "seed": 0}):
        pass
    with work_directory(tmp_path, {"seed": 0, "lr": 1}):
        pass
    with (
        pytest.raises(ForeignDirectoryError, match="another configuration"),
        work_directory(tmp_path, {"lr": 2, "seed": 0}),
    ):
        pass


def test_a_directory_whose_replacement_was_killed_in_between_comes_back(tmp_path):
    old = tmp_path / ".model.4711.old"
    old.mkdir()
    (old / "weights").write_text("old")
    with pytest.raises(RuntimeError), replace_directory(tmp_path / "model"):
        raise RuntimeError
    assert (tmp_path / "model" / "weights").read_text() == "old"
    with replace_directory(tmp_path / "model") as aside:
        (aside / "weights").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model" / "weights").read_text() == "new"
