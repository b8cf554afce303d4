"""Files appear whole or not at all; a work directory has one owner and one purpose."""

import subprocess
import sys

import pytest

from stapo.artifacts import (
    BusyError,
    ForeignDirectoryError,
    append_jsonl,
    checkpoint_path,
    read_jsonl,
    replace_directory,
    replace_file,
    work_directory,
)


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


def test_a_torn_last_line_is_passed_over(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append_jsonl(path, {"step": 1})
    with path.open("a") as stream:
        stream.write('{"step": 2, "rew')
    assert read_jsonl(path) == [{"step": 1}]
    assert read_jsonl(tmp_path / "absent") == []


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


def test_a_second_process_is_refused_while_the_first_works(tmp_path):
    code = (
        "import sys; from pathlib import Path; from stapo.artifacts import work_directory\n"
        "with work_directory(Path(sys.argv[1]), 1): print('mine', flush=True); sys.stdin.read()"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdin is not None
    assert first.stdout is not None
    assert first.stdout.readline() == b"mine\n"
    with pytest.raises(BusyError, match="another process"), work_directory(tmp_path, 1):
        pass
    first.kill()  # The lock of a killed process is free at once.
    first.wait()
    with work_directory(tmp_path, 1):
        pass


def test_paths_of_checkpoints():
    assert checkpoint_path("smoke", "tiny/base") == "results/smoke/models/tiny/base"
    assert (
        checkpoint_path("smoke", "tiny/stapo/seed3") == "results/smoke/runs/tiny/stapo/seed3/model"
    )
