"""The trainer's update on several ranks, threads here: statistics, loss and gradient as on one.

The pass through the model is replaced by the tables of plain logits, a leaf on each rank, which shows what
a rank computes and which gradient it has.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import oracle
import pytest
import torch
from accelerate.utils import DistributedType
from one_update import (
    LENGTHS,
    POSITIVE,
    ROWS,
    TOKENS,
    WIDTH,
    WITH_THRESHOLD,
    build,
    clipped,
    kept,
    statistics_of,
)
from torch import Tensor

from stapo.conformance.batches import Update
from stapo.conformance.trainers import RankAccelerator, on_ranks
from stapo.methods import Method
from stapo.records.step import as_line

pytestmark = pytest.mark.rounding


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Any:
    """Return a trainer, a mini-batch and the current policy's log-probs and entropies."""
    trainer, batch, plain = build(tmp_path_factory.mktemp("trainer"))
    return trainer, batch, statistics_of(plain, batch)


class Run:
    """One update on ranks: loss, gradient of the log-probs, and by rank the passes and the record."""

    def __init__(
        self,
        base: Any,
        method: Method,
        num_ranks: int,
        statistics: str = "current",
        kind: DistributedType = DistributedType.NO,
        device: str = "cpu",
        budget: int = 60,
    ) -> None:
        trainer, self.batch, tables = base
        self.for_statistics: list[list[list[int]]] = [[] for _ in range(num_ranks)]
        self.for_gradient: list[list[list[int]]] = [[] for _ in range(num_ranks)]
        self.synchronised: list[list[bool]] = [[] for _ in range(num_ranks)]
        self.records: list[dict[str, Any]] = [{} for _ in range(num_ranks)]

        def run(rank: int, accelerator: RankAccelerator) -> Update:
            here, leaf, exchanges = copy.copy(trainer), tables[0].clone().requires_grad_(), [True]
            here.args, here.method, here._step = copy.copy(trainer.args), method, 1
            here.args.statistics, here.args.micro_batch_tokens = statistics, budget
            here.accelerator = accelerator

            model = torch.nn.Module()

            @contextmanager
            def no_sync(of: Any) -> Iterator[None]:
                assert of is model
                exchanges[0] = False
                yield
                exchanges[0] = True

            accelerator.distributed_type, accelerator.no_sync = kind, no_sync

            def forward(_: Any, sequences: Any, rows: Tensor) -> Any:
                assert sequences.width == WIDTH
                gradient = torch.is_grad_enabled()
                passes = self.for_gradient if gradient else self.for_statistics
                passes[rank].append(rows.tolist())
                if gradient:
                    self.synchronised[rank].append(exchanges[0])
                rows = rows if len(rows) else torch.tensor([0], device="cpu")
                return leaf[rows], tables[1][rows]

            here._forward = forward
            with torch.device(device):  # Where a tensor is created for which none is named.
                loss = here._accumulate_gradients(model, self.batch)
            self.records[rank] = as_line(here._record)
            return Update(loss.item(), torch.zeros(1) if leaf.grad is None else leaf.grad)

        self.update = on_ranks([[]] * num_ranks, run)


def plain(method: Method, batch: dict[str, Tensor], tables: Any) -> tuple[float, Tensor]:
    """Return loss and gradient by the log-probs, for methods with the mean over kept tokens."""
    keep = kept(method, tables, batch)
    rows = [
        values.tolist() for values in (tables[0], batch["old_per_token_logps"], batch["advantages"])
    ]
    clip = method.clip_low, method.clip_high, method.dual_clip
    slopes = torch.tensor(oracle.surrogate_weights(*rows, *clip))
    loss = -oracle.token_mean(oracle.clipped_surrogate(*rows, *clip), keep)
    return loss, -slopes * torch.tensor(oracle.token_mean_weights(keep))


