"""Log-probs and entropies of tokens from float32 logits, also where weights and hidden states are bfloat16.

TRL's head computes a tile of logits at a time, in the type of the weights. Between 16 and 32, bfloat16 has
steps of 1/8: 6 % of a probability, which is compared with tau_p, and of a ratio. Here the products of
bfloat16 matrices stay in float32, in which they are summed anyway. Gradients of logits are rounded before
their products, as in TRL, since an error of 1 in 500 of each has no bias.

N tokens, H hidden values, V words.
"""

from collections.abc import Iterator
from math import ceil, inf, log
from typing import Any

import torch
from torch import Tensor
from trl.kernels import chunked_logprob
from trl.trainer import utils

STATISTICS = ("max", "sum_exp", "x_sum_exp", "sq_sum_exp", "z_sum", "max_before_target", "target")
"""What a tile is added to, one float32 number for each token, in the order of TRL's kernels."""
FROM_MINUS_INFINITY = ("max", "max_before_target")
TAKEN = {"log_probs", "entropy"}


def log_probs_of(model: Any, min_p: float | None = None, **inputs: Any) -> Any:
    """Return the output of a model with TRL's fused head, computed from float32 logits.

    With `min_p`, the log-probs are those of the policy over the words whose probability is at least min_p
    times the highest one, -inf for others, without gradient.
    """
    rounded = utils._ChunkedLogProbFunction
    utils._ChunkedLogProbFunction = Float32LogProbs if min_p is None else _Proxy(min_p)
    try:
        return model(fused_lm_head=True, **inputs)
    finally:
        utils._ChunkedLogProbFunction = rounded


def whole_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return (N, V) float32 logits, those of which `log_probs_of` computes a tile at a time."""
    logits = hidden.new_empty((len(hidden), len(weight)), dtype=torch.float32)
    dtype = _computed_in(hidden)
    _multiply(hidden.to(dtype), weight.to(dtype).t(), logits)
    return logits if bias is None else logits + bias.to(dtype)


def scaled(logits: Tensor, scale: float, softcap: float | None, temperature: float) -> Tensor:
    """Return the logits of a product of matrices as TRL's fused head scales them."""
    logits = logits * scale
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    return logits / temperature


class Float32LogProbs(torch.autograd.Function):
    """TRL's `ChunkedLogProbFunction` with float32 logits: the same arguments, kernels and results."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        chunk_size: int,
        softcap: float | None = None,
        logit_scale: float = 1.0,
        outputs: tuple[str, ...] = (),
    ) -> tuple[Tensor | None, ...]:
        """Return (N,) log-probs and, if `outputs` asks for it, entropies; TRL's other outputs are None.

        The tables are (N, H), (V, H), (V,) and (N,); `chunk_size` is the number of words of a tile.
        """
        if unknown := set(outputs) - TAKEN:
            raise ValueError(f"outputs: no {', '.join(sorted(unknown))} from float32 logits")
        ctx.set_materialize_grads(False)
        ctx.dtype, ctx.chunk_size = _computed_in(hidden), chunk_size
        ctx.scaling = {
            "logit_scale": logit_scale,
            "softcap": softcap or 1.0,
            "inv_t": 1 / temperature,
            "HAS_SOFTCAP": softcap is not None,
            "BLOCK_SIZE": chunked_logprob._BLOCK_SIZE,
        }
        asked = {
            f"HAS_{name.upper()}": name in outputs for name in chunked_logprob.OPTIONAL_OUTPUTS
        }
        statistics = {
            name: hidden.new_zeros(len(hidden), dtype=torch.float32) for name in STATISTICS
        }
        for name in FROM_MINUS_INFINITY:
            statistics[name].fill_(float("-inf"))
        fold = _kernel("forward", hidden.device)
        for rows, words, _, _, tile in _tiles(hidden, weight, bias, ctx.dtype, chunk_size):
            fold(len(tile), tile.shape[1])(
                tile, tile.stride(0), targets[rows], *(statistics[name][rows] for name in STATISTICS),
                words.start, tile.shape[1], **asked, **ctx.scaling,
            )  # fmt: skip
        log_sum = statistics["max"] + torch.log(statistics["sum_exp"])
        entropies = None
        if "entropy" in outputs:
            entropies = log_sum - statistics["x_sum_exp"] / statistics["sum_exp"]
        # Without entropies there is no gradient of them, and `log_sum` only fills their place.
        kept = log_sum if entropies is None else entropies
        ctx.save_for_backward(hidden, weight, bias, targets, log_sum, kept)
        return statistics["target"] - log_sum, entropies, None, None, None

    @staticmethod
    def backward(
        ctx: Any, grad_logps: Tensor | None, grad_entropies: Tensor | None, *_: Any
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of hidden states, weight and bias, summed in float32."""
        hidden, weight, bias, targets, log_sum, entropies = ctx.saved_tensors
        sums = [
            torch.zeros_like(table, dtype=torch.float32) if needed else None
            for table, needed in zip((hidden, weight, bias), ctx.needs_input_grad[:3], strict=True)
        ]
        grad_hidden, grad_weight, grad_bias = sums
        given = [
            log_sum if grad is None else grad.float().contiguous()
            for grad in (grad_logps, grad_entropies)
        ]
        has_logps, has_entropies = grad_logps is not None, grad_entropies is not None
        has = {"HAS_LOGPROB_GRAD": has_logps, "HAS_ENTROPY_GRAD": has_entropies}
        fold, tables = _kernel("backward", hidden.device), (hidden, weight, bias)
        for rows, words, states, tile_weight, tile in _tiles(*tables, ctx.dtype, ctx.chunk_size):
            fold(len(tile), tile.shape[1])(
                tile, tile.stride(0), targets[rows], log_sum[rows], entropies[rows],
                given[0][rows], given[1][rows], words.start, tile.shape[1], **has, **ctx.scaling,
            )  # fmt: skip
            if grad_bias is not None:
                grad_bias[words] += tile.sum(dim=0)
            tile = tile.to(ctx.dtype)
            if grad_hidden is not None:
                chunked_logprob._addmm_fp32(grad_hidden[rows], tile, tile_weight)
            if grad_weight is not None:
                chunked_logprob._addmm_fp32(grad_weight[words], tile.t(), states)
        return *(
            None if grad is None else grad.to(like.dtype)
            for grad, like in zip(sums, (hidden, weight, bias), strict=True)
        ), *[None] * 6  # fmt: skip


