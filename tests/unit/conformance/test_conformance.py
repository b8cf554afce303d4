"""The kit recognises what a trainer does: ours, TRL's, and deliberately wrong ones."""

import json
from functools import partial
from typing import Any

import oracle
import pytest
import torch

from stapo.conformance import Layout, MiniBatch, Update, conventions, fixtures, run_checks
from stapo.conformance.batches import FIXTURES, METHOD_NAMES, build
from stapo.conformance.report import find_trainer, print_report
from stapo.conformance.trainers import TRAINERS
from stapo.methods import Method
from stapo.objective import SELECTIONS, clipped_surrogate, spurious_candidates
from stapo.study import StudyError


def trainer(
    batch: MiniBatch,
    layout: Layout,
    method: Method,
    *,
    scope: str = "mini-batch",
    policy: str = "old_",
    divisor: str = "kept",
    inclusive: bool = False,
) -> Update:
    """A plain trainer of one's own, right by default; every option is a known mistake."""
    rows = [[row for micro in rank for row in micro] for rank in layout]
    parts = {
        "mini-batch": [[row for rank in rows for row in rank]],
        "rank": rows,
        "micro-batch": [micro for rank in layout for micro in rank],
    }
    keep = torch.zeros_like(batch.mask)
    for part in parts[scope]:
        some = batch.take(torch.tensor(part))
        entropies = getattr(some, f"{policy}entropies")
        logps = getattr(some, f"{policy}logps")
        args = (logps, entropies, some.advantages, some.mask)
        keep[part] = SELECTIONS[method.selection](*args, **method.selection_args)
        if inclusive:
            candidates = spurious_candidates(
                logps, some.advantages, some.mask, method.selection_args["tau_p"]
            )
            if candidates.any():
                threshold = torch.quantile(entropies[candidates], method.selection_args["quantile"])
                keep[part] = some.mask & ~(candidates & (entropies <= threshold))
    leaf = batch.logps.clone().requires_grad_()
    values = clipped_surrogate(
        leaf, batch.old_logps, batch.advantages, method.clip_low, method.clip_high
    )
    counted = keep if divisor == "kept" else batch.mask
    loss = -(values * keep).sum() / counted.sum().clamp(min=1)
    if divisor == "micro-batch":
        micro = parts["micro-batch"]
        means = [-(values * keep)[m].sum() / keep[m].sum().clamp(min=1) for m in micro]
        ranks = torch.tensor([1 / len(rank) for rank in layout for _ in rank]) / len(layout)
        loss = (torch.stack(means) * ranks).sum()
    loss.backward()
    return Update(loss.item(), leaf.grad)


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_our_trainer_conforms(method):
    assert [c for c in run_checks(TRAINERS["ours"][0], method) if not c.holds] == []
    found = conventions(TRAINERS["ours"][0], method)
    if method not in ("grpo", "justrl"):
        assert found["threshold over"] == "the mini-batch"
        assert found["probabilities and entropies of"] == "the behaviour policy"
    if method.startswith("stapo"):
        assert found["compares by"] == "p < tau_p, H < threshold"
        assert found["without a candidate"] == "nothing is silenced"
    mean = "kept tokens of each response, then the mean over responses"
    assert found["divisor"] == (mean if method == "grpo" else "kept tokens of the mini-batch")


def failed(name: str) -> list[str]:
    found, method = TRAINERS[name]
    return [check.name for check in run_checks(found, method) if not check.holds]


def test_what_trl_does():
    assert failed("trl-dapo") == []
    # The mean of micro-batches' means: another number where they are unequal, or a response is empty.
    assert failed("trl-grpo") == [
        "a response without tokens",
        "the same in unequal micro-batches",
        "the same on ranks of unequal parts",
    ]
    # All tokens in the divisor: wrong everywhere; and it depends on the cut, not on order and padding.
    assert "ordinary" in failed("trl-top-entropy")
    assert [name for name in failed("trl-top-entropy") if name.startswith("the same")] == [
        "the same in micro-batches of two",
        "the same in unequal micro-batches",
        "the same on ranks of unequal parts",
    ]
    assert conventions(*TRAINERS["trl-top-entropy"]) == {
        "threshold over": "a micro-batch of all ranks together",
        "probabilities and entropies of": "the current policy",
        "compares by": "not applicable",
        "without a candidate": "not applicable",
        "divisor": "all tokens of the mini-batch",
    }


