"""Colocated vLLM on a GPU: three rollouts of a training, each from the weights of its step.

In bfloat16 a mismatch of log-probs of 1e-3 to 1e-2 nats per token is expected. Near 1, vLLM's weights are
lost in sleep or wake; several times as much in the later rollouts as in the first, their transfer is broken.
`VLLM_USE_V2_MODEL_RUNNER=0` tells whether vLLM's new runner is the cause.
"""

import argparse
import json
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

if find_spec("vllm") and not torch.cuda.is_available():
    import vllm_on_cpu  # noqa: F401  Before TRL.
from training_jobs import job_in
from transformers import Qwen3Config, Qwen3ForCausalLM

from stapo.core.checksums import write_sums
from stapo.core.step_record import StepRecord
from stapo.suite.models.shapes import SHAPES, Shape
from stapo.suite.models.tiny import build_tokenizer
from stapo.suite.provenance import processor, version
from stapo.suite.repository import ROOT
from stapo.suite.study.schema import EngineSettings, TrainingSettings
from stapo.suite.study.sources import TinyData
from stapo.suite.training.prompts import write_prompts
from stapo.suite.training.rewards import BUILT_IN
from stapo.suite.training.run import Watch, train

PACKAGES = ("torch", "transformers", "trl", "accelerate", "vllm")
TINY = Shape(2, 64, 4, 2, 32, 128, True, 512)
LARGE = TrainingSettings(
    rollouts="vllm-colocate", steps=6, prompts_per_batch=16, group_size=8, prompts_per_mini_batch=8,
    micro_batch_tokens=16384, learning_rate=1e-4, max_prompt_tokens=64, max_response_tokens=1024,
    checkpoint_every=6,
)  # fmt: skip
"""Two mini-batches for each of three rollouts. At a rate of 1e-6, weights of an earlier step would differ by
less than bfloat16's rounding."""
SMALL = LARGE.model_copy(update={"micro_batch_tokens": 2048, "max_response_tokens": 24})


@dataclass
class Page:
    """Tables, written as JSON after every new row, so that a time limit loses only the last."""

    path: Path
    device: str
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, title: str, **row: Any) -> None:
        """Add a row to a table; print it, and write the file."""
        self.tables.setdefault(title, []).append(row)
        print(f"{title}:", json.dumps(row), flush=True)  # noqa: T201
        named = torch.cuda.get_device_name() if self.device == "cuda" else processor()
        where = {"device": named, **{name: version(name) for name in PACKAGES}}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"where": where, "tables": self.tables}, indent=1) + "\n")


def rollouts(page: Page, world: Path, training: TrainingSettings) -> None:
    """Train, and add a row for each rollout."""
    mini_batches = training.prompts_per_batch // training.prompts_per_mini_batch

    def show(_: Any, record: StepRecord) -> None:
        if "generate" in record.seconds:  # The first mini-batch of a rollout.
            row = {
                "step": record.step - 1,
                "mismatch, mean nats": record.rollout_mismatch,
                "largest": record.rollout_mismatch_max,
                "tokens per second": mini_batches * record.num_tokens / record.seconds["generate"],
            }
            page.add("Rollouts, each after a transfer of weights", **row)

    with (
        patch.object(Watch, "show", show),
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
    config = Qwen3Config(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, head_dim=shape.head_dim,
        num_key_value_heads=shape.kv_heads, tie_word_embeddings=shape.tied,
        pad_token_id=0, bos_token_id=None, eos_token_id=1, max_position_embeddings=65536,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(world / "base")
    write_sums(world / "base")


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=ROOT / "work" / "gpu")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the program itself")
    arguments = parser.parse_args()
    cuda, tiny = torch.cuda.is_available(), arguments.tiny
    if not cuda and not tiny:
        print("no GPU: tests/gpu/vllm.py was not run; run `make gpu` on a machine with one")  # noqa: T201
        sys.exit(0)
    page = Page(arguments.out / "vllm.json", "cuda" if cuda else "cpu")
    if find_spec("vllm") is None:
        page.add("vLLM", installed="no", next="make setup-gpu, then make gpu")
        return
    if page.device == "cpu":
        left_out = "sleep, wake, GB while asleep, bfloat16, CUDA graphs, vLLM's V2 runner"
        page.add("Left out on a CPU", what=left_out)
    with TemporaryDirectory() as folder:
        build(Path(folder), TINY if tiny else SHAPES["Qwen/Qwen3-1.7B-Base"])
        rollouts(page, Path(folder), SMALL if tiny else LARGE)


if __name__ == "__main__":
    main()
