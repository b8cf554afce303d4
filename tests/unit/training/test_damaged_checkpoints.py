"""Damage in a work directory: skipped with a line, the run ends in the same bits; or one error."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from test_step_checkpoints import flip_a_bit
from training_jobs import TRAINING, assert_same, job_in, run

from stapo.files import DamagedFileError
from stapo.provenance import SUMS
from stapo.training import rewards
from stapo.training import run as run_module
from stapo.training.resumable import ROLLOUT_FILE
from stapo.training.step_checkpoints import (
    SEAL,
    checksums_of_rank,
    newest_whole,
    seal,
    step_checkpoints,
)

KEEP = {"keep_checkpoints": 6}


@pytest.fixture(scope="module")
def stopped(world, tmp_path_factory) -> Path:
    """A run of six steps, killed before it published: it has a checkpoint after every step."""
    out = tmp_path_factory.mktemp("stopped")
    with (
        patch.object(run_module, "_publish", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        run(world, out, **KEEP)
    assert len(step_checkpoints(out / "work")) == 6
    return out


@pytest.fixture
def copy(stopped, tmp_path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "copy"))


def garble(checkpoint: Path, name: str) -> None:
    """Make a part of a checkpoint unreadable, with checksums that agree."""
    (checkpoint / name).write_bytes(b"garbage" * 100)
    identity = json.loads((checkpoint / SEAL).read_text())
    (checkpoint / SEAL).unlink()
    names = ("fingerprint", "layout", "num_processes")
    seal(checkpoint, {n: identity[n] for n in names}, checksums_of_rank(checkpoint, 0, 1))


def test_one_flipped_bit_in_any_file_is_noticed(copy):
    """In weights, optimiser, scheduler, random state, the rollout in use, records and settings."""
    newest = copy / "work" / "checkpoint-5"
    shutil.rmtree(copy / "work" / "checkpoint-6")
    names = [path.name for path in newest.iterdir()]
    expected = {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", ROLLOUT_FILE}
    logs = {"metrics.jsonl", "tokens.jsonl"}
    assert expected | logs | {"trainer_state.json", SEAL} <= set(names)
    identity = json.loads((newest / SEAL).read_text())
    for name in names:
        whole = (newest / name).read_bytes()
        flip_a_bit(newest / name)
        said: list[str] = []
        found = newest_whole(copy / "work", identity, said.append)
        assert found == copy / "work" / "checkpoint-4", name
        assert len(said) == 1
        (newest / name).write_bytes(whole)
    assert newest_whole(copy / "work", identity, said.append) == newest


def test_a_damaged_checkpoint_makes_the_run_resume_in_the_middle_of_a_rollout(
    world,
    reference,
    copy,
    capsys,
):
    work = copy / "work"
    flip_a_bit(work / "checkpoint-6" / "rng_state.pth")
    # The log of the work directory has lost lines and one in its middle: the checkpoint has it whole.
    lines = (work / "metrics.jsonl").read_text().splitlines(keepends=True)
    (work / "metrics.jsonl").write_text(lines[0] + "{" + lines[2])
    (work / "tokens.jsonl").unlink()
    with patch("transformers.trainer.logger.warning") as warned:
        run(world, copy, **KEEP)
    # The head is tied to the embedding, which would be called a missing key.
    assert "missing keys" not in str(warned.call_args_list)
    said = capsys.readouterr().out
    assert "checkpoint-6: skipped, truncated or corrupt: rng_state.pth" in said
    assert "resuming after step 5 of 6" in said
    assert_same(copy, reference)


def test_a_checkpoint_that_cannot_be_loaded_is_passed_over(world, reference, copy, capsys):
    garble(copy / "work" / "checkpoint-6", "trainer_state.json")
    garble(copy / "work" / "checkpoint-5", "optimizer.pt")
    garble(copy / "work" / "checkpoint-4", "rng_state.pth")
    garble(copy / "work" / "checkpoint-3", ROLLOUT_FILE)
    run(world, copy, **KEEP)
    said = [line for line in capsys.readouterr().out.splitlines() if "cannot be loaded" in line]
    assert len(said) == 4
    assert "checkpoint-5: skipped, cannot be loaded: UnpicklingError" in said[1]
    assert_same(copy, reference)


def test_no_training_starts_again_because_nothing_can_be_loaded(world, copy):
    for checkpoint in step_checkpoints(copy / "work")[:-1]:
        shutil.rmtree(checkpoint)
    garble(copy / "work" / "checkpoint-6", "optimizer.pt")
    with pytest.raises(RuntimeError, match=r"checkpoint-6: cannot be loaded.*no older checkpoint"):
        run(world, copy, **KEEP)
    assert (copy / "work" / "checkpoint-6" / "model.safetensors").exists()
    assert not (copy / "model").exists()


@pytest.mark.parametrize("log", ["attempts.jsonl", "metrics.jsonl"])
def test_a_truncated_log_does_not_make_a_training_unpublishable(
    world,
    reference,
    copy,
    log,
):
    path = copy / "work" / log
    path.write_bytes(path.read_bytes()[:-10])
    run(world, copy, **KEEP)
    assert_same(copy, reference)
    assert (copy / "provenance.json").exists()


def test_kept_weights_that_are_damaged_are_made_again(world, tmp_path, capsys):
    def again() -> None:
        with patch.dict(rewards.BUILT_IN, boxed=lambda completions, **_: [1.0, -1.0] * 16):
            _train(world, tmp_path)

    again()
    published = tmp_path / "step4" / "model.safetensors"
    whole = published.read_bytes()
    assert SUMS in [path.name for path in published.parent.iterdir()]
    # One file with two names: what changes the published one in its place changes the kept one.
    flip_a_bit(published)
    assert (tmp_path / "work" / "weights" / "step4" / "model.safetensors").read_bytes() != whole
    shutil.rmtree(tmp_path / "model")
    again()
    assert "step 4 must be done again: " in capsys.readouterr().out
    assert (tmp_path / "step4" / "model.safetensors").read_bytes() == whole


def _train(world: Path, out: Path, **named: Any) -> None:
    run_module.train(job_in(world, out, TRAINING, "stapo", kept_steps=[4], **named))


def test_a_damaged_base_model_is_no_start(world, tmp_path):
    from stapo.provenance import write_sums

    shutil.copytree(world / "base", tmp_path / "world" / "base")
    shutil.copy(world / "prompts.jsonl", tmp_path / "world")
    write_sums(tmp_path / "world" / "base")
    flip_a_bit(tmp_path / "world" / "base" / "model.safetensors")
    with pytest.raises(
        DamagedFileError, match=r"model\.safetensors: missing, truncated or corrupt"
    ):
        run(tmp_path / "world", tmp_path / "out")