@pytest.mark.parametrize(
    ("mistake", "question", "answer"),
    [
        ({}, "threshold over", "the mini-batch"),
        ({"scope": "rank"}, "threshold over", "a rank"),
        ({"scope": "micro-batch"}, "threshold over", "a micro-batch"),
        ({"policy": ""}, "probabilities and entropies of", "the current policy"),
        ({"inclusive": True}, "compares by", "p < tau_p, H <= threshold"),
        ({"divisor": "all"}, "divisor", "all tokens of the mini-batch"),
        ({"divisor": "micro-batch"}, "divisor", "kept tokens of a micro-batch, then the mean over these"),
    ],
)  # fmt: skip
def test_each_mistake_is_recognised_as_what_it_is(mistake, question, answer):
    found = conventions(partial(trainer, **mistake), "stapo")
    right = conventions(trainer, "stapo")
    assert found[question] == answer
    others = {"divisor"} if mistake else set()  # A wrong mask counts other tokens.
    assert {q: a for q, a in found.items() if q not in {question, *others}} == {
        q: a for q, a in right.items() if q not in {question, *others}
    }
    holds = all(check.holds for check in run_checks(partial(trainer, **mistake), "stapo"))
    assert holds == (mistake == {})


def test_a_selection_per_micro_batch_is_another_algorithm():
    """With n = 1 to 5 candidates and q = 0.75 the strict quantile silences 0, 50, 67, 75, 60 %."""
    shares = []
    for fixture in fixtures("stapo"):
        count = fixture.name.removesuffix(" candidates")
        if count in ("1", "2", "3", "4", "5"):
            silenced = int((fixture.batch.mask & ~fixture.keep).sum())
            shares.append(round(100 * silenced / int(count)))
    assert shares == [0, 50, 67, 75, 60]


def test_the_shipped_fixtures_are_what_their_loops_give():
    assert FIXTURES.read_text() == json.dumps(build()) + "\n"


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_the_fixtures_follow_from_the_other_independent_loops(method):
    for fixture in fixtures(method):
        batch, name = fixture.batch, fixture.method.selection
        mask = batch.mask.tolist()
        args: dict[str, Any] = dict(fixture.method.selection_args)
        keep = mask
        if name == "silence_spurious":
            keep = oracle.silence_spurious(
                batch.old_logps.tolist(), batch.old_entropies.tolist(), batch.advantages.tolist(),
                mask, args["tau_p"], args["quantile"], args["scope"],
            )  # fmt: skip
        elif name == "keep_high_entropy":
            keep = oracle.keep_high_entropy(batch.old_entropies.tolist(), mask, args["fraction"])
        assert fixture.keep.tolist() == keep, fixture.name


def test_a_trainer_that_raises_fails_with_its_error():
    def broken(*_: Any) -> Update:
        raise RuntimeError("quantile() input tensor must be non-empty")

    checks = run_checks(broken, "stapo")
    assert not any(check.holds for check in checks)
    assert "must be non-empty" in checks[0].detail


def test_finding_and_printing(capsys, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "def update(batch, layout, method): raise ValueError('[red]no')"
    )
    monkeypatch.chdir(tmp_path)
    found, method = find_trainer("mine:update")
    assert method == "stapo"
    assert not print_report(found, "mine:update", method)
    assert "ValueError: [red]no" in capsys.readouterr().out
    assert print_report(TRAINERS["trl-dapo"][0], "trl-dapo", "justrl")
    assert "divisor: kept tokens of the mini-batch" in capsys.readouterr().out
    for name in ("nothing", "mine:other", "no_such_module:f"):
        with pytest.raises(StudyError, match="--trainer"):
            find_trainer(name)
    with pytest.raises(StudyError, match="--method: expected grpo"):
        print_report(found, "mine", "random")
