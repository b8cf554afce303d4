"""Only whole checkpoints of the own run are continued; others are skipped with a line."""

import shutil
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from training_jobs import TRAINING, assert_same, job_in, metrics, parity_reward, run

from stapo.core import attempts as attempts_module, checkpoints as module, files
from stapo.core.attempts import joules_of
from stapo.core.checkpoints import (
    ROLLOUT_FILE,
    SEAL,
    STATE_FILE,
    newest_whole,
    put_in_place,
    seal,
    step_checkpoints,
    step_of,
)
from stapo.core.files import read_json
from stapo.core.methods import METHODS
from stapo.core.step_record import gpu_seconds
from stapo.suite.jobs import jobs_of
from stapo.suite.study import merge, parse_study
from stapo.suite.training import rewards, run as run_module

OURS: dict[str, Any] = {"fingerprint": "a" * 16, "layout": "whole states", "num_processes": 1}
KEEP = {"keep_checkpoints": 6}


def write(
    output: Path, step: int, identity: dict[str, Any] = OURS, keep: int | None = None
) -> None:
    directory = output / "writing" / f"checkpoint-{step}"
    (directory / "optimizer_0").mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(b"m" * 100)
    (directory / "optimizer_0" / "part").write_bytes(b"o" * 50)
    seal(directory, identity)
    put_in_place(directory, output, keep)


@pytest.fixture
def output(tmp_path) -> Path:
    """Checkpoints after the steps 2, 4 and 10."""
    for step in (2, 4, 10):
        write(tmp_path, step)
    return tmp_path


def newest(output: Path, identity: dict[str, Any] = OURS) -> tuple[int | None, str]:
    said: list[str] = []
    with patch.object(module, "say", said.append):
        found = newest_whole(output, identity)
    return (step_of(found) if found else None), " ".join(said)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def replaced(old: str, new: str) -> Any:
    return lambda path: path.write_text(path.read_text().replace(old, new))


def overwritten(text: str) -> Any:
    return lambda path: path.write_text(text, encoding="latin-1")


FILES = ("model.safetensors", "optimizer_0/part")
DAMAGES = [
    (FILES[0], Path.unlink, FILES[0]),
    (FILES[0], lambda path: path.write_bytes(path.read_bytes()[:-1]), FILES[0]),
    *((name, flip_a_bit, f"{name} was changed") for name in FILES),
    (SEAL, Path.unlink, "incomplete: it has no seal"),
    *((SEAL, overwritten(one), "unreadable") for one in ("", "{", "[]", "{}", "\xff")),
    (SEAL, overwritten("[" * 100_000), "unreadable"),
    (SEAL, replaced('"step": 10', '"step": 11'), "its seal was changed"),
    (SEAL, replaced("whole states", "whole statet"), "its seal was changed"),
]


