"""Packed and padded passes on a GPU: time, share of the peak FLOP/s, kernels, memory against `stapo plan`."""

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl.trainer.utils import add_fused_lm_head

from gpu.page import Page, begin, timed
from stapo.models.shapes import SHAPES, Shape
from stapo.operations.costs import DATA_SHEETS, memory_per_gpu
from stapo.study.schema import EngineSettings, TrainingSettings
from stapo.training.attention import PACKED
from stapo.training.forward import Sequences, packed_forward, padded_forward

QWEN = {size: SHAPES[f"Qwen/Qwen3-{size}-Base"] for size in ("1.7B", "8B", "14B")}
TINY = Shape(2, 64, 4, 2, 16, 128, True, 512)
PASSES: dict[str, tuple[str, Callable[..., Any]]] = {
    "padded": ("sdpa", padded_forward),
    "packed": (PACKED, packed_forward),
}
RECOMPUTED = 4
"""Forward passes that a forward, recomputation and backward pass are worth."""


def model_of(shape: Shape, device: str, layers: int | None = None) -> Any:
    """Return a random model with TRL's fused head, float32 weights and gradient checkpointing."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=layers or shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=65536,
    )
    with torch.device(device):
        model = Qwen3ForCausalLM(config)
    model.gradient_checkpointing_enable()
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return model.train()


def batch_of(lengths: list[int], vocabulary: int, device: str) -> Sequences:
    """Return random responses of some lengths, with prompts of one token."""
    width = max(lengths)
    mask = torch.arange(-1, width) < torch.tensor(lengths).unsqueeze(1)
    ids = torch.randint(3, vocabulary, mask.shape, generator=torch.Generator().manual_seed(0))
    return Sequences((ids * mask).to(device), mask.long().to(device), width)


def update(model: Any, kind: str, sequences: Sequences, device: str) -> torch.Tensor:
    """Run a forward and backward pass of one kind in bfloat16; return the log-probs of responses."""
    attention, compute = PASSES[kind]
    model.set_attn_implementation(attention)
    model.zero_grad(set_to_none=False)  # A mini-batch of several micro-batches holds its gradients.
    with torch.autocast(device, dtype=torch.bfloat16):
        logps, _ = compute(model, sequences)
    responses = sequences.mask[:, -sequences.width :].bool()
    logps[responses].sum().backward()
    return logps.detach()[responses]


def peak_flops(name: str) -> float:
    """Return the dense bfloat16 peak of a GPU by its name, 0 for one that is not known."""
    known = (sheet for sheet in DATA_SHEETS if sheet.name.upper() in name.upper())
    return next((sheet.flops for sheet in known), 0.0)


def planned(shape: Shape, lengths: list[int]) -> float:
    """Return what `stapo plan` estimates of a packed pass on one GPU, without Adam's moments, in GB."""
    tokens = sum(lengths) + len(lengths)
    training = TrainingSettings(
        steps=1, prompts_per_batch=1, group_size=2, prompts_per_mini_batch=1, learning_rate=1e-6,
        micro_batch_tokens=tokens, max_prompt_tokens=1, max_response_tokens=1,
    )  # fmt: skip
    parts = memory_per_gpu(shape, training, EngineSettings(), 1, 80e9, kl=False)["update"]
    held = ("parameters", "gradients", "layer inputs", "pass")
    return sum(parts[name] for name in held) / 1e9


def passes(page: Page, shape: Shape, batches: dict[str, list[int]]) -> None:
    """Add time, share of the peak and memory of both kinds of passes, and whether they agree."""
    model = model_of(shape, page.device)
    peak = peak_flops(torch.cuda.get_device_name()) if page.device == "cuda" else 0.0
    for title, lengths in batches.items():
        sequences = batch_of(lengths, shape.vocabulary, page.device)
        flops = sum(RECOMPUTED * shape.forward(n + 1, (n + 1) / 2) for n in lengths)
        logps = {kind: update(model, kind, sequences, page.device) for kind in PASSES}
        apart = (logps["packed"] - logps["padded"]).abs().max().item()
        for kind in PASSES:
            seconds, memory = timed(
                lambda kind=kind, sequences=sequences: update(model, kind, sequences, page.device),
                page.device,
            )
            measured = {
                "sequences": title,
                "pass": kind,
                "seconds": seconds,
                "share of peak": flops / seconds / peak if peak else "unknown",
                "peak GB": memory,
                "stapo plan GB": planned(shape, lengths) if kind == "packed" else "",
                "packed - padded, nats": apart,
            }
            page.add("Forward and backward pass", **measured)


def kernels(page: Page, shape: Shape, lengths: list[int]) -> None:
    """Add the kernels that take the most time in attention."""
    model = model_of(shape, page.device, layers=1)
    sequences = batch_of(lengths, shape.vocabulary, page.device)
    on_gpu = page.device == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    for kind in PASSES:
        with profile(activities=[activity]) as found:
            update(model, kind, sequences, page.device)
        words = ("flash", "fmha", "attention", "varlen", "softmax")
        events = [one for one in found.key_averages() if any(w in one.key.lower() for w in words)]
        time = "device_time_total" if on_gpu else "cpu_time_total"
        events.sort(key=lambda one: -getattr(one, time))
        for one in events[:3]:
            named = {"pass": kind, "kernel": one.key[:90], "calls": one.count}
            page.add("Kernels of attention", **named)


def slopes(page: Page, shapes: dict[str, Shape], length: int) -> None:
    """Add time and memory of one layer, as the difference of four and two layers."""
    for size, shape in shapes.items():
        measured = []
        for layers in (2, 4):
            small = Shape(*_of(shape), 4096)
            model = model_of(small, page.device, layers)
            sequences = batch_of([length], small.vocabulary, page.device)
            measured.append(
                timed(
                    lambda model=model, sequences=sequences: update(
                        model, "packed", sequences, page.device
                    ),
                    page.device,
                )
            )
            del model
        (few, few_gb), (more, more_gb) = measured
        slope = {"seconds": (more - few) / 2, "GB": (more_gb - few_gb) / 2}
        page.add("One layer: forward, recomputation, backward", size=size, tokens=length, **slope)


def _of(shape: Shape) -> tuple[int, int, int, int, int, int, bool]:
    heads = shape.heads, shape.kv_heads, shape.head_dim
    return shape.layers, shape.hidden, *heads, shape.ffn, True


def main() -> None:
    """Write the page."""
    page, tiny = begin("attention", "Packed and padded passes")
    if tiny:
        passes(page, TINY, {"1 x 40": [40], "3": [10, 20, 30]})
        kernels(page, TINY, [10, 20, 30])
        slopes(page, {"tiny": TINY}, 32)
        return
    equal, mixed = [5460] * 3, [16383, 9000, 4000, 2000, 1000, 300]
    passes(
        page,
        QWEN["1.7B"],
        {
            "1 x 16,384": [16383],
            "3 x 5,461": equal,
            "log-normal, 32,768": mixed,
            "2 x 16,384": [16383] * 2,
        },
    )
    kernels(page, QWEN["1.7B"], equal)
    slopes(page, {size: QWEN[size] for size in ("8B", "14B")}, 16383)


if __name__ == "__main__":
    main()