@pytest.mark.parametrize(("num_ranks", "budget"), [(1, 60), (2, 60), (3, 60), (4, 1)])
@pytest.mark.parametrize("name", WITH_THRESHOLD)
def test_ranks_change_nothing(base, name: str, num_ranks: int, budget: int) -> None:
    _, batch, tables = base
    method = WITH_THRESHOLD[name]
    run = Run(base, method, num_ranks, budget=budget)
    # Of four ranks with single sequences some have a pass less to do, and take part in it with nothing.
    assert budget > 1 or any([] in parts for parts in run.for_gradient)
    loss, gradient = plain(method, batch, tables)
    # Single precision, one product per entry; the loss is a sum of some hundred.
    torch.testing.assert_close(run.update.gradient, gradient, rtol=1e-5, atol=1e-8)
    assert run.update.loss == pytest.approx(loss, rel=1e-5)
    for record in run.records:
        assert record["loss"] == pytest.approx(loss, rel=1e-5)
        assert record == run.records[0]


@pytest.mark.parametrize(("name", "rows"), [("candidates", POSITIVE), ("all", TOKENS)])
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_every_rank_computes_its_part_in_as_many_passes(
    base, name: str, rows: list[int], num_ranks: int
) -> None:
    run = Run(base, WITH_THRESHOLD[name], num_ranks)
    with_gradient = [row for row in TOKENS if base[1]["advantages"][row] != 0]
    for passes, expected in ((run.for_statistics, rows), (run.for_gradient, with_gradient)):
        assert len({len(parts) for parts in passes}) == 1
        parts = [sorted(row for part in parts for row in part) for parts in passes]
        assert sorted(row for part in parts for row in part) == expected
        assert all(parts)


@pytest.mark.parametrize(
    ("kind", "once"),
    [
        (DistributedType.MULTI_GPU, True),
        (DistributedType.MULTI_CPU, True),
        (DistributedType.FSDP, False),
        (DistributedType.NO, False),
    ],
)
def test_replicas_exchange_gradients_once_in_the_last_pass(base, kind, once: bool) -> None:
    """Sharded gradients are exchanged in every pass."""
    run = Run(base, clipped("justrl"), 2, kind=kind)
    for exchanged in run.synchronised:
        assert len(exchanged) > 1
        assert exchanged == [not once] * (len(exchanged) - 1) + [True]


def test_the_meter_compares_with_a_threshold_per_rank(base) -> None:
    """A rank's own sequences are consecutive ones of the mini-batch."""
    method, (_, batch, _) = WITH_THRESHOLD["candidates"], base
    behaviour = batch["old_per_token_logps"], batch["old_entropies"]
    run, half = Run(base, method, 2, statistics="behaviour"), len(ROWS) // 2
    apart = []
    for rows in (slice(half), slice(half, None)):
        part = {name: values[rows] for name, values in batch.items()}
        apart += kept(method, tuple(values[rows] for values in behaviour), part)
    keep = kept(method, behaviour, batch)
    pairs = [(keep[b][t], apart[b][t]) for b in ROWS for t in range(LENGTHS[b])]
    assert run.records[0]["mask_scope"]["rank"] == {
        "num_dropped": sum(not other for _, other in pairs),
        "num_different": sum(one != other for one, other in pairs),
    }
    assert run.records[0]["mask_scope"]["rank"]["num_different"] > 0


def test_shares_of_a_mini_batch_of_one_token(base) -> None:
    trainer, batch, tables = base
    method = clipped("justrl", kl_coefficient=0.5)
    # One above the clip, then one below it.
    for row, name, ratio in ((0, "clip_high_fraction", 1.0), (1, "clip_low_fraction", -1.0)):
        mask = torch.zeros(len(ROWS), WIDTH, dtype=torch.long)
        mask[row, 0] = 1
        whole = {**batch, "completion_mask": mask, "old_per_token_logps": tables[0] - ratio}
        record = Run((trainer, whole, tables), method, 1).records[0]
        assert record[name] == 1.0
        ref = batch["ref_per_token_logps"][row, 0].item()
        kl = oracle.kl_k3([[tables[0][row, 0].item()]], [[ref]])[0][0]
        assert record["kl"] == pytest.approx(kl, rel=1e-5)  # single precision


def test_everything_lies_where_the_mini_batch_lies(base) -> None:
    """As on an accelerator: what is created with no device named is on another one."""
    method = clipped("20-entropy", kl_coefficient=0.5)
    elsewhere, here = (Run(base, method, 2, device=device) for device in ("meta", "cpu"))
    assert elsewhere.update.loss == here.update.loss
    assert elsewhere.records == here.records