@pytest.mark.parametrize(("name", "damage", "said"), DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_with_a_line(output, name, damage, said):
    assert newest(output) == (10, "")
    damage(output / "checkpoint-10" / name)
    step, line = newest(output)
    assert step == 4
    assert f"{output}/checkpoint-10: skipped, " in line
    assert said in line


def test_a_foreign_one_is_passed_over_and_another_layout_is_an_error(output):
    write(output, 12, {**OURS, "fingerprint": "b" * 16})
    # A copy under another number is not the state after that step.
    shutil.copytree(output / "checkpoint-2", output / "checkpoint-14")
    step, said = newest(output)
    assert step == 10
    assert said.count("written by another run") == 2
    with pytest.raises(ValueError, match=r"checkpoint-10: written with whole states.*FSDP"):
        newest(output, {**OURS, "layout": "FSDP"})


def test_the_old_go_only_when_the_new_is_there_and_those_passed_over_stay(output, monkeypatch):
    def fail(*_: Any) -> None:
        raise OSError("no")

    with monkeypatch.context() as context:
        context.setattr(module.os, "replace", fail)
        with pytest.raises(OSError, match="no"):
            write(output, 12, keep=1)
    shutil.rmtree(output / "writing")
    # A training that starts again below the others would otherwise keep none of its own.
    for step in (1, 2, 3):
        write(output, step, keep=2)
    assert [step_of(path) for path in step_checkpoints(output)] == [2, 3, 4, 10]
    write(output, 12, keep=2)
    assert [step_of(path) for path in step_checkpoints(output)] == [10, 12]


# In trainings


def test_damaged_checkpoints_and_logs_make_the_run_resume_before_them(
    world, reference, tmp_path, capsys
):
    """In the middle of a rollout, after a run that was killed before it published."""
    work = tmp_path / "work"
    with (
        patch.object(run_module, "_publish", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        run(world, tmp_path, **KEEP)
    assert (work / "checkpoint-5" / ROLLOUT_FILE).exists()
    flip_a_bit(work / "checkpoint-6" / "rng_state.pth")
    # The log of the work directory has lost lines and one in its middle: the checkpoint has it whole.
    lines = (work / "metrics.jsonl").read_text().splitlines(keepends=True)
    (work / "metrics.jsonl").write_text(lines[0] + "{" + lines[2])
    (work / "tokens.jsonl").unlink()
    run(world, tmp_path, **KEEP)
    said = capsys.readouterr().out
    assert "checkpoint-6: skipped, truncated or corrupt: rng_state.pth" in said
    assert "resuming after step 5 of 6" in said
    assert_same(tmp_path, reference)


def test_a_whole_training_that_was_not_published_makes_no_update_more(world, tmp_path):
    """Its last rollout has a mini-batch left."""
    for _ in range(2):
        with (
            patch.object(run_module, "_publish", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            run(world, tmp_path, steps=5)
    assert [one["step"] for one in metrics(tmp_path / "work")] == [1, 2, 3, 4, 5]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("least", "share", "steps"), [(180, 1 / 30, [4, 6]), (75, 1 / 30, [2, 6]), (75, 1, [2, 4, 6])]
)
def test_without_a_number_of_steps_checkpoints_are_written_by_time(
    world, tmp_path, least, share, steps
):
    """On a clock of 50 s per look, which is once after each step, and before and after each checkpoint."""
    clock = SimpleNamespace(monotonic=partial(next, count(0.0, 50.0)))
    with (
        patch.multiple(files, LEAST_SECONDS=least, MOST_SHARE=share),
        patch.object(module, "time", clock),
        patch.object(run_module, "_publish", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        run(world, tmp_path, checkpoint_every=None, **KEEP)
    assert [step_of(path) for path in step_checkpoints(tmp_path / "work")] == steps


def test_kept_weights_that_are_damaged_are_made_again(world, tmp_path, capsys):
    def again() -> None:
        with patch.dict(rewards.BUILT_IN, boxed=lambda completions, **_: [1.0, -1.0] * 16):
            run_module.train(job_in(world, tmp_path, TRAINING, "stapo", kept_steps=[4]))

    again()
    published = tmp_path / "step4" / "model.safetensors"
    whole = published.read_bytes()
    # One file with two names: what changes the published one in its place changes the kept one.
    flip_a_bit(published)
    assert (tmp_path / "work" / "weights" / "step4" / "model.safetensors").read_bytes() != whole
    shutil.rmtree(tmp_path / "model")
    again()
    assert "training from step 0 of 6" in capsys.readouterr().out
    assert (tmp_path / "step4" / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize("steps", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_longer_training_goes_on_from_a_shorter_one_with_the_same_bits(
    world, raw_study, tmp_path, capsys, monkeypatch, steps
):
    """Also from the middle of a rollout; the last weights of the shorter one are kept ones of the longer."""

    def trained(name: str, steps: int, kept: list[int], **changes: Any) -> Path:
        training = TRAINING.model_copy(update={"steps": steps, "checkpoint_every": 2})
        work = tmp_path / name
        study = parse_study(merge(raw_study, {"training": {"steps": steps, **changes}}))
        config = jobs_of(study).job("train", "tiny/stapo/seed0").config
        with patch.dict(rewards.BUILT_IN, boxed=parity_reward):
            job = job_in(world, tmp_path, training, "stapo", config=config, kept_steps=kept)
            run_module.train(replace(job, work=work, out=work / "published"))
        return work

    monkeypatch.setattr(attempts_module, "energy_joules", lambda: 5.0)
    short = trained("both/short", steps, [2])
    trained("both/other", 5, [2], learning_rate=0.5)
    before = {path: path.read_bytes() for path in short.rglob("*") if path.is_file()}
    capsys.readouterr()
    long, alone = (trained(name, 6, [2, steps]) for name in ("both/long", "alone/long"))
    said = capsys.readouterr().out
    assert f"going on from step {steps} of {short}" in said
    assert said.count("resuming after step") == said.count("training from step 0 of 6") == 1
    assert_same(long / "published", alone / "published")
    for step in (2, steps):
        one, two = (work / f"published/step{step}/SHA256SUMS" for work in (long, alone))
        assert one.read_bytes() == two.read_bytes()
    assert {path: path.read_bytes() for path in before} == before
    # What the shorter one used is not known to the longer.
    used = [read_json(one / "published/provenance.json")["joules"] for one in (long, alone)]
    assert used == [None, 0.0]


def test_steps_cost_the_ranks_that_made_them_and_energy_spent_in_vain_is_not_theirs():
    tried = [
        {"after_step": 0, "processes": 8, "joules": 5.0},
        {"after_step": 2, "processes": 4, "joules": 1.0},
    ]
    metrics = [
        {"step": step, "seconds": {"rollout": 3.0, "update": 1.0, "wait": 9.0}}
        for step in (1, 2, 3)
    ]
    assert gpu_seconds(metrics, tried) == 2 * 4 * 8 + 4 * 4
    assert joules_of(tried) == 6
    again = {"after_step": 0, "processes": 8, "joules": 2.0}
    assert gpu_seconds(metrics, [*tried, again]) == 3 * 4 * 8
    assert joules_of([*tried, again]) is None


def test_what_a_penalty_remembers_goes_on_where_the_checkpoint_was(world, tmp_path):
    method = replace(METHODS["adaptive-entropy"], args={"entropy_target": 9.0})
    for steps in (2, 4):  # The second training resumes after the first.
        training = TRAINING.model_copy(update={"steps": steps})
        with patch.dict(rewards.BUILT_IN, boxed=parity_reward):
            run_module.train(replace(job_in(world, tmp_path, training, "justrl"), method=method))
        state = read_json(tmp_path / "work" / f"checkpoint-{steps}" / STATE_FILE)
        assert state["coefficient"] == pytest.approx(steps * 1e-4)
