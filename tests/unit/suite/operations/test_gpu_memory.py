"""The memory model of GPUs against sizes that torch tracked on shapes alone, and what it advises."""

import pytest

from stapo.suite.models.shapes import SHAPES
from stapo.suite.operations.gpu_memory import does_not_fit, update_peak
from stapo.suite.repository import STUDIES
from stapo.suite.study import read_study


@pytest.mark.parametrize(
    ("model", "gpus", "peak"), [("1.7B", 1, 42.2e9), ("1.7B", 8, 9.1e9), ("14B", 8, 50.5e9)]
)
def test_tracked_updates_are_met(model, gpus, peak):
    # The table of docs/gpus.md: one micro-batch of 16,384 tokens, with a reference model.
    shape = SHAPES[f"Qwen/Qwen3-{model}-Base"]
    assert update_peak(shape, 16_384, gpus, True) == pytest.approx(peak, rel=0.13)


def study_of(name, changes):
    return read_study(STUDIES / name, changes=changes)


@pytest.mark.parametrize(
    ("name", "changes", "memory", "remedy"),
    [
        # Made for GPUs of 24 GB.
        ("quickstart/gsm8k.yaml", {}, 24e9, None),
        ("quickstart/evening.yaml", {}, 24e9, None),
        ("quickstart/single-gpu.yaml", {}, 80e9, None),
        ("quickstart/gsm8k.yaml", {"training": {"micro_batch_tokens": 131072}}, 24e9,
         ("training", "micro_batch_tokens", 65536)),
        ("quickstart/gsm8k.yaml", {"engine": {"vllm_gpu_memory": 0.9}}, 24e9,
         ("engine", "models", "0.5B-instruct", "vllm_gpu_memory", 0.65)),
        ("quickstart/single-gpu.yaml", {}, 24e9, 4),
        ("paper/paper.yaml", {"run": {"models": ["14B"]}}, 8e9, "choose a smaller model"),
    ],
)  # fmt: skip
def test_a_training_that_does_not_fit_is_named_with_what_fits(name, changes, memory, remedy):
    lines = [*does_not_fit(study_of(name, changes), "gpu", 1, memory)]
    if remedy is None:
        assert lines == []
        return
    assert lines[0].startswith("train ")
    if isinstance(remedy, int):
        assert lines[0].endswith(f"give each training {remedy} GPUs (--gpus {remedy})")
        assert [*does_not_fit(study_of(name, changes), "gpu", remedy, memory)] == []
    elif isinstance(remedy, tuple):
        *place, value = remedy
        assert lines[0].endswith(f"; set {'.'.join(place)}: {value}")
        for key in reversed(place):
            value = {key: value}
        changed = {**changes, **value}
        assert [*does_not_fit(study_of(name, changed), "gpu", 1, memory)] == []
    else:
        assert remedy in lines[0]


def test_a_remedy_keeps_the_other_settings_of_a_model_and_can_start():
    study = study_of("paper/paper.yaml", {"run": {"models": ["8B"]}})  # Of two GPUs an engine.
    (line, *_) = does_not_fit(study, "gpu", 8, 48e9)
    assert line.endswith("; set engine.models.8B.vllm_gpu_memory: 0.5")
    (line, *_) = does_not_fit(study, "gpu", 1, 141e9)
    assert line.startswith("train 8B: vLLM does not start on 2 of 1 gpu with 0.65 of their memory;")
    assert line.endswith("give each training 4 GPUs (--gpus 4)")
    engine = {"models": {"1.7B": {"vllm_gpu_memory": 0.1}}}  # Less than the weights.
    small = study_of("quickstart/single-gpu.yaml", {"engine": engine})
    (line,) = does_not_fit(small, "gpu", 4, 24e9)
    assert "set engine.models.1.7B.vllm_gpu_memory: 0." in line


def test_weights_that_do_not_fit_into_vllm_are_named():
    study = study_of("paper/paper.yaml", {"run": {"models": ["14B"], "methods": []}})
    (line,) = does_not_fit(study, "gpu", 8, 24e9)
    assert line.startswith("generate 14B: its weights are 30 GB, vLLM has 22 of gpu; ")
    parallel = int(line.rpartition(" ")[2])
    changed = study.model_copy(
        update={"engine": study.engine.model_copy(update={"vllm_tensor_parallel": parallel})}
    )
    assert not [*does_not_fit(changed, "gpu", 8, 24e9)]
