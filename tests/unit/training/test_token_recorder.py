"""The record of sampled tokens: every column against plain logits, loops and autograd."""

from dataclasses import replace
from math import exp, log
from typing import Any

import oracle
import pytest
import torch
from one_update import (
    ADVANTAGES,
    LENGTHS,
    MEAN_REWARD,
    RARE,
    VOCABULARY,
    WIDTH,
    Update,
    build,
    clipped,
    kept,
    statistics_of,
)

from stapo.methods import METHODS, STAPO
from stapo.records.tokens import KINDS, TOP
from stapo.training import token_recorder

pytestmark = pytest.mark.rounding

EVERYTHING = 1000
"""MB, enough for every token of the mini-batch."""
CURRENT = ("ratio", "current_probability", "current_entropy", "collision", "top_tokens")
OF_GRADIENT = ("gradient_norm_sq", "lower_bound", "upper_bound")
METHODS_OF_ALL_KINDS = {
    **{
        name: clipped(name, selection_args={**METHODS[name].selection_args, **RARE})
        for name in ("stapo", "stapo-v2", "high-entropy", "random")
    },
    "full-mask": clipped("full-mask", selection_args={"tau_p": 0.01}),
    "20-entropy": clipped("20-entropy"),
    "justrl": clipped("justrl"),
    "dual clip": clipped("justrl", dual_clip=1.05),
    "grpo": clipped("grpo", kl_coefficient=0.3),
}


@pytest.fixture(scope="module", params=[False, True], ids=["padded", "packed"])
def base(tmp_path_factory, request) -> Any:
    return build(tmp_path_factory.mktemp("trainer"), request.param)


def recorded(base: Any, method: Any, step: int = 0, statistics: str = "behaviour", **args: Any):
    """Return the record of an update, and the update."""
    args = {"token_records_mb": EVERYTHING, **args}
    update = Update(base, method, step, statistics, **args)
    assert update.tokens is not None
    return update.tokens, update


def logits_of(plain: Any, batch: Any) -> torch.Tensor:
    """Return plain logits (B, T, V) in double precision."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    with torch.no_grad():
        logits = plain(input_ids=ids, attention_mask=mask, use_cache=False).logits
    return logits[:, -WIDTH - 1 : -1].double()


def by_autograd(
    logits: torch.Tensor, token: int, old: float, advantage: float, method: Any
) -> float:
    """Return the squared norm of the gradient of one token's surrogate at its logits."""
    logits = logits.clone().requires_grad_()
    ratio = (logits.log_softmax(0)[token] - old).exp()
    value = torch.min(
        ratio * advantage, ratio.clamp(1 - method.clip_low, 1 + method.clip_high) * advantage
    )
    if method.dual_clip is not None and advantage < 0:
        value = torch.max(value, torch.tensor(method.dual_clip * advantage).double())
    value.backward()
    return logits.grad.square().sum().item()


