"""The update: token selection, loss and gradient of a mini-batch, and its record.

Threshold and divisor are computed on the whole mini-batch, for any micro-batches and any number of ranks.
The model is a function of rows, and communication the operations of `Ranks`: any trainer can call it.

B sequences, T response positions; log-probs and entropies in nats.
"""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from stapo.core.loss import LossSums, TokenTables, micro_batch_loss, with_zeroed_rows
from stapo.core.methods.parts import SEED, STEP, Method
from stapo.core.metrics import measured
from stapo.core.minibatch import Layout, MiniBatch, micro_batches_by_rank
from stapo.core.objective import SELECTIONS, at_resolution
from stapo.core.objective.penalties import PENALTIES, State
from stapo.core.step_record import StepRecord

Forward = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""A forward pass: (R,) rows -> log-probs and entropies of the model, (max(R, 1), W) each, with W at least the
longest response of these rows; with gradient, except under torch.no_grad(). With R = 0, other ranks have
another pass, and this rank must take part in it with any row. A reference model returns no entropies."""

Statistics = Literal["behaviour", "current"]
"""The policy whose probabilities and entropies select tokens: the one that produced the responses, or the
current one, which costs a forward pass over the rows that the selection reads, at least those with A > 0."""


class Ranks(Protocol):
    """The operations on the ranks of a training that an update needs."""

    @property
    def index(self) -> int:
        """This rank, from 0."""

    @property
    def number(self) -> int:
        """How many ranks there are."""

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor of the same shape on every rank."""

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of a rank's loss so that the optimiser sees the sum over ranks."""

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """Return the context of one of several passes with gradient; after the last the ranks agree."""


Selected = Callable[[Tensor, Tensor, TokenTables], None]
"""Called once with (B, T) log-probs and entropies that select tokens, and the tables of the method."""


def accumulate_gradient(
    forward: Forward,
    batch: MiniBatch,
    method: Method,
    ranks: Ranks,
    *,
    group_size: int,
    micro_batch_tokens: int,
    layout: Layout = "padded",
    statistics: Statistics = "behaviour",
    seed: int = 0,
    step: int = 1,
    selected: Selected | None = None,
    keep: Tensor | None = None,
    state: State | None = None,
    max_response_tokens: int = 1,
    tau_p: float | None = None,
) -> tuple[Tensor, StepRecord]:
    """Compute the loss of a whole mini-batch and accumulate its gradient in the parameters of `forward`.

    The mini-batch is the same on every rank; the responses of a group are consecutive rows. The budget of one
    pass, `micro_batch_tokens`, counts prompts and responses in the `layout` of `forward`. `step` is the
    number of the update, from 1; a random selection needs another `seed` in each. `keep` (B, T) bool are the
    tokens that contribute, None for those that the method selects; `state` is what its penalty remembers,
    None in its first step. Candidates, counted under every method, have a probability below `tau_p`, by
    default the method's own or STAPO's.

    Returns:
        The loss, () without gradient, and a record with the fields that are known here; both are the same
        on every rank.
    """
    logps, entropies = batch.old_logps, batch.old_entropies

    def local_parts(needed: Tensor) -> list[Tensor]:
        """Return this rank's micro-batches of the rows for which `needed`, (B,) bool, is true."""
        rows = needed.nonzero().flatten()
        by_rank = micro_batches_by_rank(
            batch.lengths(), rows, micro_batch_tokens, ranks.number, layout, group_size
        )
        return by_rank[ranks.index]

    if statistics == "current":
        logps, entropies = _current(forward, batch, method, ranks, local_parts)

    if keep is None:
        keep = select(method, logps, entropies, batch.advantages, batch.mask, seed, step)
        if method.is_own and ((total := ranks.sum(keep.float())) % ranks.number).any():
            cause = f"keeps other tokens on other ranks ({total.max():.0f} of {ranks.number})"
            raise ValueError(f"{method.selection_name}: {cause}; draw by the argument seed")
    tables = TokenTables.build(
        method, batch, keep, logps, entropies, group_size, max_response_tokens, state
    )
    if selected is not None:
        selected(logps, entropies, tables)
    # Without a KL term or penalty, a sequence with zero advantage has no gradient: both passes are skipped.
    has_gradient = (batch.advantages != 0) | (method.kl_coefficient > 0)
    has_gradient |= (tables.coefficients != 0).any(dim=1)
    is_kept = (tables.loss_weights > 0).any(dim=1)
    parts = local_parts(is_kept & has_gradient)
    sums = ranks.sum(_run_micro_batches(forward, batch, tables, method, ranks, parts))
    all_sums = with_zeroed_rows(
        LossSums(*sums.tolist()), logps, batch, is_kept & ~has_gradient, method
    )
    record = measured(batch, logps, keep, method, all_sums, tau_p)
    return torch.tensor(record.loss, device=batch.mask.device), record


