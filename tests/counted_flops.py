"""FLOPs of an update as torch counts them: shapes only, no GPU, nothing allocated.

torch's FlopCounterMode counts a model of one layer and of two, at two lengths; what a whole model needs for
sequences of any length follows exactly, since all but attention is linear in the tokens. It counts
attention as if all tokens saw all others: kernels for causal attention compute half of that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from tracked_memory import qwen3
from trl.kernels import chunked_logprob
from trl.trainer.utils import add_fused_lm_head

from stapo.models.shapes import Shape
from stapo.training.head import log_probs_of

SHORT, LONG = 1024, 2048
CAUSAL = 0.5
"""Share of a square of attention that a causal kernel computes."""


@dataclass(frozen=True)
class Coefficients:
    """FLOPs of one kind of pass through a whole model."""

    token: float
    """Of each position in the layers, without attention."""
    square: float
    """Of attention, for each position and each position that it is compared with."""
    scored: float
    """Of each position in the head."""

    def packed(self, prompts: Tensor, responses: Tensor) -> float:
        """Return the FLOPs for sequences of (R,) prompt and (R,) response tokens without padding."""
        lengths = (prompts + responses).double()
        squares = CAUSAL * (lengths**2).sum().item()
        return self._sum(lengths.sum().item(), squares, responses.sum().item())

    def padded(self, prompts: Tensor, responses: Tensor, width: int | None = None) -> float:
        """Return the FLOPs for sequences padded to the longest, or to `width`.

        Several sequences are computed with a mask, which no kernel skips; a single one without.
        """
        longest = int(prompts.max() + responses.max()) if width is None else width
        rows = len(prompts)
        share = CAUSAL if rows == 1 and width is None else 1.0
        squares = share * rows * float(longest) ** 2
        return self._sum(rows * float(longest), squares, responses.sum().item())

    def _sum(self, positions: float, squares: float, scored: float) -> float:
        return self.token * positions + self.square * squares + self.scored * scored


def counted(shape: Shape, tokens: int, gradient: bool) -> int:
    """Return the FLOPs that torch counts for one packed sequence, all but one of its tokens scored."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = qwen3(shape)
        if gradient:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
        add_fused_lm_head(model, outputs=("log_probs", "entropy"))
        ids = torch.zeros(1, tokens, dtype=torch.long)
        with (
            # torch does not count the product that adds to its output in place.
            patch.object(chunked_logprob, "_addmm_fp32", lambda _, left, right: left @ right),
            FlopCounterMode(display=False) as counter,
            torch.set_grad_enabled(gradient),
        ):
            logps = log_probs_of(model, input_ids=ids, labels=ids).log_probs
            if gradient:
                logps.sum().backward()
    return int(counter.get_total_flops())


def coefficients(shape: Shape, gradient: bool) -> Coefficients:
    """Return the coefficients of a pass without gradient, or of forward, recomputation and backward."""
    one, two = replace(shape, layers=1), replace(shape, layers=2)
    short, long = (
        counted(two, tokens, gradient) - counted(one, tokens, gradient) for tokens in (SHORT, LONG)
    )
    square = (long / LONG - short / SHORT) / (LONG - SHORT)
    token = short / SHORT - square * SHORT
    scored = (counted(one, SHORT, gradient) - short) / (SHORT - 1)
    return Coefficients(shape.layers * token, shape.layers * square, scored)


def parts_of(
    of: Coefficients,
    prompts: Tensor,
    responses: Tensor,
    parts: Sequence[Tensor],
    packed: bool,
) -> float:
    """Return the FLOPs of micro-batches; an empty one computes the shortest sequence of all."""
    shortest = (prompts + responses).argmin().unsqueeze(0)
    compute = of.packed if packed else of.padded
    rows = (part if len(part) else shortest for part in parts)
    return sum(compute(prompts[some], responses[some]) for some in rows)