@pytest.mark.parametrize("name", METHODS_OF_ALL_KINDS)
def test_every_column_is_that_of_plain_logits(base, name: str) -> None:
    _, batch, plain = base
    method = METHODS_OF_ALL_KINDS[name]
    found, update = recorded(base, method)
    logits = logits_of(plain, batch)
    old, entropies = batch["old_per_token_logps"], batch["old_entropies"]
    computed = {row for part in update.for_gradient for row in part}
    assert sum(LENGTHS) == len(found["row"])
    clipped_tokens = 0
    for i, (b, t) in enumerate(zip(found["row"], found["position"], strict=True)):
        row = {k: v[i] for k, v in found.items() if isinstance(v, list)}
        token = batch["completion_ids"][b, t].item()
        assert (row["token_id"], row["length"]) == (token, LENGTHS[b])
        assert row["advantage"] == pytest.approx(ADVANTAGES[b])
        assert row["reward"] == pytest.approx(ADVANTAGES[b] + MEAN_REWARD)
        assert row["probability"] == pytest.approx(exp(old[b, t]), rel=1e-6)
        assert row["entropy"] == entropies[b, t].item()
        if b not in computed:
            assert all(row[one] is None for one in (*CURRENT, "top_probabilities"))
            assert all(row[one] == 0 for one in OF_GRADIENT)
            continue
        log_probs = logits[b, t].log_softmax(0)
        p = log_probs.exp()
        assert row["current_probability"] == pytest.approx(p[token].item(), rel=1e-4)
        assert row["ratio"] == pytest.approx((log_probs[token] - old[b, t]).exp().item(), rel=1e-4)
        entropy = -sum(q * log(q) for q in p.tolist())
        assert row["current_entropy"] == pytest.approx(entropy, abs=1e-4)
        assert row["collision"] == pytest.approx(sum(q * q for q in p.tolist()), rel=1e-4)
        ranked = sorted(range(VOCABULARY), key=lambda v, p=p: -p[v].item())[:TOP]
        assert row["top_tokens"] == ranked
        assert row["top_probabilities"] == pytest.approx([p[v].item() for v in ranked], rel=1e-4)
        exact = by_autograd(logits[b, t], token, old[b, t].item(), ADVANTAGES[b], method)
        assert row["gradient_norm_sq"] == pytest.approx(exact, rel=1e-3, abs=1e-9)
        clipped_tokens += exact == 0 and ADVANTAGES[b] != 0
        low, high = row["lower_bound"], row["upper_bound"]
        assert low - 1e-6 <= row["gradient_norm_sq"] <= high + 1e-6
    assert clipped_tokens > 10
    assert any(b not in computed for b in found["row"]) == (method.kl_coefficient == 0)


@pytest.mark.parametrize("name", METHODS_OF_ALL_KINDS)
@pytest.mark.parametrize(("step", "statistics"), [(0, "behaviour"), (1, "current")])
def test_kinds_are_of_the_policy_that_the_selection_reads(
    base, name: str, step: int, statistics: str
) -> None:
    _, batch, plain = base
    method = METHODS_OF_ALL_KINDS[name]
    found, update = recorded(base, method, step, statistics)
    behaviour = batch["old_per_token_logps"], batch["old_entropies"]
    current = statistics_of(plain, batch)
    positive = torch.tensor(ADVANTAGES).unsqueeze(1) > 0
    read = {"none": torch.zeros_like(positive), "positive": positive, "all": positive | True}
    reads = read[method.reads] & (statistics == "current")
    seen = [torch.where(reads, new, old) for new, old in zip(current, behaviour, strict=True)]
    tau_p = method.selection_args.get("tau_p", 0.002)
    shadow = replace(STAPO, selection_args={**STAPO.selection_args, "tau_p": tau_p})
    if method.selection == "silence_spurious":
        shadow = method
    silenced = kept(shadow, seen, batch)
    mask = batch["completion_mask"].bool().tolist()
    rare = set(oracle.candidates(seen[0].tolist(), ADVANTAGES, mask, tau_p))
    counts = dict.fromkeys(KINDS, 0)
    for b, t, kind, weight in zip(
        found["row"], found["position"], found["kind"], found["weight"], strict=True
    ):
        expected = "other" if (b, t) not in rare else "retained" if silenced[b][t] else "silenced"
        assert kind == expected, (b, t)
        assert weight == 1
        counts[kind] += 1
    if "tau_p" in method.selection_args:
        assert min(counts.values()) > 0
    assert counts["silenced"] + counts["retained"] == update.record["num_candidates"]
    for i, (b, t) in enumerate(zip(found["row"], found["position"], strict=True)):
        assert found["entropy"][i] == pytest.approx(seen[1][b, t].item(), abs=1e-4)
        assert found["probability"][i] == pytest.approx(exp(seen[0][b, t]), rel=1e-3)
    if method.selection != "silence_random":
        keep = kept(method, seen, batch)
        assert found["kept"] == [
            keep[b][t] for b, t in zip(found["row"], found["position"], strict=True)
        ]


def test_recording_changes_no_loss_no_gradient_and_no_pass(base) -> None:
    method = METHODS_OF_ALL_KINDS["stapo"]
    without = Update(base, method, 1, "current")
    _, update = recorded(base, method, 1, "current")
    assert without.tokens is None
    assert (update.loss, update.record) == (without.loss, without.record)
    assert update.for_gradient == without.for_gradient
    assert update.for_statistics == without.for_statistics
    for name, gradient in without.gradients.items():
        assert torch.equal(update.gradients[name], gradient), name


