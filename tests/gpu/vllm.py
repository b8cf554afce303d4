"""Colocated vLLM on a GPU: three rollouts of a training, each from the weights of its step.

In bfloat16 a mismatch of log-probs of 1e-3 to 1e-2 nats per token is expected. Near 1, vLLM's weights are
lost in sleep or wake; several times as much in the later rollouts as in the first, their transfer is broken.
`VLLM_USE_V2_MODEL_RUNNER=0` tells whether vLLM's new runner is the cause.
"""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

if find_spec("vllm") and not torch.cuda.is_available():
    import vllm_on_cpu  # noqa: F401  Before TRL.
from training_jobs import job_in
from transformers import Qwen3ForCausalLM

from gpu.attention import QWEN, TINY, config_of
from gpu.page import Page, begin
from stapo.models.shapes import Shape
from stapo.models.tiny import build_tokenizer
from stapo.provenance import write_sums
from stapo.study.schema import EngineSettings, TrainingSettings
from stapo.study.sources import TinyData
from stapo.training.prompts import write_prompts
from stapo.training.rewards import BUILT_IN
from stapo.training.run import train
from stapo.training.trainer import StapoTrainer

LARGE = TrainingSettings(
    rollouts="vllm-colocate", steps=6, prompts_per_batch=16, group_size=8, prompts_per_mini_batch=8,
    micro_batch_tokens=16384, learning_rate=1e-4, max_prompt_tokens=64, max_response_tokens=1024,
    checkpoint_every=6,
)  # fmt: skip
"""Two mini-batches for each of three rollouts. At a rate of 1e-6, weights of an earlier step would differ by
less than bfloat16's rounding."""
SMALL = LARGE.model_copy(update={"micro_batch_tokens": 2048, "max_response_tokens": 24})


def rollouts(page: Page, world: Path, training: TrainingSettings) -> None:
    """Train, and add a row for each rollout."""
    accumulate = StapoTrainer._accumulate_gradients

    def look(self: Any, model: Any, inputs: Any, keep: Any = None) -> Any:
        if self._step % self.args.steps_per_generation == 0:
            mask = inputs["completion_mask"].bool()
            apart = inputs["sampling_per_token_logps"] - inputs["old_per_token_logps"]
            apart = apart.abs()[mask]
            row = {
                "step": self.state.global_step,
                "mismatch, mean nats": apart.mean().item(),
                "largest": apart.max().item(),
                "tokens per second": int(mask.sum()) / self._seconds["generate"],
            }
            page.add("Rollouts, each after a transfer of weights", **row)
        return accumulate(self, model, inputs, keep)

    with (
        patch.object(StapoTrainer, "_accumulate_gradients", look),
        # Every other response is right, so that no group is flat.
        patch.dict(BUILT_IN, boxed=lambda completions, **_: [1.0, 0.0] * (len(completions) // 2)),
    ):
        engine = EngineSettings(vllm_gpu_memory=0.5)
        train(job_in(world, world / "out", training, "stapo", engine=engine))


def build(world: Path, shape: Shape) -> None:
    """Write a random model of some shape, the tiny world's tokenizer and prompts."""
    write_prompts(TinyData(builder="tiny-arithmetic", prompts=64), world / "prompts.jsonl")
    build_tokenizer().save_pretrained(world / "base")
    torch.manual_seed(0)
    Qwen3ForCausalLM(config_of(shape)).save_pretrained(world / "base")
    write_sums(world / "base")


def main() -> None:
    """Write the page."""
    page, tiny = begin("vllm")
    if find_spec("vllm") is None:
        page.add("vLLM", installed="no", next="make setup-gpu, then make gpu")
        return
    if page.device == "cpu":
        left_out = "sleep, wake, GB while asleep, bfloat16, CUDA graphs, vLLM's V2 runner"
        page.add("Left out on a CPU", what=left_out)
    with TemporaryDirectory() as folder:
        build(Path(folder), replace(TINY, head_dim=32) if tiny else QWEN)
        rollouts(page, Path(folder), SMALL if tiny else LARGE)


if __name__ == "__main__":
    main()
