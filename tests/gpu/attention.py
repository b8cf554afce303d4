"""Packed and padded passes on a GPU: time, share of the peak FLOP/s, memory."""

import statistics
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl.trainer.utils import add_fused_lm_head

from gpu.page import Page, begin
from stapo.models.shapes import SHAPES, Shape
from stapo.operations.plan import DEVICES
from stapo.training.forward import PACKED, Sequences, packed_forward, padded_forward

QWEN = SHAPES["Qwen/Qwen3-1.7B-Base"]
TINY = Shape(2, 64, 4, 2, 16, 128, True, 512)
PASSES: dict[str, tuple[str, Callable[..., Any]]] = {
    "padded": ("sdpa", padded_forward),
    "packed": (PACKED, packed_forward),
}
RECOMPUTED = 4
"""Forward passes that a forward, recomputation and backward pass are worth."""


def config_of(shape: Shape) -> Qwen3Config:
    """Return the configuration of a model of some shape."""
    return Qwen3Config(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, head_dim=shape.head_dim,
        num_key_value_heads=shape.kv_heads, tie_word_embeddings=shape.tied,
        pad_token_id=0, bos_token_id=None, eos_token_id=1, max_position_embeddings=65536,
    )  # fmt: skip


def model_of(shape: Shape, device: str) -> Any:
    """Return a random model with TRL's fused head, float32 weights and gradient checkpointing."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(config_of(shape))
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


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Return median seconds of three calls, and the peak of GPU memory in GB."""
    cuda, times = torch.cuda.is_available(), []
    for _ in range(3):
        start = perf_counter()
        call()
        if cuda:
            torch.cuda.synchronize()
        times.append(perf_counter() - start)
    return statistics.median(times), torch.cuda.max_memory_allocated() / 1e9 if cuda else 0.0


def peak_flops(name: str) -> float:
    """Return the dense bfloat16 peak of a GPU by its name, 0 for one that is not known."""
    known = (sheet for gpu, sheet in DEVICES.items() if gpu.upper() in name.upper())
    return next((sheet.flops for sheet in known), 0.0)


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
            if page.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            seconds, memory = timed(partial(update, model, kind, sequences, page.device))
            measured = {
                "sequences": title,
                "pass": kind,
                "seconds": seconds,
                "share of peak": flops / seconds / peak if peak else "unknown",
                "peak GB": memory,
                "packed - padded, nats": apart,
            }
            page.add("Forward and backward pass", **measured)


def main() -> None:
    """Write the page."""
    page, tiny = begin("attention")
    if tiny:
        passes(page, TINY, {"1 x 40": [40], "3": [10, 20, 30]})
        return
    batches = {
        "1 x 16,384": [16383],
        "3 x 5,461": [5460] * 3,
        "log-normal, 32,768": [16383, 9000, 4000, 2000, 1000, 300],
        "2 x 16,384": [16383] * 2,
    }
    passes(page, QWEN, batches)


if __name__ == "__main__":
    main()
