"""The loss of micro-batches: what a method decides about tokens, and what it makes of them.

Thresholds and divisors are those of the whole mini-batch: `TokenTables` is computed once, before all passes
with gradient. B sequences of the mini-batch, R of a micro-batch, T and W response positions; nats.
"""

from dataclasses import dataclass
from math import inf
from typing import Any, Generic, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from stapo.core.methods import Method
from stapo.core.minibatch import MiniBatch
from stapo.core.objective import clipped_surrogate, kl_k3
from stapo.core.objective.aggregation import token_weights
from stapo.core.objective.penalties import PENALTIES, State
from stapo.core.objective.surrogates import SURROGATES
from stapo.core.objective.weightings import WEIGHTINGS

SAME = 1e-4
"""Relative difference of a token's slope up to which it is unchanged, as rounding."""

Number = TypeVar("Number", Tensor, float)


class LossSums(NamedTuple, Generic[Number]):
    """Sums over the tokens of some sequences."""

    loss: Number
    kl: Number
    clipped_low: Number
    """Tokens with A < 0 and a ratio below the clip."""
    clipped_high: Number
    touched: Number
    """Tokens whose slope the method changes: see `_slopes`."""
    slope_changes: Number
    plain_slopes: Number


@dataclass(frozen=True)
class TokenTables:
    """What a method decides about the tokens of a mini-batch, each (B, T), 0 outside the kept tokens."""

    keep: Tensor
    """Bool, the tokens that contribute."""
    loss_weights: Tensor
    """Weight of each token in the loss, by selection, aggregation and divisor."""
    factors: Tensor
    """Factor of its surrogate."""
    coefficients: Tensor
    """Coefficient of its penalty."""

    @classmethod
    def build(
        cls,
        method: Method,
        batch: MiniBatch,
        keep: Tensor,
        logps: Tensor,
        entropies: Tensor,
        group_size: int,
        max_response_tokens: int,
        state: State | None,
    ) -> Self:
        """Return the tables of a whole mini-batch; log-probs and entropies are those that select tokens."""
        counted = keep if method.divisor == "kept" else batch.mask
        loss_weights = token_weights(
            counted, method.aggregation, group_size, length=max_response_tokens
        )
        responses = batch.advantages, batch.mask
        weighting, penalty = WEIGHTINGS[method.weighting], PENALTIES[method.penalty]
        given: dict[str, Any] = dict(penalty.initial if state is None else state)
        if penalty.against_proxy:
            given["proxy"] = _required(batch.proxy_logps, "proxy_logps")
        given |= method.arguments_of("penalty")
        coefficients = penalty.coefficients(logps, entropies, *responses, **given)
        old = batch.old_logps, batch.old_entropies
        factors = weighting(*old, *responses, **method.arguments_of("weighting"))
        return cls(
            keep,
            *(torch.where(keep, table, 0.0) for table in (loss_weights, factors, coefficients)),
        )

    def touched(self) -> Tensor:
        """Return (B, T) bool, the tokens that selection, weighting or penalty treat unlike most."""
        return ~self.keep | (self.factors != 1) | (self.coefficients != 0)

    def take(self, rows: Tensor) -> "TokenTables":
        """Return the tables of some rows."""
        return TokenTables(*(table[rows] for table in vars(self).values()))


def _required(table: Tensor | None, name: str) -> Tensor:
    if table is None:
        raise ValueError(f"{name}: missing; the method needs them")
    return table


def micro_batch_loss(
    logps: Tensor, entropies: Tensor | None, batch: MiniBatch, tables: TokenTables, method: Method
) -> tuple[Tensor, LossSums[Tensor]]:
    """Return the loss of some sequences, and sums of their tokens without gradient.

    The sum over all micro-batches and ranks is the loss of the mini-batch. Log-probs and entropies, with
    gradient, are (R, W), batch and tables have the same sequences and may be wider.
    """
    width = logps.shape[1]
    mask, sign = batch.mask[:, :width], batch.advantages.unsqueeze(1)
    values = _values(logps, entropies, batch, tables, method)
    kl = torch.zeros_like(values)
    if method.kl_coefficient > 0:
        kl = kl_k3(logps, _required(batch.ref_logps, "ref_logps")[:, :width])
        values = values - method.kl_coefficient * kl
    # Positions after a response may be NaN or infinite: set them to 0, since 0 x NaN is NaN.
    loss = -(values.masked_fill(~mask, 0.0) * tables.loss_weights[:, :width]).sum()
    log_ratio = (logps.detach() - batch.old_logps[:, :width]).masked_fill(~mask, 0.0)
    if method.part("surrogate").of_responses:
        # Ratio and clip are those of a response.
        log_ratio = log_ratio.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    ratio = torch.exp(log_ratio)
    return loss, LossSums(
        loss.detach(),
        kl.detach().masked_fill(~mask, 0.0).sum(),
        (mask & (sign < 0) & (ratio < 1 - method.clip_low)).sum(),
        (mask & (sign > 0) & (ratio > 1 + method.clip_high)).sum(),
        *_slopes(logps, entropies, batch, tables, method),
    )


