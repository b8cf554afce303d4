"""Trainings with a real vLLM in their process, on the CPU; `make test-vllm` runs this."""

import signal
from pathlib import Path
from shutil import copytree

import pytest
import torch
from programs import python
from safetensors.torch import load_file

pytest.importorskip("vllm", reason="make test-vllm")

import yaml
from vllm_on_cpu import processes

from stapo.core.attempts import attempts
from stapo.core.files import read_jsonl
from stapo.suite.repository import ROOT
from stapo.suite.study import read_study

PROGRAM = Path(__file__).with_name("vllm_training.py")
STEPS = 6
CPU = {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
TOLERANCE = 1e-4
"""Nats; 4e-6 was measured, and 8 with the weights of the first step."""

Step = dict[str, torch.Tensor]


def steps(directory: Path) -> list[Step]:
    return [load_file(directory / f"step{step}.safetensors") for step in range(STEPS)]


def difference(step: Step) -> float:
    """Return the largest |vLLM's - trainer's| log-prob of a response token, in nats."""
    both = step["sampling_per_token_logps"], step["old_per_token_logps"]
    return float((both[0] - both[1])[step["completion_mask"].bool()].abs().max())


def responses(step: Step) -> list[list[int]]:
    rows = zip(step["completion_ids"], step["completion_mask"].bool(), strict=True)
    return [ids[mask].tolist() for ids, mask in rows]


@pytest.fixture(scope="module")
def world(world: Path, tmp_path_factory) -> Path:
    """The base model of all tests, and one prompt, so that its order depends on no seed."""
    root = tmp_path_factory.mktemp("world")
    copytree(world / "base", root / "base")
    (root / "prompts.jsonl").write_text('{"question": "chain:1+2", "answer": "3"}\n')
    return root


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory) -> Path:
    """Three trainings, and one that is killed."""
    out = tmp_path_factory.mktemp("trained")
    cases = ("whole", "other", "unsynced", "killed")
    python(PROGRAM, world, out, *cases, code=-signal.SIGKILL, **CPU)
    return out


def test_vllm_samples_from_the_weights_of_the_step(trained):
    assert max(map(difference, steps(trained / "whole"))) < TOLERANCE
    first, *_, last = steps(trained / "unsynced")
    assert difference(first) < TOLERANCE
    assert difference(last) > 1000 * TOLERANCE


def test_a_seed_gives_the_same_responses_and_another_one_others(trained):
    whole, other, killed = (
        responses(load_file(trained / case / "step0.safetensors"))
        for case in ("whole", "other", "killed")
    )
    assert whole == killed
    assert sum(a == b for a, b in zip(whole, other, strict=True)) <= 2
    # All 16 are answers to one prompt; each has a seed of its own.
    assert len(set(map(tuple, whole))) >= 12


def test_a_killed_training_resumes_to_the_same_bits(world, trained):
    python(PROGRAM, world, trained, "killed", **CPU)
    assert [one["after_step"] for one in attempts(trained / "killed" / "work")] == [0, 3]
    for ours, theirs in zip(steps(trained / "killed"), steps(trained / "whole"), strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    ours, theirs = (
        load_file(trained / case / "model" / "model.safetensors") for case in ("killed", "whole")
    )
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def test_a_study_trains_with_vllm(tmp_path):
    change = {
        "models": {"tiny": {"supervised_steps": 40, "hidden_size": 64}},
        "data": {"prompts": 64},
        "training": {
            "rollouts": "vllm-colocate", "steps": 4, "prompts_per_batch": 8, "group_size": 4,
            "prompts_per_mini_batch": 4,
        },
        "benchmarks": {"chain-2": {"samples": 1}},
        "run": {"methods": ["stapo"], "benchmarks": ["chain-2"], "decodings": ["t1.0-p1.0"]},
    }  # fmt: skip
    (tmp_path / "study.yaml").write_text(
        yaml.safe_dump({"extends": "smoke", "name": "vllm", **change})
    )
    figure = "results/vllm/figures/rollout_mismatch.svg"
    targets = (figure, "results/vllm/runs/tiny/stapo/seed0/model/SHA256SUMS")
    python(
        *("-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--configfile", "study.yaml"),
        *("--cores", "2", "--show-failed-logs", "--set-resources", "train:gpu=0", "--", *targets),
        at=tmp_path, **processes(tmp_path), VLLM_CPU_KVCACHE_SPACE="1",
    )  # fmt: skip
    assert (tmp_path / figure).exists()
    study = read_study(tmp_path / "study.yaml")
    metrics = read_jsonl(tmp_path / "results/vllm/runs/tiny/stapo/seed0/metrics.jsonl")
    assert [step["step"] for step in metrics] == [*range(1, study.training.steps + 1)]
    assert 0 < max(step["rollout_mismatch_max"] for step in metrics) < TOLERANCE