def next_state(method: Method, state: State | None, record: StepRecord) -> State:
    """Return what the penalty of a method remembers after an update, from what it did before."""
    penalty, arguments = PENALTIES[method.penalty], method.arguments_of("penalty")
    return penalty.following(state or penalty.initial, record.entropy, **arguments)


def select(
    method: Method,
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    seed: int,
    step: int = 1,
) -> Tensor:
    """Return the (R, T) mask of tokens that a method keeps in a mini-batch of these rows alone.

    Entropies are rounded to a fixed resolution first, so that numerical noise does not decide between
    equal ones. The shapes are (R, T) and (R,); `seed` is for a random selection, `step` the number of the
    update.
    """
    tables, given = (logps, at_resolution(entropies), advantages, mask), {SEED: seed, STEP: step}
    if isinstance(method.selection, str):
        arguments = method.arguments_of("selection")
        arguments |= {name: given[name] for name in method.part("selection").given}
        return SELECTIONS[method.selection](*tables, **arguments)
    parameters = inspect.signature(method.selection).parameters
    taken = {name: value for name, value in given.items() if name in parameters}
    # Copies: a function that changes its arguments must not change the trainer's tables.
    copies = [table.clone() for table in tables]
    keep: Tensor = method.selection(*copies, **method.selection_args, **taken)
    _require_mask(keep, mask, method.selection_name)
    return keep


def _require_mask(keep: Any, mask: Tensor, name: str) -> None:
    """Raise a ValueError unless `keep` is a bool tensor in the shape of `mask`, with tokens of it alone."""
    if not isinstance(keep, Tensor) or (keep.dtype, keep.shape) != (torch.bool, mask.shape):
        wanted = f"expected a bool tensor of shape {tuple(mask.shape)}"
        is_table = isinstance(keep, Tensor)
        given = f"{keep.dtype} of shape {tuple(keep.shape)}" if is_table else type(keep).__name__
        raise ValueError(f"{name}: {wanted}, found {given}; fix the function")
    if (keep & ~mask).any():
        raise ValueError(f"{name}: keeps positions outside mask; return `mask & ...`")


def without_gradient(
    forward: Forward, parts: list[Tensor], like: Tensor, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Return log-probs and entropies of the rows in `parts`, 0 for all other rows, in the shape of `like`."""
    logps = torch.zeros(like.shape, dtype=dtype, device=like.device)
    entropies = torch.zeros_like(logps)
    with torch.no_grad():
        for rows in parts:
            part, entropy = forward(rows)
            logps[rows, : part.shape[1]] = part[: len(rows)].to(dtype)
            if entropy is not None:
                entropies[rows, : part.shape[1]] = entropy[: len(rows)].to(dtype)
    return logps, entropies


def _current(
    forward: Forward,
    batch: MiniBatch,
    method: Method,
    ranks: Ranks,
    local_parts: Callable[[Tensor], list[Tensor]],
) -> tuple[Tensor, Tensor]:
    """Return (B, T) log-probs and entropies of the current policy; the old ones of rows that are not read.

    Candidates are counted under every method: rows with A > 0 are read also if the selection reads none.
    """
    needed = batch.mask.any(dim=1)
    if method.reads != "all":
        needed &= batch.advantages > 0
    computed = without_gradient(forward, local_parts(needed), batch.mask, batch.old_logps.dtype)
    # Each row is computed by one rank and is 0 on the others.
    logps, entropies = (
        torch.where(needed.unsqueeze(1), ranks.sum(values), old)
        for values, old in zip(computed, (batch.old_logps, batch.old_entropies), strict=True)
    )
    return logps, entropies


def _run_micro_batches(
    forward: Forward,
    batch: MiniBatch,
    tables: TokenTables,
    method: Method,
    ranks: Ranks,
    parts: list[Tensor],
) -> Tensor:
    """Accumulate the gradient of each of this rank's micro-batches; return their `LossSums` as a tensor."""
    sums = torch.zeros(len(LossSums._fields), dtype=torch.double, device=batch.mask.device)
    for index, rows in enumerate(parts):
        with ranks.synchronised(last=index == len(parts) - 1):
            logps, entropies = forward(rows)
            loss = logps.sum() * 0.0  # Without rows, take part in the pass of the other ranks.
            if len(rows):
                taken = batch.take(rows), tables.take(rows)
                loss, added = micro_batch_loss(logps, entropies, *taken, method)
                sums += torch.stack([value.double() for value in added])
            ranks.backward(loss)
    return sums
