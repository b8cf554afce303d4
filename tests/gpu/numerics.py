"""Numbers of a training on a GPU: log-probs, entropies and gradients against float32 logits."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

from gpu.attention import model_of
from gpu.page import Page, begin, timed
from stapo.models.shapes import Shape
from stapo.training.head import log_probs_of

CHUNK = 1024
"""Tokens whose float32 logits exist at once in the comparison."""


def head(page: Page, tokens: int, width: int, vocabulary: int) -> None:
    """Add how far chunked log-probs, entropies and gradients are from whole float32 logits: ours and TRL's.

    Whole logits are those of the same rounded matrices, so that what is left is the rounding of logits.
    """
    model = model_of(Shape(1, width, 1, 1, 8, 8, True, vocabulary), page.device)
    with torch.device(page.device):
        hidden = torch.randn(1, tokens, width).requires_grad_()
        labels = torch.randint(0, vocabulary, (1, tokens))
        slopes = torch.randn(1, tokens)
    weight = model.lm_head.weight
    weight.data.normal_(std=2.0 / width**0.5)
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


def main() -> None:
    """Write the page."""
    page, tiny = begin("numerics", "Numbers of a training")
    head(page, *((64, 32, 128) if tiny else (16384, 2048, 151936)))


if __name__ == "__main__":
    main()
