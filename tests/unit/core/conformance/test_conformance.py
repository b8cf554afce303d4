"""The kit recognises what a trainer does: plain ones, right and deliberately wrong; torch alone is needed."""

from functools import partial

import oracle
import pytest
import torch

from stapo.core.conformance import (
    MiniBatch,
    Partition,
    Update,
    conventions,
    fixtures,
    report,
    run_checks,
)
from stapo.core.conformance.kit import DIVISOR, POLICY, SCOPE, find_trainer
from stapo.core.methods import CONFORMANCE_METHODS, Method
from stapo.core.objective import clipped_surrogate


def trainer(
    batch: MiniBatch, partition: Partition, method: Method, *, scope: str = "mini-batch",
    policies: tuple[str, str] = ("old_", "old_"), divisor: str = "kept", tau_inclusive: bool = False,
    inclusive: bool = False, empty: str = "kept", dtype: torch.dtype = torch.double,
) -> Update:  # fmt: skip
    """A plain trainer of one's own, right by default; every option is a known mistake."""
    micro = [rows for rank in partition for rows in rank]
    steps = range(max(len(rank) for rank in partition))
    parts = {
        "mini-batch": [[row for rows in micro for row in rows]],
        "rank": [[row for rows in rank for row in rows] for rank in partition],
        "micro-batch": micro,
        "together": [[row for rank in partition for row in rank[i]] for i in steps],
    }
    keep = torch.zeros_like(batch.mask)
    for part in parts[scope]:
        some = batch.take(torch.tensor(part))
        probabilities = getattr(some, f"{policies[0]}logps").exp()
        entropies = getattr(some, f"{policies[1]}entropies")
        tau_p, q = method.args["tau_p"], method.args["quantile"]
        rare = probabilities <= tau_p if tau_inclusive else probabilities < tau_p
        candidates = some.mask & (some.advantages > 0).unsqueeze(1) & rare
        keep[part] = some.mask
        if candidates.any() or empty == "raises":
            pool = candidates if method.args["scope"] == "candidates" else some.mask
            threshold = torch.quantile(entropies[pool], q)
            low = entropies <= threshold if inclusive else entropies < threshold
            keep[part] = some.mask & ~(candidates & low)
        elif empty == "silenced":
            keep[part] = False
    leaf = batch.logps.clone().to(dtype).requires_grad_()
    old_logps, advantages = batch.old_logps.to(dtype), batch.advantages.to(dtype)
    values = clipped_surrogate(leaf, old_logps, advantages, method.clip_low, method.clip_high)
    values = torch.where(keep, -values, 0.0)
    sums = [values[rows].sum() for rows in micro]
    means = [part / keep[rows].sum().clamp(min=1) for part, rows in zip(sums, micro, strict=True)]
    losses = {
        "kept": values.sum() / keep.sum().clamp(min=1),
        "all": values.sum() / batch.mask.sum().clamp(min=1),
        "width": values.sum() / batch.mask.numel(),
        "mean": sum(
            m / len(r) for m, r in zip(means, [r for r in partition for _ in r], strict=True)
        )
        / len(partition),
    }
    losses[divisor].backward()
    return Update(losses[divisor].item(), leaf.grad)


@pytest.mark.parametrize("method", ["stapo", "stapo-v2"])
@pytest.mark.parametrize(
    ("mistake", "question", "answer"),
    [
        ({}, SCOPE, "the mini-batch"),
        ({"dtype": torch.float}, DIVISOR, "kept tokens of the mini-batch"),
        ({"scope": "rank"}, SCOPE, "a rank"),
        ({"scope": "micro-batch"}, SCOPE, "a micro-batch"),
        ({"scope": "together"}, SCOPE, "a micro-batch of all ranks together"),
        ({"policies": ("", "")}, POLICY, "the current policy"),
        ({"divisor": "all"}, DIVISOR, "all tokens of the mini-batch"),
        ({"divisor": "mean"}, DIVISOR, "kept tokens of a micro-batch, then the mean over these"),
    ],
)  # fmt: skip
def test_each_mistake_is_recognised_as_what_it_is(mistake, question, answer, method):
    found = conventions(partial(trainer, **mistake), method)
    right = conventions(trainer, method)
    assert found == {**right, question: answer}
    wrong = bool(mistake) and "dtype" not in mistake
    assert all(check.holds for check in run_checks(partial(trainer, **mistake), method)) != wrong


