"""Numbers of a training on a GPU: log-probs against float32 logits; data types alone and under FSDP2."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import fsdp_on_cpu  # noqa: F401  Before anything starts Accelerate.
import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl.trainer.utils import add_fused_lm_head

from gpu.page import ROOT, Page, begin, timed
from gpu.tiny_training import build_world, train_tiny
from stapo.training.head import log_probs_of
from stapo.training.trainer import StapoTrainer

CHUNK = 1024
"""Tokens whose float32 logits exist at once in the comparison."""


def head(page: Page, tokens: int, width: int, vocabulary: int) -> None:
    """Add how far chunked log-probs, entropies and gradients are from whole float32 logits: ours and TRL's.

    Whole logits are those of the same rounded matrices, so that what is left is the rounding of logits.
    """
    torch.manual_seed(0)
    with torch.device(page.device):
        model = Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=vocabulary, hidden_size=width, intermediate_size=8, num_hidden_layers=1,
                num_attention_heads=1, num_key_value_heads=1, head_dim=8, tie_word_embeddings=True,
            )
        )  # fmt: skip
        hidden = torch.randn(1, tokens, width).requires_grad_()
        labels = torch.randint(0, vocabulary, (1, tokens))
        slopes = torch.randn(1, tokens)
    weight = model.lm_head.weight
    weight.data.normal_(std=2.0 / width**0.5)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    model.model.forward = lambda **_: SimpleNamespace(last_hidden_state=hidden)

    def chunked(mixed: bool, trl: bool) -> tuple[Tensor, Tensor]:
        hidden.grad = weight.grad = None
        with torch.autocast(page.device, dtype=torch.bfloat16, enabled=mixed):
            if trl:
                found = model(shift_labels=labels, fused_lm_head=True)
            else:
                found = log_probs_of(model, shift_labels=labels)
        (found.log_probs.float() * slopes).sum().backward()
        return found.log_probs.detach().float(), found.entropy.detach().float()

    def whole(mixed: bool) -> tuple[Tensor, Tensor]:
        hidden.grad = weight.grad = None
        parts = []

        def as_computed(table: Tensor) -> Tensor:
            return table.bfloat16().float() if mixed else table

        for start in range(0, tokens, CHUNK):
            rows = slice(start, start + CHUNK)
            logits = as_computed(hidden[0, rows]) @ as_computed(weight).T
            log_probs = logits.log_softmax(dim=-1)
            own = log_probs.gather(1, labels[0, rows].unsqueeze(1)).squeeze(1)
            (own * slopes[0, rows]).sum().backward()
            parts.append((own.detach(), -(log_probs.exp() * log_probs).sum(dim=-1).detach()))
        logps, entropies = (torch.cat(values).unsqueeze(0) for values in zip(*parts, strict=True))
        return logps, entropies

    def measured(call: Callable[[], tuple[Tensor, Tensor]]) -> tuple[list[Tensor], float, float]:
        seconds, memory = timed(call, page.device, repeats=1)
        return [*call(), hidden.grad.clone(), weight.grad.clone()], seconds, memory

    for mixed, trl in ((False, False), (True, False), (True, True)):
        exact, exact_seconds, exact_memory = measured(partial(whole, mixed))
        found, seconds, memory = measured(partial(chunked, mixed, trl))
        logps, entropies, *gradients = zip(found, exact, strict=True)
        relative = [((one - other).norm() / other.norm()).item() for one, other in gradients]
        row = {
            "matrices": "bfloat16" if mixed else "float32",
            "head": "TRL's" if trl else "ours",
            "log-probs, largest difference": (logps[0] - logps[1]).abs().max().item(),
            "entropies, largest difference": (entropies[0] - entropies[1]).abs().max().item(),
            "gradient of hidden states, relative": relative[0],
            "gradient of weights, relative": relative[1],
            "seconds": seconds,
            "seconds of float32 logits": exact_seconds,
            "peak GB": memory,
            "peak GB of float32 logits": exact_memory,
        }
        page.add(f"Chunked head, {tokens} tokens, {vocabulary} words", **row)


def train(world: Path, out: Path) -> None:
    """Train with a KL term, and write the types of what it computes with."""
    seen: dict[str, Any] = {"log-probs rounded to bfloat16": True}
    forward, norm = StapoTrainer._forward, StapoTrainer._get_grad_norm

    def watched(self: Any, model: Any, sequences: Any, rows: Tensor) -> Any:
        def stream(_: Any, __: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            seen["residual stream"] = str(first.dtype)

        layer = self.accelerator.unwrap_model(model).model.layers[0]
        hook = layer.register_forward_hook(stream)
        logps, entropies = forward(self, model, sequences, rows)
        hook.remove()
        seen["log-probs"] = str(logps.dtype)
        rounded = bool((logps == logps.bfloat16().float()).all())
        seen["log-probs rounded to bfloat16"] &= rounded
        return logps, entropies

    def with_types(self: Any, model: Any, grad_norm: Any = None) -> Any:
        weight = next(self.accelerator.unwrap_model(model).parameters())
        seen["weights"], seen["gradients"] = str(weight.dtype), str(weight.grad.dtype)
        state = [v for s in self.optimizer.state.values() for v in s.values() if v.dim()]
        seen["Adam's moments"] = str(state[0].dtype) if state else ""
        reference = next(self.accelerator.unwrap_model(self.ref_model).parameters())
        seen["reference"] = f"{reference.dtype} on {reference.device}"
        return norm(self, model, grad_norm)

    with (
        patch.object(StapoTrainer, "_forward", watched),
        patch.object(StapoTrainer, "_get_grad_norm", with_types),
    ):
        train_tiny(world, out, "grpo")
    if os.environ.get("RANK", "0") == "0":
        (world / "seen.json").write_text(json.dumps(seen))


def launched(device: str) -> list[str]:
    """Return `accelerate launch` with FSDP2: one process on a GPU, two on a CPU."""
    name, processes = ("gpu-8", 1) if device == "cuda" else ("cpu-2", 2)
    config = ROOT / "workflows" / "accelerate" / f"{name}.yaml"
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    command += ["--config_file", str(config), "--num_processes", str(processes)]
    return [*command, "--main_process_port", "0"]


def types(page: Page) -> None:
    """Add the data types of a training alone and under FSDP2."""
    title = "A training with a KL term"
    with TemporaryDirectory() as folder:
        world = Path(folder)
        build_world(world)
        for name, command in {"alone": [sys.executable], "FSDP2": launched(page.device)}.items():
            program = [*command, "-m", "gpu.numerics", "--train", folder, str(world / name)]
            done = subprocess.run(program, capture_output=True, text=True, check=False)
            if done.returncode:
                page.add(title, launched=name, error=done.stderr[-300:])
            else:
                page.add(title, launched=name, **json.loads((world / "seen.json").read_text()))


def main() -> None:
    """Write the page, or train as one process of it."""
    if sys.argv[1:2] == ["--train"]:
        train(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    page, tiny = begin("numerics", "Numbers of a training")
    head(page, *((64, 32, 128) if tiny else (16384, 2048, 151936)))
    types(page)


if __name__ == "__main__":
    main()
