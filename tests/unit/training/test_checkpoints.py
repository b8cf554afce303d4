"""Only whole checkpoints of the own run are continued; the others are passed over, aloud."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stapo.training import checkpoints as module
from stapo.training.checkpoints import (
    SEAL,
    checkpoints,
    newest_whole,
    publish,
    require_space,
    seal,
    step_of,
)

OURS: dict[str, Any] = {"fingerprint": "a" * 16, "layout": "whole states", "num_processes": 1}


@pytest.fixture
def output(tmp_path) -> Path:
    """Checkpoints after the steps 2, 4 and 10."""
    for step in (2, 4, 10):
        write(tmp_path, step)
    return tmp_path


def write(
    output: Path, step: int, identity: dict[str, Any] = OURS, keep: int | None = None
) -> None:
    directory = output / "writing" / f"checkpoint-{step}"
    (directory / "optimizer_0").mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(b"m" * 100)
    (directory / "optimizer_0" / "part").write_bytes(b"o" * 50)
    seal(directory, identity)
    publish(directory, output, keep)


def newest(output: Path, identity: dict[str, Any] = OURS) -> tuple[int | None, list[str]]:
    said: list[str] = []
    found = newest_whole(output, identity, said.append)
    return (step_of(found) if found else None), said


def test_the_newest_by_number_is_continued(output):
    assert [step_of(path) for path in checkpoints(output)] == [2, 4, 10]
    assert newest(output) == (10, [])
    assert newest(output / "nothing") == (None, [])


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer_0/part"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"x")])
def test_a_torn_checkpoint_is_passed_over_with_a_line(output, name, damage):
    damage(output / "checkpoint-10" / name)
    step, (line,) = newest(output)
    assert step == 4
    assert "checkpoint-10: passed over, torn" in line
    assert name in line


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}"])
def test_without_a_readable_seal_it_is_torn(output, text):
    path = output / "checkpoint-10" / SEAL
    path.unlink() if text is None else path.write_text(text)
    assert newest(output)[0] == 4


def test_a_foreign_checkpoint_is_passed_over_with_a_line(output):
    write(output, 12, {**OURS, "fingerprint": "b" * 16})
    # A copy under another number is not the state after that step.
    shutil.copytree(output / "checkpoint-2", output / "checkpoint-14")
    step, said = newest(output)
    assert step == 10
    assert ["foreign" in line for line in said] == [True, True]


def test_another_layout_is_an_error_rather_than_a_new_start(output):
    with pytest.raises(ValueError, match=r"checkpoint-10: written under whole states.*FSDP"):
        newest(output, {**OURS, "layout": "FSDP"})


def test_the_old_goes_only_when_the_new_is_there(output, monkeypatch):
    def fail(*_: Any) -> None:
        raise OSError("no")

    with monkeypatch.context() as context:
        context.setattr(module.os, "replace", fail)
        with pytest.raises(OSError, match="no"):
            write(output, 12, keep=1)
    assert [step_of(path) for path in checkpoints(output)] == [2, 4, 10]
    shutil.rmtree(output / "writing")
    write(output, 12, keep=2)
    assert [step_of(path) for path in checkpoints(output)] == [10, 12]


def test_too_little_space_names_what_is_needed(tmp_path):
    require_space(tmp_path, 1)
    with pytest.raises(OSError, match=r"needs 1000000000\.00 GB and .* are free") as caught:
        require_space(tmp_path, 10**18)
    assert caught.value.filename == str(tmp_path)


def test_the_seal_says_what_belongs_to_it(output):
    record = json.loads((output / "checkpoint-4" / SEAL).read_text())
    assert record["files"] == {"model.safetensors": 100, "optimizer_0/part": 50}
    assert record["step"] == 4