@pytest.mark.parametrize(
    ("mistake", "failed"),
    [
        ({"inclusive": True}, "an entropy equal to the threshold"),
        ({"tau_inclusive": True}, "a probability equal to tau_p"),
        ({"empty": "silenced"}, "0 candidates"),
        ({"empty": "raises"}, "0 candidates"),
        ({"policies": ("", "old_")}, "probabilities that cross tau_p"),
        ({"divisor": "width"}, "ordinary"),
    ],
)
def test_other_mistakes_fail_a_check_of_their_name(mistake, failed):
    checks = run_checks(partial(trainer, **mistake), "stapo")
    assert failed in [check.name for check in checks if not check.holds]


def test_padding_that_is_multiplied_by_zero_is_found():
    """0 x infinity is not 0: a mask that multiplies lets large numbers outside a response through."""

    def multiplied(batch: MiniBatch, _: Partition, __: Method) -> Update:
        leaf = batch.logps.float().requires_grad_()
        ratio = torch.exp(leaf - batch.old_logps.float()) ** 2
        loss = (ratio * batch.mask).sum()
        loss.backward()
        return Update(loss.item(), leaf.grad)

    verdicts = {check.name: check.holds for check in run_checks(multiplied, "justrl")}
    assert verdicts["the same with garbage as padding"]
    assert not verdicts["the same with large numbers as padding"]


@pytest.mark.parametrize("method", CONFORMANCE_METHODS)
def test_the_fixtures_follow_from_independent_loops(method):
    for fixture in fixtures(method):
        batch, name = fixture.batch, fixture.method.selection
        logps, old, advantages, ref = (
            getattr(batch, key).tolist()
            for key in ("logps", "old_logps", "advantages", "ref_logps")
        )
        read = old, batch.old_entropies.tolist(), advantages, batch.mask.tolist()
        keep = oracle.SELECTIONS[name](*read, **fixture.method.arguments_of("selection"))
        assert fixture.keep.tolist() == keep, fixture.name
        # A trainer that checks its log-probs must be able to select by any of these policies.
        assert max(batch.logps.max(), batch.old_logps.max(), batch.ref_logps.max()) <= 0
        with_kl = {"ref": ref, "beta": fixture.method.kl_coefficient} if method == "grpo" else {}
        size = 1 if method == "grpo" else len(keep)
        clip = fixture.method.clip_low, fixture.method.clip_high
        found = oracle.loss_and_gradient(logps, old, advantages, keep, clip, size, **with_kl)
        # Both in double precision: they differ by the order of the sums.
        assert fixture.update.loss == pytest.approx(found[0], abs=1e-14)
        gradient = torch.tensor(found[1], dtype=torch.double)
        torch.testing.assert_close(fixture.update.gradient, gradient, rtol=1e-12, atol=1e-15)


def test_finding_and_reporting(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "def update(batch, partition, method): raise ValueError('[red]no')\nnumber = 3"
    )
    monkeypatch.chdir(tmp_path)
    found, method = find_trainer("mine:update")
    lines, holds = report(found, "mine:update", method)
    assert (lines[0], holds) == ("mine:update as stapo", False)
    assert lines[-1] == "conventions: ValueError: [red]no"
    lines, holds = report(lambda *_: None, "without a return", "stapo")
    said = any("expected Update(loss, gradient), found NoneType" in line for line in lines)
    assert (said, holds) == (True, False)
    lines, holds = report(trainer, "right", "stapo")
    assert (lines[-1], holds) == ("divisor: kept tokens of the mini-batch", True)
    for name in ("mine:other", "no_such_module:f", "mine:number"):
        with pytest.raises(ValueError, match="--trainer"):
            find_trainer(name)
    with pytest.raises(ValueError, match="--method: expected grpo"):
        report(found, "mine", "random")