class _Proxy:
    """Takes the place of `Float32LogProbs` where log-probs of a proxy are asked for."""

    def __init__(self, min_p: float) -> None:
        self.min_p = min_p

    @torch.no_grad()
    def apply(self, *given: Any) -> tuple[Tensor | None, ...]:
        """Return (N,) log-probs of the proxy; the arguments are those of `Float32LogProbs`."""
        hidden, weight, bias, targets, temperature, width, softcap, logit_scale, *_ = given
        tables = hidden, weight, bias, _computed_in(hidden), width

        def tiles() -> Iterator[tuple[slice, slice, Tensor]]:
            for rows, words, _, _, tile in _tiles(*tables):
                yield rows, words, scaled(tile, logit_scale, softcap, temperature)

        largest, target_logits, kept = (
            hidden.new_full((len(hidden),), -inf, dtype=torch.float32) for _ in range(3)
        )
        for rows, words, logits in tiles():
            largest[rows] = torch.maximum(largest[rows], logits.max(dim=1).values)
            inside = targets[rows] - words.start
            here = (inside >= 0) & (inside < logits.shape[1])
            logit = logits.gather(1, inside.clamp(0, logits.shape[1] - 1).unsqueeze(1)).squeeze(1)
            target_logits[rows] = torch.where(here, logit, target_logits[rows])
        least = largest + log(self.min_p)
        for rows, _, logits in tiles():
            logits = logits.masked_fill(logits < least[rows].unsqueeze(1), -inf)
            kept[rows] = torch.logaddexp(kept[rows], logits.logsumexp(dim=1))
        proxy = torch.where(target_logits < least, -inf, target_logits - kept)
        return proxy, *[None] * 4


def _computed_in(hidden: Tensor) -> torch.dtype:
    """Return the type of the matrices of a product: that of autocast, or of the hidden states."""
    kind = hidden.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype


def _tiles(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, width: int
) -> Iterator[tuple[slice, slice, Tensor, Tensor, Tensor]]:
    """Yield tokens, words, their (n, H) hidden states and (w, H) weights, and (n, w) float32 logits."""
    height = chunked_logprob.TOKEN_CHUNK_SIZE
    buffer = hidden.new_empty((min(len(hidden), height), width), dtype=torch.float32)
    for row in range(0, len(hidden), height):
        rows = slice(row, min(row + height, len(hidden)))
        states = hidden[rows].to(dtype)
        for word in range(0, len(weight), width):
            words = slice(word, min(word + width, len(weight)))
            tile_weight = weight[words].to(dtype)
            tile = buffer[: len(states), : len(tile_weight)]
            _multiply(states, tile_weight.t(), tile)
            if bias is not None:
                tile.add_(bias[words].to(dtype))
            yield rows, words, states, tile_weight, tile


def _multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Write a product of matrices into `out`, in float32, which holds products of bfloat16 exactly."""
    if left.dtype != torch.float32 and out.is_cuda:
        torch.mm(left, right, out_dtype=torch.float32, out=out)
    else:
        torch.mm(left.float(), right.float(), out=out)


def _kernel(direction: str, device: torch.device) -> Any:
    """Return TRL's kernel for a tile of some height and width: Triton's, or its substitute in torch."""
    trl = chunked_logprob
    forward = direction == "forward"
    if not trl._use_triton(device):
        substitute = trl._forward_tile if forward else trl._backward_tile
        return lambda height, width: substitute
    if forward:
        return lambda height, width: trl._forward_kernel[(height,)]
    return lambda height, width: trl._backward_kernel[(height, ceil(width / trl._BLOCK_SIZE))]
