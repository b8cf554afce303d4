"""The estimate of memory against torch's trackers at small depth; bench_memory.py has the full depth."""

from dataclasses import replace

import pytest
from tracked_memory import UNSEEN, tracked

from stapo.models.shapes import SHAPES, Shape
from stapo.study.schema import EngineSettings, TrainingSettings
from stapo.training.memory import ASLEEP_BYTES, RESERVED_BYTES, host_memory, memory_per_gpu

TOKENS, TOLERANCE = 16384, 0.15
TRAINING = TrainingSettings(
    steps=1, prompts_per_batch=64, group_size=8, prompts_per_mini_batch=64,
    micro_batch_tokens=TOKENS, learning_rate=1e-6, max_prompt_tokens=1024,
    max_response_tokens=15360, rollouts="vllm-colocate",
)  # fmt: skip


def qwen(size: str, layers: int) -> Shape:
    return replace(SHAPES[f"Qwen/Qwen3-{size}-Base"], layers=layers)


@pytest.mark.parametrize("gpus", [1, 8, 16])
@pytest.mark.parametrize("size", ["1.7B", "8B", "14B"])
def test_every_phase_is_within_15_percent_of_the_tracker(size, gpus):
    shape = qwen(size, 2)
    phases = memory_per_gpu(shape, TRAINING, EngineSettings(), gpus, 80e9, kl=True)
    for phase, measured in tracked(shape, gpus, TOKENS).items():
        estimate = sum(value for name, value in phases[phase].items() if name not in UNSEEN)
        assert estimate == pytest.approx(measured, rel=TOLERANCE), phase


def test_what_a_tracker_does_not_see_is_counted_by_its_rule():
    phases = memory_per_gpu(qwen("8B", 36), TRAINING, EngineSettings(), 8, 80e9, kl=True)
    assert phases["rollout"]["vLLM"] == 0.3 * 80e9
    assert {phases[name]["vLLM asleep"] for name in ("update", "reference")} == {ASLEEP_BYTES}
    assert {parts["reserved"] for parts in phases.values()} == {RESERVED_BYTES}
    # Ids, mask, four tables of floats: 32 bytes for each position.
    assert phases["update"]["responses"] == 32 * 512 * 15360


def test_no_reference_model_without_a_kl_term():
    phases = memory_per_gpu(qwen("8B", 36), TRAINING, EngineSettings(), 8, 80e9, kl=False)
    assert "reference" not in phases
    assert phases["update"]["reference"] == 0


def test_each_process_reads_the_whole_model_before_it_is_sharded():
    shape = qwen("14B", 40)
    each, machine = host_memory(shape, 16, kl=True)
    # 4 bytes for each parameter of the policy, 2 of the reference model, 4e9 for the process.
    assert each == pytest.approx(6 * 14.77e9 + 4e9, rel=0.01)
    assert machine == 8 * each
    assert host_memory(shape, 1, kl=True)[0] == pytest.approx(8 * 14.77e9 + 4e9, rel=0.01)
    assert host_memory(shape, 1, kl=False) == pytest.approx([4 * 14.77e9 + 4e9] * 2, rel=0.01)