def _values(
    logps: Tensor, entropies: Tensor | None, batch: MiniBatch, tables: TokenTables, method: Method
) -> Tensor:
    """Return (R, W) values of tokens that the loss averages: factor x surrogate - coefficient x penalty."""
    width = logps.shape[1]
    old, mask = batch.old_logps[:, :width], batch.mask[:, :width]
    surrogate = SURROGATES[method.surrogate]
    values = surrogate(logps, old, batch.advantages, mask, **method.arguments_of("surrogate"))
    if method.weighting != "none":
        values = values * tables.factors[:, :width]
    if method.penalty != "none":
        penalty = PENALTIES[method.penalty]
        if penalty.against_proxy:
            old = _required(batch.proxy_logps, "proxy_logps")[:, :width]
        given = _required(entropies, "entropies")
        coefficients = tables.coefficients[:, :width]
        quantity = penalty.quantity(logps, given, old)
        # A product with 0 would have a gradient of 0 x NaN.
        values = values - torch.where(coefficients != 0, coefficients * quantity, 0.0)
    return values


def _slopes(
    logps: Tensor, entropies: Tensor | None, batch: MiniBatch, tables: TokenTables, method: Method
) -> tuple[Tensor, Tensor, Tensor]:
    """Return how many tokens a method touches, the sum of the changes of their slopes, and that of slopes.

    The slope of a token is the derivative of its value by its log-prob; it is compared with that of the
    clipped surrogate with the method's clip (none if that is for ratios of responses) and the usual
    advantages, in which nothing is silenced. The divisor is not compared.
    """
    width = logps.shape[1]
    mask, plain_slopes = batch.mask[:, :width], _plain_slopes(logps, batch, method)
    with torch.enable_grad():
        leaf = logps.detach().masked_fill(~mask, 0.0).requires_grad_()
        given = None if entropies is None else entropies.detach().masked_fill(~mask, 0.0)
        values = _values(leaf, given, batch, tables, method).masked_fill(
            ~tables.keep[:, :width], 0.0
        )
        slopes = torch.autograd.grad(values.sum(), leaf)[0]
    change = (slopes - plain_slopes).abs()
    touched = change > SAME * plain_slopes.abs().clamp(min=SAME)
    if PENALTIES[method.penalty].acts_on_entropy:
        touched |= tables.coefficients[:, :width] != 0
    return (touched & mask).sum(), change.sum(), plain_slopes.abs().sum()


def _plain_slopes(logps: Tensor, batch: MiniBatch, method: Method) -> Tensor:
    """Return the (R, W) slopes of the clipped surrogate with the usual advantages, 0 outside the mask."""
    width = logps.shape[1]
    mask, old = batch.mask[:, :width], batch.old_logps[:, :width]
    usual = batch.advantages if batch.group_advantages is None else batch.group_advantages
    clips: tuple[float, float, float | None] = method.clip_low, method.clip_high, method.dual_clip
    if method.part("surrogate").of_responses:
        clips = 1.0, inf, None  # A clip for ratios of responses says nothing of those of tokens.
    with torch.enable_grad():
        leaf = logps.detach().masked_fill(~mask, 0.0).requires_grad_()
        plain = clipped_surrogate(leaf, old, usual, *clips).masked_fill(~mask, 0.0)
        return torch.autograd.grad(plain.sum(), leaf)[0]


def with_zeroed_rows(
    sums: LossSums[float], logps: Tensor, batch: MiniBatch, rows: Tensor, method: Method
) -> LossSums[float]:
    """Return the sums with those of `rows` (B,), which had no pass since the method's advantages there are 0.

    All their tokens are touched that have a slope with the usual advantages, at the log-probs (B, T) that
    selected tokens: those of the current policy, or of the rollout's.
    """
    if batch.group_advantages is None:  # Then the usual advantages are the method's, 0 there.
        return sums
    slopes = _plain_slopes(logps, batch, method)[rows].abs()
    missing = float(slopes.double().sum())
    return sums._replace(
        touched=sums.touched + int((slopes > SAME**2).sum()),
        slope_changes=sums.slope_changes + missing,
        plain_slopes=sums.plain_slopes + missing,
    )
