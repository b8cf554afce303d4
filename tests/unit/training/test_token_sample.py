"""The sample of tokens: kinds by loops, sizes, weights, and sums that it estimates without bias."""

from dataclasses import replace
from random import Random

import oracle
import pytest
import torch

from stapo.methods import METHODS, STAPO, Method, s2t_arguments
from stapo.objective import at_resolution
from stapo.records.tokens import KINDS, MAX_ROWS, rows_per_step, sample_sizes
from stapo.training.token_sample import sample_tokens, token_kinds

B, T = 6, 40
ADVANTAGES = [1.2, -0.4, 0.0, 0.8, 2.0, -1.0]
OWN = {"tau_p": 0.02, "quantile": 0.6, "scope": "all"}


def statistics(seed: int = 0):
    """Log-probs, entropies and mask; many probabilities are near 0.002 and 0.02."""
    generator = torch.Generator().manual_seed(seed)
    logps = -8 * torch.rand(B, T, generator=generator)
    entropies = 3 * torch.rand(B, T, generator=generator)
    lengths = torch.tensor([40, 12, 30, 0, 25, 40])
    return logps, entropies, torch.arange(T) < lengths.unsqueeze(1)


def kinds_of(method: Method, seed: int = 0):
    logps, entropies, mask = statistics(seed)
    return token_kinds(method, logps, entropies, torch.tensor(ADVANTAGES), mask)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("changes", [{}, OWN], ids=["paper", "own"])
def test_kinds_are_what_s2t_does(name, changes) -> None:
    method = METHODS[name]
    known = {k: v for k, v in changes.items() if k in method.spec.arguments}
    method = replace(method, selection_args={**method.selection_args, **known})
    if method.selection == "silence_spurious":
        args = {**STAPO.arguments, **method.selection_args}
    else:
        args = {**STAPO.arguments, "tau_p": method.selection_args.get("tau_p", 0.002)}
    assert s2t_arguments(method) == args
    logps, entropies, mask = statistics()
    tables = logps.tolist(), at_resolution(entropies).tolist(), ADVANTAGES, mask.tolist()
    kept = oracle.silence_spurious(*tables, args["tau_p"], args["quantile"], args["scope"])
    rare = set(oracle.candidates(tables[0], ADVANTAGES, tables[3], args["tau_p"]))
    found, threshold = kinds_of(method)
    assert threshold is not None
    for b in range(B):
        for t in range(T):
            kind = None
            if mask[b, t]:
                kind = "other" if (b, t) not in rare else "retained" if kept[b][t] else "silenced"
            assert [name for name in KINDS if found[name][b, t]] == [kind] * (kind is not None)
    assert all(found[kind].any() for kind in KINDS)


def test_without_a_candidate_there_is_no_threshold() -> None:
    logps, entropies, mask = statistics()
    found, threshold = token_kinds(STAPO, logps, entropies, -torch.ones(B), mask)
    assert threshold is None
    assert torch.equal(found["other"], mask)
    sample = sample_tokens(found, threshold, 8, 0, 1)
    assert sample.kinds == ["other"] * 8
    assert sample.weights == [mask.sum().item() / 8] * 8


@pytest.mark.parametrize("size", [0, 3, 8, 17, 60, 10_000])
def test_a_sample_has_the_sizes_and_weights_of_its_kinds(size) -> None:
    found, threshold = kinds_of(replace(STAPO, selection_args=OWN))
    counts = {kind: int(found[kind].sum()) for kind in KINDS}
    sample = sample_tokens(found, threshold, size, seed=0, step=1)
    sizes = sample_sizes(counts, size)
    assert len(sample.kinds) == sum(sizes.values()) == min(size, sum(counts.values()))
    assert max(sizes["silenced"], sizes["retained"]) <= size // 4
    places = list(zip(sample.rows.tolist(), sample.positions.tolist(), strict=True))
    assert len(set(places)) == len(places)
    for (row, position), kind, weight in zip(places, sample.kinds, sample.weights, strict=True):
        assert found[kind][row, position]
        assert weight == counts[kind] / sizes[kind]


def test_seed_and_step_decide() -> None:
    found, threshold = kinds_of(STAPO)
    drawn = {
        (seed, step): sample_tokens(found, threshold, 20, seed, step).positions.tolist()
        for seed in (0, 1)
        for step in (1, 2)
    }
    assert len({tuple(one) for one in drawn.values()}) == 4
    assert drawn[0, 1] == sample_tokens(found, threshold, 20, 0, 1).positions.tolist()


def test_weighted_sums_are_unbiased() -> None:
    """The mean over many steps of an estimated sum is the sum, within four standard errors."""
    found, threshold = kinds_of(replace(STAPO, selection_args=OWN))
    values = statistics(3)[0]
    truth = {kind: values[found[kind]].sum().item() for kind in KINDS}
    estimates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for step in range(400):
        sample = sample_tokens(found, threshold, 24, 0, step)
        terms = values[sample.rows, sample.positions].double() * torch.tensor(sample.weights)
        for kind in KINDS:
            own = torch.tensor([one == kind for one in sample.kinds])
            estimates[kind].append(terms[own].sum().item())
    for kind in KINDS:
        each = torch.tensor(estimates[kind])
        error = each.std() / len(each) ** 0.5
        assert error > 0
        assert abs(each.mean() - truth[kind]) < 4 * error, kind


def test_the_rows_of_a_step_follow_from_the_size_limit() -> None:
    assert rows_per_step(50, 3000) == 32
    assert rows_per_step(4, 96) == 81
    assert rows_per_step(0, 96) == 0
    assert rows_per_step(1000, 1) == MAX_ROWS
    chance = Random(0)
    for _ in range(200):
        rows = chance.randrange(100)
        sizes = sample_sizes({kind: chance.randrange(60) for kind in KINDS}, rows)
        assert sum(sizes.values()) <= rows
