"""What is planned: jobs, what is learnt from metrics, what cannot fit, what is printed."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stapo.evaluation.verifier import BATCH_TOKENS
from stapo.files import write_json
from stapo.models.shapes import SHAPES
from stapo.operations.costs import ASSUMPTIONS, DEVICES
from stapo.operations.plan import (
    CostRow,
    Machine,
    disk_needed,
    machine,
    memory_warnings,
    plan,
    print_plan,
    shape_of,
    wall_hours,
)
from stapo.paths import COMPLETIONS, METRICS, RUN_PROVENANCE, TRAIN_WORK
from stapo.repository import CATALOGUE
from stapo.study import Study, StudyError, TrainingRun, identity, merge, parse_study
from stapo.study.loader import load_yaml
from stapo.study.sources import HubModel
from stapo.training import memory
from stapo.training.memory import (
    ASSUMED,
    JUDGED_TOKENS,
    division_errors,
    host_warnings,
    verifier_warnings,
)

CPU = Machine(DEVICES["cpu"])
START = 5 / 3600


@pytest.fixture
def study(raw_study):
    return parse_study(raw_study)


def paper_study(**changes: Any) -> Study:
    """A study of the paper's recipe on two of its models."""
    wanted = {
        "name": "paper-like",
        "data": {"hub": "some/prompts", "revision": "1" * 40},
        "training": {
            "steps": 3000, "prompts_per_batch": 256, "group_size": 8, "prompts_per_mini_batch": 64,
            "micro_batch_tokens": 32768, "learning_rate": 1e-6, "max_prompt_tokens": 1024,
            "max_response_tokens": 15360, "rollouts": "vllm-colocate",
        },
        # Both sizes with the settings of the study, not those of the catalogue.
        "engine": {
            "vllm_gpu_memory": 0.4,
            "sizes": {"8B": {"vllm_gpu_memory": None, "vllm_tensor_parallel": None}},
        },
        "benchmarks": {"aime24": {"samples": 32}, "math500": {"samples": 4}},
        "evaluation": {
            "backend": "vllm", "batch_size": 4096, "max_response_tokens": 20480,
            "verifier": {"revision": "2" * 40}, "verdict": "verifier",
        },
        "run": {
            "sizes": ["1.7B", "8B"], "methods": ["grpo", "stapo"], "seeds": [0, 1],
            "decodings": ["t1.0-p1.0"], "benchmarks": ["aime24", "math500"],
        },
    }  # fmt: skip
    return parse_study(merge(merge(load_yaml(CATALOGUE).content, wanted), changes))


def write_metrics(path: Path, steps: int) -> float:
    """Write metrics as a training does; return the seconds of one step."""
    path.parent.mkdir(parents=True)
    rollout = {"generate": 0.5, "old_logps": 0.1, "reward": 0.0, "rollout": 0.65, "update": 0.11}
    with path.open("w") as stream:
        for step in range(1, steps + 1):
            seconds = rollout if step % 4 == 1 else {"update": 0.09}
            stream.write(json.dumps({"step": step, "seconds": seconds}) + "\n")
        stream.write('{"step": 999, "sec')  # Cut off by a kill.
    return (0.65 + 0.11 + 3 * 0.09) / 4


def work(root: Path, study: Study, method: str) -> Path:
    place = {"study": study.name, "size": "tiny", "method": method, "seed": 0}
    own = identity.train_fingerprint(study, TrainingRun("tiny", method, 0))
    return root / TRAIN_WORK.format(**place) / own / "metrics.jsonl"


def rows(study: Study, root: Path, stage: str) -> dict[str, CostRow]:
    return {row.what: row for row in plan(study, CPU, root) if row.stage == stage}


def test_all_jobs_of_the_smoke_study_are_counted(study, tmp_path):
    jobs: dict[str, int] = {}
    for row in plan(study, CPU, tmp_path):
        assert row.done == 0
        assert row.basis == "estimated"
        jobs[row.stage] = jobs.get(row.stage, 0) + row.jobs
    counted = {"prompts": 1, "base model": 1, "train": 4, "generate": 10, "score": 60, "tables": 1}
    assert jobs == counted
    # fp32 weights of 0.26M parameters and a step checkpoint of three times their size.
    assert rows(study, tmp_path, "train")["tiny stapo"].disk == pytest.approx(4 * 1.05e6, rel=0.01)