@pytest.mark.parametrize("budget", [1, 10_000], ids=["one sequence", "one micro-batch"])
def test_the_sample_is_the_same_for_any_micro_batches(base, budget: int) -> None:
    method = METHODS_OF_ALL_KINDS["stapo"]
    base[0].state.max_steps = 100
    try:
        # 20 rows: 1 MB for 100 steps.
        expected, _ = recorded(base, method, token_records_mb=1)
        found, _ = recorded(base, method, token_records_mb=1, micro_batch_tokens=budget)
    finally:
        base[0].state.max_steps = 1
    assert len(found["row"]) == 19
    exact = (
        "row",
        "position",
        "kind",
        "weight",
        "kept",
        "token_id",
        "before",
        "after",
        "top_tokens",
    )
    for name in exact:
        assert found[name] == expected[name], name
    for name in ("current_probability", "collision", "gradient_norm_sq"):
        for one, other in zip(found[name], expected[name], strict=True):
            assert one == (None if other is None else pytest.approx(other, rel=1e-4, abs=1e-9))


def test_contexts_are_the_tokens_around(base) -> None:
    _, batch, _ = base
    found, _ = recorded(base, METHODS_OF_ALL_KINDS["justrl"])
    for i, (b, t) in enumerate(zip(found["row"], found["position"], strict=True)):
        prompt = batch["prompt_ids"][b][batch["prompt_mask"][b].bool()].tolist()
        response = batch["completion_ids"][b, : LENGTHS[b]].tolist()
        assert found["before"][i] == prompt + response[:t]
        assert found["after"][i] == response[t + 1 :]


def test_importance_weights_count(base) -> None:
    _, batch, _ = base
    method = METHODS_OF_ALL_KINDS["justrl"]
    batch["sampling_per_token_logps"] = batch["old_per_token_logps"] - 0.5
    try:
        found, _ = recorded(base, method, rollout_correction=2.0)
    finally:
        del batch["sampling_per_token_logps"]
    expected, _ = recorded(base, method)
    gradients = zip(found["gradient_norm_sq"], expected["gradient_norm_sq"], strict=True)
    for one, other in gradients:
        assert one == pytest.approx(exp(1.0) * other, rel=1e-5)


def test_logits_are_divided_by_the_temperature(tmp_path) -> None:
    trainer, batch, plain = build(tmp_path, temperature=0.5)
    found, _ = recorded((trainer, batch, plain), METHODS_OF_ALL_KINDS["justrl"])
    p = (2 * logits_of(plain, batch)).softmax(dim=2)
    of_passes = [i for i, value in enumerate(found["ratio"]) if value is not None]
    assert len(of_passes) > 50
    for i in of_passes:
        own = p[found["row"][i], found["position"][i]]
        assert found["collision"][i] == pytest.approx(own.square().sum().item(), rel=1e-4)
        assert found["current_probability"][i] == pytest.approx(
            own[found["token_id"][i]].item(), rel=1e-4
        )


def test_logits_that_are_not_those_of_the_pass_are_not_recorded(base, monkeypatch) -> None:
    """As for a model whose head scales its logits in a way that is not known here."""
    original = token_recorder.TokenRecorder._logits

    def scaled(self: Any, *args: Any) -> Any:
        return 1.1 * original(self, *args)

    monkeypatch.setattr(token_recorder.TokenRecorder, "_logits", scaled)
    found, _ = recorded(base, METHODS_OF_ALL_KINDS["justrl"])
    of_passes = [i for i, value in enumerate(found["ratio"]) if value is not None]
    unknown = [i for i in of_passes if found["collision"][i] is None]
    assert len(unknown) > 0.9 * len(of_passes)
    for i in unknown:
        assert found["top_tokens"][i] is None
        assert found["top_probabilities"][i] is None
        assert found["gradient_norm_sq"][i] in (None, 0)
        assert found["current_probability"][i] is not None
    assert any(found["gradient_norm_sq"][i] is None for i in unknown)
