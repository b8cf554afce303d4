"""The division into micro-batches: each sequence once, in the budget, and the same work for all ranks."""

from itertools import pairwise

import torch
from hypothesis import Phase, given, settings, strategies as st

from stapo.core.minibatch import micro_batches, micro_batches_by_rank


@settings(max_examples=300, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    groups=st.lists(
        st.tuples(st.integers(1, 30), st.lists(st.integers(0, 60), min_size=4, max_size=4)),
        min_size=1,
        max_size=10,
    ),
    left_out=st.sets(st.integers(0, 39)),
    budget=st.integers(1, 400),
    num_ranks=st.integers(1, 5),
    layout=st.sampled_from(["padded", "packed", "shared"]),
)
def test_each_sequence_once_within_the_budget_and_as_many_passes_on_all_ranks(
    groups, left_out, budget, num_ranks, layout
):
    prompts = torch.tensor([prompt for prompt, _ in groups]).repeat_interleave(4)
    responses = torch.tensor([length for _, lengths in groups for length in lengths])
    rows = torch.tensor([row for row in range(4 * len(groups)) if row not in left_out], dtype=int)
    by_rank = micro_batches_by_rank((prompts, responses), rows, budget, num_ranks, layout, 4)
    assert len(by_rank) == num_ranks
    assert len({len(parts) for parts in by_rank}) == 1
    found = [row for parts in by_rank for part in parts for row in part.tolist()]
    assert sorted(found) == rows.tolist()

    def positions(part: torch.Tensor) -> int:
        if layout == "packed":
            return int((prompts + responses)[part].sum())
        if layout == "padded":
            return len(part) * int(prompts[part].max() + responses[part].max())
        of_groups = [part[part // 4 == group] for group in (part // 4).unique()]
        return sum(int(prompts[own[0]]) + len(own) * int(responses[own].max()) for own in of_groups)

    for parts in by_rank:
        full = [part for part in parts if len(part)]
        assert all(positions(part) <= budget or len(part) == 1 for part in full)
        for part, following in pairwise(full):  # Otherwise a sequence would have been added.
            assert positions(torch.cat([part, following[:1]])) > budget
        if layout != "shared":
            longest = [int((prompts + responses)[part].max()) for part in full]
            assert longest == sorted(longest, reverse=True)
    if layout != "shared":
        # Sequences are divided by length: no rank has more than one sequence more than another.
        counts = [sum(len(part) for part in parts) for parts in by_rank]
        assert max(counts) - min(counts) <= 1
        work = [sum(int((prompts + responses)[part].sum()) for part in parts) for parts in by_rank]
        assert max(work) - min(work) <= int((prompts + responses).max())


def test_sequences_of_equal_length_are_divided_in_the_order_of_the_rows():
    """Every rank computes the division by itself: no two may sort ties differently."""
    # Long enough for an unstable sort to shuffle.
    lengths = (torch.ones(4000, dtype=torch.long),) * 2
    rows = torch.arange(4000)
    assert torch.equal(torch.cat(micro_batches(lengths, rows, 100)), rows)
    for rank, parts in enumerate(micro_batches_by_rank(lengths, rows, 100, 2)):
        assert torch.equal(torch.cat(parts), rows[rank::2])