def test_measured_steps_replace_the_model_for_what_remains(study, tmp_path):
    before = rows(study, tmp_path, "train")
    step = write_metrics(work(tmp_path, study, "stapo"), 46)
    after = rows(study, tmp_path, "train")
    assert {what: row.basis for what, row in after.items() if row.basis == "measured"} == {
        "tiny stapo": "measured"
    }
    assert after["tiny grpo"] == before["tiny grpo"]
    left = (after["tiny stapo"].hours - START) * 3600
    # A checkpoint after every step: 12 bytes for each of 0.26M parameters, at 0.5 GB per second.
    assert left == pytest.approx((96 - 46) * (step + 3 * 1.05e6 / 5e8), rel=0.01)
    assert after["tiny stapo"].tokens == pytest.approx(before["tiny stapo"].tokens * 50 / 96)


def test_after_learning_the_rest_of_a_training_is_met_within_30_percent(study, tmp_path):
    """As in the smoke study: the first rollout takes three times as long, the others scatter by 20 %."""
    path = work(tmp_path, study, "stapo")
    path.parent.mkdir(parents=True)
    records = []
    for step in range(1, 97):
        scatter = (3.0 if step <= 4 else 1.0) * (1 + 0.2 * (-1) ** (step // 4))
        seconds = {"update": 0.09 * scatter}
        if step % 4 == 1:
            seconds |= {"rollout": 0.65 * scatter, "generate": 0.5 * scatter}
        records.append({"step": step, "seconds": seconds})
    path.write_text("".join(json.dumps(record) + "\n" for record in records[:12]))
    rest = sum(r["seconds"]["update"] + r["seconds"].get("rollout", 0) for r in records[12:])
    found = (rows(study, tmp_path, "train")["tiny stapo"].hours - START) * 3600
    assert found == pytest.approx(rest, rel=0.3)


def test_metrics_of_other_settings_are_not_this_study_s(study, raw_study, tmp_path):
    write_metrics(work(tmp_path, study, "stapo"), 96)
    raw_study["training"]["group_size"] = 4
    assert (
        rows(parse_study(raw_study), tmp_path, "train")["tiny stapo"].basis
        == rows(study, tmp_path / "empty", "train")["tiny stapo"].basis
        == "estimated"
    )


@pytest.mark.parametrize("settings", ["the study's", "others"])
def test_a_published_training_is_done_if_it_has_the_settings_of_the_study(
    study, tmp_path, settings
):
    place = {"study": "smoke", "size": "tiny", "method": "stapo", "seed": 0}
    write_metrics(tmp_path / METRICS.format(**place), 96)
    made_by = identity.train_fingerprint(study, TrainingRun("tiny", "stapo", 0))
    record = {"fingerprint": made_by if settings == "the study's" else "0" * 16}
    write_json(tmp_path / RUN_PROVENANCE.format(**place), record)
    cell = {"study": "smoke", "checkpoint": "tiny/stapo/seed0", "decoding": "t1.0-p1.0"}
    for name in study.run.benchmarks:
        file = tmp_path / COMPLETIONS.format(**cell, benchmark=name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    found, done = rows(study, tmp_path, "train")["tiny stapo"], settings == "the study's"
    assert (found.done, found.basis) == (done, "measured")
    assert (found.hours == 0) == done
    # Responses of a training that is to be done again count for nothing.
    assert rows(study, tmp_path, "generate")["tiny"].done == done


def test_jobs_run_as_many_at_once_as_there_are_devices():
    four = CostRow("train", "x", jobs=4, done=0, hours=8.0, longest=2.0, devices=8)
    assert wall_hours([four], Machine(DEVICES["h200"], 8, 8)) == 8
    assert wall_hours([four], Machine(DEVICES["h200"], 8, 24)) == 4
    assert wall_hours([four], Machine(DEVICES["h200"], 8, 64)) == 2
    long = CostRow("train", "y", jobs=1, done=0, hours=20.0, longest=20.0, devices=8)
    assert wall_hours([four, long], Machine(DEVICES["h200"], 8, 64)) == 20
    assert wall_hours([], CPU) == 0


def test_what_cannot_fit_is_named_with_as_many_gpus_as_would_do():
    study = paper_study()
    (line,) = memory_warnings(study, 1, 141e9)
    assert line.startswith("models.8B: a training needs ")
    assert "1 GPUs of 141.0 GB in its update phase (parameters 32.8, reference 32.8, Adam" in line
    enough = int(line.split(" GPUs would be enough")[0].split()[-1])
    assert memory_warnings(study, enough, 141e9) == []
    assert len(memory_warnings(study, enough // 2, 141e9)) == 1
    # Without a reference model 2 bytes per parameter less.
    alone = paper_study(run={"methods": ["stapo"]})
    assert "reference" not in memory_warnings(alone, 1, 141e9)[0]
    # What one micro-batch takes is not shared by more GPUs.
    wide = paper_study(training={"micro_batch_tokens": 800_000})
    assert (
        "no number of GPUs would be enough; or reduce training"
        in memory_warnings(wide, 1, 141e9)[0]
    )


def test_a_share_of_vllm_that_cannot_hold_the_weights_is_named():
    study = paper_study(engine={"vllm_gpu_memory": 0.1})
    (line,) = memory_warnings(study, 16, 80e9)
    assert line.startswith(
        "models.8B: vLLM's share is 8.0 GB, but weights and one response need 18.8"
    )


def test_the_table_stands_beside_the_paper_s_own_cost_and_every_assumption(tmp_path, capsys):
    study, console = paper_study(), Console(width=160)
    print_plan(study, machine("h20", 64), console, tmp_path)
    shown = capsys.readouterr().out
    for expected in ("1.7B grpo", "8B stapo", "verifier", "64 h20, 5 to 7 days per run", "2/2"):
        assert expected in shown
    assert all(line in shown for line in ASSUMPTIONS)
    assert "in days: 1.7B 2.3, 8B 5.4" in shown
    assert "warning" not in shown
    print_plan(study, machine("a100", 1), console, tmp_path)
    shown = capsys.readouterr().out
    assert "warning: models.8B: a training needs" in shown
    assert f"warning: {ASSUMED}" in shown


def test_the_curve_is_counted_by_itself(tmp_path, capsys):
    curve = {"every": 100, "benchmarks": ["aime24"], "decoding": "t1.0-p1.0"}
    often = {"training": {"evaluate_every": 500}}
    before, study = paper_study(**often), paper_study(**often, evaluation={"curve": curve})
    on = machine("h100", 8, 64)
    found = {(row.stage, row.what): row for row in plan(study, on, tmp_path)}
    known = {(row.stage, row.what): row for row in plan(before, on, tmp_path)}
    for key in known.keys() - {("train", what) for _, what in known}:
        assert found[key] == known[key]
    more = found.keys() - known.keys()
    stages = ("generate", "score", "verifier")
    assert more == {(stage, f"{size} curve") for stage in stages for size in ("1.7B", "8B")}
    # 24 of 29 steps of each of the 4 trainings; 30 problems with 32 responses each.
    for stage, what in more:
        assert found[stage, what].jobs == 4 * 24
    generate = found["generate", "8B curve"]
    assert generate.tokens == pytest.approx(4 * 24 * 960 * 0.35 * 20480)
    # float32 weights; 8.2e9 parameters.
    weights = sum(
        found[key].disk - known[key].disk for key in known if key == ("train", "8B stapo")
    )
    assert weights == pytest.approx(2 * 24 * 4 * 8.2e9, rel=0.01)
    print_plan(study, on, Console(width=160), tmp_path)
    line = "the curve: weights after 24 more steps of each training, in all 3.8 TB"
    assert line in capsys.readouterr().out
    print_plan(before, on, Console(width=160), tmp_path)
    assert "curve" not in capsys.readouterr().out


def test_smoke_says_nothing_of_the_paper_and_always_fits(study, tmp_path, capsys):
    print_plan(study, machine("cpu"), Console(width=160), tmp_path)
    shown = capsys.readouterr().out
    assert "the paper" not in shown
    assert "warning" not in shown


def test_a_model_of_unknown_shape_is_an_error_unless_its_config_is_cached(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(StudyError, match=r"shape of some/model unknown.*Qwen/Qwen3-8B-Base"):
        plan(paper_study(models={"8B": {"hub": "some/model", "revision": "3" * 40}}), CPU)
    config = {
        "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 100, "tie_word_embeddings": True,
    }  # fmt: skip
    snapshot = tmp_path / "models--some--model" / "snapshots" / ("3" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(config))
    shape = shape_of(HubModel(hub="some/model", revision="3" * 40))
    assert (shape.layers, shape.kv_heads, shape.head_dim, shape.vocabulary) == (2, 4, 16, 100)


@pytest.mark.parametrize("asked", [("h300", 1, 1), ("h200", 8, 4), ("cpu", 1, 2), ("h200", 0, 1)])
def test_a_machine_that_cannot_be_is_refused(asked):
    with pytest.raises(StudyError, match="--gpu"):
        machine(*asked)


def test_gpus_that_cannot_share_a_mini_batch_are_named():
    found = division_errors(paper_study(), 48)
    assert "a mini-batch of 512 responses is not divisible by 48 GPUs" in found[0]


def test_nothing_is_refused_for_memory_that_cannot_be_estimated(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    study = paper_study(models={"8B": {"hub": "some/model", "revision": "3" * 40}})
    assert disk_needed(study) is None
    assert memory_warnings(study, 8, 80e9) == []
    assert [line.split(":")[0] for line in memory_warnings(study, 1, 10e9)] == ["models.1.7B"]


def test_the_plan_recommends_a_division_of_gpus_for_models_of_the_hub(study, tmp_path, capsys):
    print_plan(paper_study(), machine("h100", 8), Console(width=160), tmp_path)
    shown = capsys.readouterr().out
    assert "GPUs of each for 1.7B, 8B" in shown
    assert "8B on 8 h100: " in shown
    print_plan(study, machine("h100", 8), Console(width=160), tmp_path)
    assert "side by side" not in capsys.readouterr().out


def test_a_verifier_that_does_not_fit_is_named():
    """Its prompt and reply fill 32,768 positions of 36,864 bytes of cache each, beside 6.2 GB of weights."""
    judge = {"hub": "opencompass/CompassVerifier-3B", "revision": "1" * 40}
    on_gpus = {"backend": "vllm", "verifier": judge}
    study = paper_study(evaluation=on_gpus)
    assert JUDGED_TOKENS == BATCH_TOKENS
    assert verifier_warnings(study, 80e9) == []
    (line,) = verifier_warnings(study, 8e9)
    assert "it needs 7.4 GB, but has 7.2 GB of a GPU of 8.0 GB" in line
    assert line.endswith("increase engine.vllm_evaluation_memory")
    padded = paper_study(evaluation={"backend": "hf", "verifier": judge})
    assert verifier_warnings(padded, 80e9) == []
    (line,) = verifier_warnings(padded, 16e9)
    assert line.endswith("reduce evaluation.verifier.max_prompt_tokens")
    longer = memory.verifier_memory(SHAPES[judge["hub"]], 2 * 32768, 2)
    assert longer > memory.verifier_memory(SHAPES[judge["hub"]], 32768, 1)
    without = padded.evaluation.model_copy(update={"verifier": None})
    assert verifier_warnings(padded.model_copy(update={"evaluation": without}), 1e9) == []


def test_a_machine_whose_memory_cannot_hold_what_its_processes_load_is_named():
    study = paper_study()
    assert host_warnings(study, "8B", 8, 1, 450e9) == []
    (line,) = host_warnings(study, "8B", 8, 1, 400e9)
    # 4 bytes of the policy and 2 of the reference model for 8.19e9 parameters, and 4 GB, in 8 processes.
    assert line.startswith("models.8B: 8 processes need 425 GB of host memory to load it")
    assert host_warnings(study, "8B", 8, 2, 400e9) == []
