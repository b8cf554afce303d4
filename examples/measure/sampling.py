"""Share of sampling in a decode step: `python examples/measure/sampling.py [MODEL] [--rows 64]`.

Without a model, random ones in the shapes of SmolLM2-135M and Qwen2.5-0.5B, whose logits are scaled to an
entropy of about two nats. All times are CPU time of one thread, so that other programs disturb them little.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import Any
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, Qwen2Config

from stapo.core.decoding import decode
from stapo.core.sampling import Sampler

SHAPES = {
    "135M, 49,152 words": LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True,
    ),
    "0.5B, 151,936 words": Qwen2Config(
        vocab_size=151_936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
        num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True,
    ),
}  # fmt: skip
DECODINGS = {"T = 1": {}, "T = 0.7, top-p 0.9": {"temperature": 0.7, "top_p": 0.9}}


def models(path: str | None) -> Any:
    """Yield names and models."""
    if path:
        yield path, AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        return
    for name, config in SHAPES.items():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
        model.lm_head.register_forward_hook(lambda _, given, logits: logits.mul_(4 / logits.std()))
        yield name, model


@dataclass
class Timed:
    """A function and the CPU time of its calls but the first, in which the model reads the prompts."""

    function: Callable[..., Any]
    calls: int = 0
    seconds: float = 0.0

    def __call__(self, *args: Any, **named: Any) -> Any:
        start = process_time()
        result = self.function(*args, **named)
        self.seconds += (process_time() - start) * (self.calls > 0)
        self.calls += 1
        return result

    @property
    def each(self) -> float:
        """Milliseconds of a call."""
        return 1000 * self.seconds / (self.calls - 1)


def measure(model: Any, ids: torch.Tensor, steps: int, changes: dict[str, float]) -> str:
    """Return a line about the steps of one batch."""
    config = GenerationConfig(
        do_sample=True, top_k=0, max_new_tokens=steps, pad_token_id=0,
        eos_token_id=[model.config.vocab_size - 1], **changes,
    )  # fmt: skip
    draw, forward = Timed(Sampler.draw), Timed(model.forward)
    with (
        patch.object(Sampler, "draw", lambda *args: draw(*args)),
        patch.object(model, "forward", forward),
    ):
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=config,
            custom_generate=decode,
        )
    total = draw.each + forward.each
    return f"step {total:.0f} ms, of which sampling {draw.each:.0f} ms, {draw.each / total:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--steps", type=int, default=16)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name, model in models(given.model):
        ids = torch.randint(100, 10_000, (given.rows, given.prompt))
        for title, changes in DECODINGS.items():
            line = measure(model, ids, given.steps, changes)
            print(f"{name}, {given.rows} rows, {title}: {line}", flush=True)


if __name__ == "__main__":
    main()
