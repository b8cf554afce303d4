"""Only whole checkpoints of the own run are continued; the others are skipped, with a line."""

import errno
import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from stapo.training import step_checkpoints as module
from stapo.training.step_checkpoints import (
    SEAL,
    checksums_of_rank,
    newest_whole,
    put_in_place,
    require_space,
    seal,
    step_checkpoints,
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
    seal(directory, identity, checksums_of_rank(directory, 0, 1))
    put_in_place(directory, output, keep)


def newest(
    output: Path, identity: dict[str, Any] = OURS, before: int | None = None
) -> tuple[int | None, list[str]]:
    said: list[str] = []
    found = newest_whole(output, identity, said.append, before)
    return (step_of(found) if found else None), said


def test_the_newest_by_number_is_continued(output):
    assert [step_of(path) for path in step_checkpoints(output)] == [2, 4, 10]
    assert newest(output) == (10, [])
    assert newest(output / "nothing") == (None, [])


def test_a_checkpoint_below_those_that_were_passed_over_is_kept(output):
    """Or a training that starts again below them would keep none of its own."""
    for step in (1, 2, 3):
        write(output, step, keep=2)
    assert [step_of(path) for path in step_checkpoints(output)] == [2, 3, 4, 10]


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def zero_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer_0/part"])
@pytest.mark.parametrize("damage", [Path.unlink, truncate, flip_a_bit, zero_half])
def test_a_damaged_checkpoint_is_passed_over_with_a_line(output, name, damage):
    damage(output / "checkpoint-10" / name)
    step, (line,) = newest(output)
    assert step == 4
    assert "checkpoint-10: skipped, truncated or corrupt: " in line
    assert name in line


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", "[" * 100_000, "\xff"])
def test_without_a_readable_seal_it_is_passed_over(output, text):
    path = output / "checkpoint-10" / SEAL
    path.unlink() if text is None else path.write_text(text, encoding="latin-1")
    assert newest(output)[0] == 4


@pytest.mark.parametrize(
    ("old", "new"),
    [('"step": 10', '"step": 11'), ("whole states", "whole statet"), ("a" * 16, "a" * 15 + "b")],
)
def test_a_changed_seal_is_passed_over_and_is_neither_foreign_nor_an_error(output, old, new):
    path = output / "checkpoint-10" / SEAL
    path.write_text(path.read_text().replace(old, new))
    step, (line,) = newest(output)
    assert step == 4
    assert "its seal was changed" in line


@pytest.mark.parametrize(("number", "step"), [(errno.EIO, 4), (errno.EACCES, None)])
def test_a_disk_that_fails_is_damage_and_a_missing_permission_is_not(
    output, monkeypatch, number, step
):
    real = module.file_sums

    def fail(root: Path, names: Any) -> dict[str, str]:
        if root.name == "checkpoint-10":
            raise OSError(number, "no", str(root / "model.safetensors"))
        return real(root, names)

    monkeypatch.setattr(module, "file_sums", fail)
    if step:
        assert newest(output)[0] == step
    else:
        with pytest.raises(OSError, match="no"):
            newest(output)


def test_each_rank_takes_the_checksums_of_its_own_files_and_no_file_is_forgotten(tmp_path):
    names = [
        "model/__0_0.distcp",
        "model/__1_0.distcp",
        "model/__1_1.distcp",
        "model/.metadata",
        "rng_state_0.pth",
        "rng_state_1.pth",
        "scheduler.pt",
        "model-00001-of-00002.safetensors",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    first, second = (checksums_of_rank(tmp_path, rank, 2) for rank in range(2))
    assert sorted(second) == ["model/__1_0.distcp", "model/__1_1.distcp", "rng_state_1.pth"]
    assert sorted([*first, *second]) == sorted(names)
    assert first["scheduler.pt"]["sha256"] == hashlib.sha256(b"scheduler.pt").hexdigest()


def test_a_foreign_checkpoint_is_passed_over_with_a_line(output):
    write(output, 12, {**OURS, "fingerprint": "b" * 16})
    # A copy under another number is not the state after that step.
    shutil.copytree(output / "checkpoint-2", output / "checkpoint-14")
    step, said = newest(output)
    assert step == 10
    assert ["written by another run" in line for line in said] == [True, True]


def test_another_layout_is_an_error_rather_than_a_new_start(output):
    with pytest.raises(ValueError, match=r"checkpoint-10: written with whole states.*FSDP"):
        newest(output, {**OURS, "layout": "FSDP"})


def test_the_old_goes_only_when_the_new_is_there(output, monkeypatch):
    def fail(*_: Any) -> None:
        raise OSError("no")

    with monkeypatch.context() as context:
        context.setattr(module.os, "replace", fail)
        with pytest.raises(OSError, match="no"):
            write(output, 12, keep=1)
    assert [step_of(path) for path in step_checkpoints(output)] == [2, 4, 10]
    shutil.rmtree(output / "writing")
    write(output, 12, keep=2)
    assert [step_of(path) for path in step_checkpoints(output)] == [10, 12]


def test_too_little_space_names_what_is_needed(tmp_path):
    require_space(tmp_path, 1)
    with pytest.raises(OSError, match=r"needs 1000000000\.00 GB and .* are free") as caught:
        require_space(tmp_path, 10**18)
    assert caught.value.filename == str(tmp_path)
