"""What is planned: jobs, what is learnt from metrics, what may not fit, what is printed."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from stapo.files import write_json
from stapo.operations.costs import ASSUMPTIONS, DEVICES
from stapo.operations.memory import ASSUMED, host_warnings, memory_warnings
from stapo.operations.plan import (
    CostRow,
    Machine,
    disk_needed,
    found_of,
    machine,
    plan,
    print_plan,
    wall_hours,
)
from stapo.paths import METRICS, RUN_PROVENANCE, TRAIN_WORK
from stapo.repository import STUDIES
from stapo.study import Study, StudyError, TrainingRun, identity, parse_study, read_study
from stapo.training.launch import division_errors

CPU = Machine(DEVICES["cpu"])
PAPER = read_study(STUDIES / "paper.yaml")


@pytest.fixture
def study(raw_study):
    return parse_study(raw_study)


def changed(part: str, **settings) -> Study:
    return PAPER.model_copy(update={part: getattr(PAPER, part).model_copy(update=settings)})


def write_metrics(path: Path, steps: int, slower: float = 1.0) -> None:
    """Write metrics as a training does, of 0.2575 s a step; the first rollout takes three times as long."""
    path.parent.mkdir(parents=True)
    with path.open("w") as stream:
        for step in range(1, steps + 1):
            factor = slower * (3 if step <= 4 else 1)
            seconds = {"update": 0.095 * factor}
            if step % 4 == 1:
                seconds |= {"rollout": 0.65 * factor}
            stream.write(json.dumps({"step": step, "seconds": seconds}) + "\n")
        stream.write('{"step": 999, "sec')  # Cut off by a kill.


def work(root: Path, study: Study, method: str) -> Path:
    own = identity.train_fingerprint(study, TrainingRun("tiny", method, 0))
    return root / TRAIN_WORK.format(fingerprint=own) / "metrics.jsonl"


def rows(study: Study, root: Path, on: Machine = CPU) -> dict[str, CostRow]:
    return {f"{row.stage} {row.what}": row for row in plan(study, on, found_of(study, root))}


def test_all_jobs_of_the_smoke_study_are_counted(study, tmp_path):
    found = rows(study, tmp_path)
    jobs: dict[str, int] = {}
    for row in found.values():
        assert (row.done, row.basis) == (0, "estimated")
        jobs[row.stage] = jobs.get(row.stage, 0) + row.jobs
    assert jobs == {"base model": 1, "train": 4, "generate": 10, "score": 60}
    # fp32 weights of 0.26M parameters and a step checkpoint of three times their size.
    assert found["train tiny stapo"].disk == pytest.approx(4 * 1.05e6, rel=0.01)


def test_measured_steps_replace_the_estimate_also_of_methods_without_metrics(study, tmp_path):
    before = rows(study, tmp_path)
    write_metrics(work(tmp_path, study, "stapo"), 44)
    found = rows(study, tmp_path)
    assert {row.basis for row in found.values() if row.stage == "train"} == {"measured"}
    own, new = found["train tiny stapo"], found["train tiny grpo"]
    # Saving after every step: 12 bytes for each of 0.26M parameters, at 0.5 GB per second; 5 s to start.
    assert own.hours * 3600 == pytest.approx(5 + (96 - 44) * (0.2575 + 0.0063), rel=0.03)
    assert own.tokens == pytest.approx(before["train tiny stapo"].tokens * 52 / 96)
    # The reference model of GRPO costs what the estimate says.
    ratio = (before["train tiny grpo"].hours / before["train tiny stapo"].hours) * 96 / 52
    assert new.hours / own.hours == pytest.approx(ratio, rel=0.15)


def test_metrics_of_other_settings_are_not_this_study_s(study, raw_study, tmp_path):
    write_metrics(work(tmp_path, study, "stapo"), 96)
    raw_study["training"]["group_size"] = 4
    assert rows(parse_study(raw_study), tmp_path)["train tiny stapo"].basis == "estimated"


@pytest.mark.parametrize("same", [True, False])
def test_a_published_training_is_done_if_it_has_the_settings_of_the_study(study, tmp_path, same):
    place = {"study": "smoke", "size": "tiny", "method": "stapo", "seed": 0}
    write_metrics(tmp_path / METRICS.format(**place), 96)
    made_by = identity.train_fingerprint(study, TrainingRun("tiny", "stapo", 0))
    record = {"fingerprint": made_by if same else "0" * 16, "outputs": {}}
    write_json(tmp_path / RUN_PROVENANCE.format(**place), record)
    found = rows(study, tmp_path)["train tiny stapo"]
    assert (found.done, found.basis, found.hours == 0) == (same, "measured", same)


@pytest.mark.parametrize(
    ("total", "devices", "hours"), [(8, 8, 8), (24, 8, 4), (64, 8, 2), (64, 0, 8)]
)
def test_jobs_run_as_many_at_once_as_there_are_devices(total, devices, hours):
    four = CostRow("train", "x", jobs=4, done=0, hours=8.0, longest=2.0, devices=devices)
    on = Machine(DEVICES["h200"], 8, total)
    assert wall_hours([four], on) == hours
    long = CostRow("train", "y", jobs=1, done=0, hours=20.0, longest=20.0, devices=devices)
    assert wall_hours([four, long], on) >= 20
    assert wall_hours([], on) == 0


def test_what_may_not_fit_is_named_with_as_many_gpus_as_would_do():
    line = memory_warnings(PAPER, 1, 141e9)[-1]
    assert line.startswith("models.14B: a training needs ")
    assert "1 GPUs of 141.0 GB in its update phase (parameters 59.1, reference 59.1, Adam" in line
    enough = int(line.split(" GPUs would be enough")[0].split()[-1])
    assert memory_warnings(PAPER, enough, 141e9) == []
    assert memory_warnings(PAPER, enough // 2, 141e9) != []
    # What one micro-batch takes is not shared by more GPUs.
    wide = memory_warnings(changed("training", micro_batch_tokens=800_000), 1, 141e9)[0]
    assert "no number of GPUs would be enough; or reduce training" in wide
    small = memory_warnings(changed("engine", vllm_gpu_memory=0.1, sizes={}), 16, 80e9)
    assert any("vLLM's share is 8.0 GB, but weights and one response need" in x for x in small)
    assert host_warnings(PAPER, "8B", 8, 1, 450e9) == []
    assert "8 processes need 425 GB of host memory" in host_warnings(PAPER, "8B", 8, 1, 400e9)[0]


def test_the_curve_is_counted_by_itself(tmp_path):
    found = rows(PAPER, tmp_path, machine(PAPER, "h100", 8, 64))
    curve = found["generate 8B curve"]
    # 24 of 29 steps of each of 4 trainings; 30 problems with 32 responses of 0.35 of the limit.
    assert curve.jobs == 4 * 24
    assert curve.tokens == pytest.approx(4 * 24 * 960 * 0.35 * 20480)
    # float32 weights after 29 steps and the last one, and a step checkpoint; 8.2e9 parameters.
    assert found["train 8B stapo"].disk == pytest.approx(33 * 4 * 8.2e9, rel=0.01)


def test_the_first_line_answers_and_assumptions_come_last(study, tmp_path, capsys):
    print_plan(PAPER, machine(PAPER, "h100"), Console(width=160), tmp_path)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("paper on 8 x h100, 8 for each training: ")
    assert [line.split()[0] for line in shown[1:8] if line.split()[0:1]][2:] == ["8", "64", "512"]
    assert shown[-len(ASSUMPTIONS) :] == [f"assumption: {line}" for line in ASSUMPTIONS]
    print_plan(PAPER, machine(PAPER, "a100", 1), Console(width=160), tmp_path)
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].startswith("warning: models.1.7B: a training needs")
    assert f"warning: {ASSUMED}" in shown
    print_plan(study, machine(study), Console(width=160), tmp_path)
    shown = capsys.readouterr().out
    assert shown.startswith("smoke on 1 x cpu, 1 for each training: ")
    assert "warning" not in shown
    assert " 0.0" not in shown


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (("h300",), "--gpu: unknown device 'h300'; known: h200"),
        (("h200", 8, 4), "--gpus, --total-gpus: 8 of 4 h200 is invalid"),
        (("cpu", 1, 2), "cpu supports one device"),
        (("h200", 0), "--gpus: expected at least 1"),
        (("h200", 48), "a mini-batch of 512 responses is not divisible by 48 GPUs"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(asked, line):
    with pytest.raises(StudyError, match=line):
        machine(PAPER, *asked)
    assert division_errors(PAPER, 64) == []


def test_a_model_of_unknown_shape_is_an_error_of_the_plan_alone(raw_study, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    raw_study["models"]["tiny"] = {"hub": "some/model", "revision": "3" * 40}
    study = parse_study(raw_study)
    with pytest.raises(StudyError, match=r"shape of some/model unknown.*Qwen/Qwen3-8B-Base"):
        plan(study, CPU, found_of(study, tmp_path))
    assert disk_needed(study) is None
    assert memory_warnings(study, 8, 80e9) == host_warnings(study, "tiny", 8, 1, 1) == []
