"""The division into micro-batches changes no result: each sequence once, in the budget, and the same sums."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stapo.methods import METHODS
from stapo.objective import SELECTIONS
from stapo.objective.aggregation import token_weights
from stapo.training.minibatch import MiniBatch, micro_batches, micro_batches_by_rank
from stapo.training.update import micro_batch_loss

# The smallest mini-batch that fails says little more than any, and takes minutes to find.
PHASES = (Phase.explicit, Phase.generate)


@settings(max_examples=100, deadline=None, phases=PHASES)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60)), min_size=1, max_size=40),
    budget=st.integers(1, 400),
    packed=st.booleans(),
)
def test_each_sequence_once_and_within_the_budget(lengths, budget, packed):
    prompts, responses = torch.tensor(lengths).T
    parts = micro_batches(prompts, responses, torch.arange(len(lengths)), budget, packed)
    assert sorted(torch.cat(parts).tolist()) == list(range(len(lengths)))

    def positions(rows: torch.Tensor) -> int:
        if packed:
            return int((prompts + responses)[rows].sum())
        return len(rows) * int(prompts[rows].max() + responses[rows].max())

    for part, following in zip(parts, [*parts[1:], None], strict=True):
        assert positions(part) <= budget or len(part) == 1
        if following is not None:  # Else it would have been added.
            assert positions(torch.cat([part, following[:1]])) > budget


@settings(max_examples=100, deadline=None, phases=PHASES)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60)), min_size=1, max_size=40),
    budget=st.integers(1, 400),
    num_ranks=st.integers(1, 5),
)
def test_all_ranks_have_as_many_passes_and_together_each_sequence_once(lengths, budget, num_ranks):
    prompts, responses = torch.tensor(lengths).T
    rows = torch.arange(len(lengths))
    by_rank = micro_batches_by_rank(prompts, responses, rows, budget, num_ranks)
    assert len(by_rank) == num_ranks
    assert len({len(parts) for parts in by_rank}) == 1
    found = [row for parts in by_rank for part in parts for row in part.tolist()]
    assert sorted(found) == list(range(len(lengths)))
    # Sequences are divided by length: no rank has more than one sequence more than another.
    counts = [sum(len(part) for part in parts) for parts in by_rank]
    assert max(counts) - min(counts) <= 1
    work = [sum(int((prompts + responses)[part].sum()) for part in parts) for parts in by_rank]
    assert max(work) - min(work) <= max(map(sum, lengths))


def test_sequences_of_equal_length_are_divided_in_the_order_of_the_rows():
    """Every rank computes the division by itself: no two may sort ties differently."""
    lengths = torch.ones(4000, dtype=torch.long)  # long enough for an unstable sort to shuffle
    rows = torch.arange(4000)
    assert torch.equal(torch.cat(micro_batches(lengths, lengths, rows, 100)), rows)
    for rank, parts in enumerate(micro_batches_by_rank(lengths, lengths, rows, 100, 2)):
        assert torch.equal(torch.cat(parts), rows[rank::2])


@settings(max_examples=60, deadline=None, phases=PHASES)
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(sorted(METHODS)),
    budget=st.integers(1, 200),
    num_ranks=st.integers(1, 4),
    shuffled=st.booleans(),
    by_group=st.booleans(),
)
def test_loss_and_gradient_do_not_depend_on_micro_batches_ranks_and_order(
    seed, name, budget, num_ranks, shuffled, by_group
):
    """Every method, its mask and divisor of the whole mini-batch, summed over ranks and micro-batches."""
    method, generator = METHODS[name], torch.Generator().manual_seed(seed)
    size, width = 12, 9
    aggregation = "group_token_mean" if by_group else method.aggregation
    lengths = torch.randint(0, width + 1, (size,), generator=generator)
    batch = MiniBatch(
        mask=torch.arange(width) < lengths.unsqueeze(1),
        old_logps=-8 * torch.rand(size, width, generator=generator).double(),
        ref_logps=-8 * torch.rand(size, width, generator=generator).double(),
        old_entropies=3 * torch.rand(size, width, generator=generator).double(),
        advantages=torch.randn(size, generator=generator).double().round(decimals=1),
    )
    logps = batch.old_logps + 0.4 * torch.randn(size, width, generator=generator)

    def update(order, by_rank):
        rows = batch.take(order)
        leaf = logps[order].clone().requires_grad_()
        mask = rows.mask
        keep = SELECTIONS[method.selection](
            rows.old_logps, rows.old_entropies, rows.advantages, mask, **method.selection_args
        )
        weights, total = token_weights(keep, aggregation, group_size=4), 0.0
        for part in (part for own in by_rank for part in own if len(part)):
            longest = max(int(mask[part].sum(dim=1).max()), 1)
            loss, _ = micro_batch_loss(leaf[part, :longest], rows.take(part), weights[part], method)
            loss.backward()
            total += loss.item()
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        return total, gradient[torch.argsort(order)]

    whole = update(torch.arange(size), [[torch.arange(size)]])
    # The random ablation draws by position: another order is another draw.
    shuffled = shuffled and not method.spec.draws
    order = torch.arange(size)
    if shuffled:  # Whole groups, which stay together.
        order = order.view(-1, 4)[torch.randperm(size // 4, generator=generator)].flatten()
    ones = torch.ones(size, dtype=torch.long)
    by_rank = micro_batches_by_rank(ones, lengths[order], torch.arange(size), budget, num_ranks)
    found = update(order, by_rank)
    # Double precision, except that weights are rounded to single, the same ones on both sides.
    assert found[0] == pytest.approx(whole[0], rel=1e-9, abs=1e-12)
    torch.testing.assert_close(found[1], whole[1], rtol=1e-9, atol=1e-12)
