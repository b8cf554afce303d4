"""The record of sampled tokens: every column against plain logits, loops and autograd."""

from math import exp, log
from typing import Any

import oracle
import pytest
import torch
from one_update import (
    ADVANTAGES,
    GROUP,
    LENGTHS,
    MEAN_REWARD,
    RARE,
    VOCABULARY,
    WHOLE,
    Update,
    clipped,
    kept,
    logits_of,
    statistics_of,
)

from stapo.core.files import append_jsonl
from stapo.core.methods import METHODS, s2t_arguments
from stapo.suite.models.tiny import build_tokenizer
from stapo.suite.models.worlds import WORLDS
from stapo.suite.records.tokens import KINDS, TOP, read_token_file, sample_sizes
from stapo.suite.training import token_recorder
from stapo.suite.training.token_recorder import sample_tokens, token_kinds

pytestmark = pytest.mark.rounding

CURRENT = ("ratio", "current_probability", "current_entropy", "collision", "top_tokens")
TEXTS = ("before", "after", "top_tokens")
OF_GRADIENT = ("gradient_norm_sq", "lower_bound", "upper_bound")
RECORDED = {
    **WHOLE,
    "random": clipped("random", args={**METHODS["stapo"].args, **RARE}),
}


def recorded(base: Any, method: Any, step: int = 0, statistics: str = "behaviour", **args: Any):
    """Return the record of an update, and the update."""
    args = {"tokens": 1024, **args}  # More than the mini-batch has.
    update = Update(base, method, step, statistics, **args)
    assert update.tokens is not None
    return update.tokens, update


@pytest.mark.parametrize("name", RECORDED)
def test_every_column_is_that_of_plain_logits(base, name: str) -> None:
    _, batch, plain = base
    method = RECORDED[name]
    found, update = recorded(base, method)
    with torch.no_grad():
        logits = logits_of(plain, batch).double()
    old, entropies = batch["old_per_token_logps"], batch["old_entropies"]
    computed = {row for part in update.for_gradient for row in part}
    assert sum(LENGTHS) == len(found["row"])
    clipped_tokens = 0
    for i, (b, t) in enumerate(zip(found["row"], found["position"], strict=True)):
        row = {k: v[i] for k, v in found.items() if isinstance(v, list)}
        token = batch["completion_ids"][b, t].item()
        assert (row["token_id"], row["length"]) == (token, LENGTHS[b])
        prompt = batch["prompt_ids"][b][batch["prompt_mask"][b].bool()].tolist()
        response = batch["completion_ids"][b, : LENGTHS[b]].tolist()
        assert (row["before"], row["after"]) == (prompt + response[:t], response[t + 1 :])
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
        clip = method.clip_low, method.clip_high, method.dual_clip
        at = log_probs[token].item(), old[b, t].item(), ADVANTAGES[b]
        # That this is the norm of the gradient at the logits, tests/numerics shows.
        exact = oracle.surrogate_weight(*at, *clip) ** 2 * (1 - 2 * p[token] + p.square().sum())
        exact = exact.item()
        assert row["gradient_norm_sq"] == pytest.approx(exact, rel=1e-3, abs=1e-9)
        clipped_tokens += exact == 0 and ADVANTAGES[b] != 0
        low, high = row["lower_bound"], row["upper_bound"]
        assert low - 1e-6 <= row["gradient_norm_sq"] <= high + 1e-6
    assert clipped_tokens > 10
    assert any(b not in computed for b in found["row"]) == (method.kl_coefficient == 0)


def test_the_gradient_of_a_likely_token_is_not_rounded_to_nothing(base, monkeypatch) -> None:
    trainer, batch, plain = base
    head = trainer.accelerator.unwrap_model(trainer.model).get_output_embeddings()
    monkeypatch.setattr(head.weight, "data", 20 * head.weight.data)
    with torch.no_grad():
        first = (20 * logits_of(plain, batch)[:, 0]).double().log_softmax(1)
    likely, token = first.max(1)
    for name, values in (("completion_ids", token), ("old_per_token_logps", likely.float())):
        batch = {**batch, name: batch[name].clone()}
        batch[name][:, 0] = values
    found, _ = recorded((trainer, batch, plain), METHODS["justrl"])
    others, measured = first.exp().scatter(1, token[:, None], 0), 0
    for row, position, norm in zip(
        *(found[k] for k in ("row", "position", "gradient_norm_sq")), strict=True
    ):
        if position == 0 and ADVANTAGES[row] and -1e-4 < likely[row] < -1e-7:
            wanted = ADVANTAGES[row] ** 2 * (likely[row].expm1() ** 2 + others[row].square().sum())
            # Logits of some units in single precision, times 20: differences are known to 1e-4.
            assert norm == pytest.approx(wanted.item(), rel=1e-2, abs=0)
            measured += 1
    assert measured


@pytest.mark.parametrize("name", RECORDED)
def test_kinds_are_of_the_policy_that_the_selection_reads(base, name: str) -> None:
    _, batch, plain = base
    method = RECORDED[name]
    found, update = recorded(base, method, 1, "current")
    behaviour = batch["old_per_token_logps"], batch["old_entropies"]
    # Candidates are counted by the current policy under every method.
    reads = (torch.tensor(ADVANTAGES).unsqueeze(1) > 0) | (method.reads == "all")
    both = zip(statistics_of(plain, batch), behaviour, strict=True)
    logps, entropies = (torch.where(reads, new, old) for new, old in both)
    mask, args = batch["completion_mask"].bool().tolist(), s2t_arguments(method)
    rare = oracle.candidates(logps.tolist(), ADVANTAGES, mask, args["tau_p"])
    tables = logps.tolist(), entropies.tolist(), ADVANTAGES, mask
    silenced = oracle.silence(*tables, **args)
    keep = None if method.part("selection").given else kept(method, (logps, entropies), batch)
    for i, (b, t) in enumerate(zip(found["row"], found["position"], strict=True)):
        kind = "other" if (b, t) not in rare else "retained" if silenced[b][t] else "silenced"
        assert (found["kind"][i], found["weight"][i]) == (kind, 1), (b, t)
        assert found["entropy"][i] == pytest.approx(entropies[b, t].item(), abs=1e-4)
        assert found["probability"][i] == pytest.approx(exp(logps[b, t]), rel=1e-3)
        assert keep is None or found["kept"][i] == keep[b][t]
    assert len(rare) == update.record["num_candidates"]
    if "tau_p" in method.arguments_of("selection"):
        assert {*found["kind"]} == {*KINDS}


def test_recording_changes_no_loss_no_gradient_and_no_pass(base) -> None:
    method = RECORDED["candidates"]
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
    method = RECORDED["candidates"]
    expected, _ = recorded(base, method, tokens=19)
    found, _ = recorded(base, method, tokens=19, micro_batch_tokens=budget)
    assert len(found["row"]) == 19
    for name in ("row", "position", "kind", "weight", "kept", "token_id", "before", "top_tokens"):
        assert found[name] == expected[name], name
    for one, other in zip(found["collision"], expected["collision"], strict=True):
        assert one == (None if other is None else pytest.approx(other, rel=1e-4))


def test_the_file_has_the_texts_of_tokens_and_the_marks_of_whole_responses(
    base, tmp_path, monkeypatch
) -> None:
    def marks(prompt: list[int], response: list[int]) -> list[str]:
        return [f"{len(prompt)} {place} {len(response)}" for place in range(len(response))]

    line, _ = recorded(base, METHODS["justrl"], marks=marks)
    append_jsonl(tmp_path / "log", line)
    # What the text of a token is, test_token_text shows.
    monkeypatch.setattr(token_recorder, "text_of", lambda _: lambda ids: "".join(map(chr, ids)))
    token_recorder.write_tokens(tmp_path / "log", tmp_path / "file", None, range(3), 3, GROUP)
    prompts = base[1]["prompt_mask"].sum(dim=1).tolist()
    places = [*zip(line["row"], line["position"], strict=True)]
    for row in read_token_file(tmp_path / "file").to_pylist():
        at = row["response"] + GROUP * row["prompt"]
        assert row["mark"] == f"{prompts[at]} {row['position']} {LENGTHS[at]}"
        own = {k: v[places.index((at, row["position"]))] for k, v in line.items() if k in TEXTS}
        assert row["token"] == chr(row["token_id"])
        assert [*map(ord, row["before"])] == own["before"]
        assert [*map(ord, row["after"])] == own["after"]
        assert [*map(ord, row["top_tokens"] or ())] == (own["top_tokens"] or [])


def test_tokens_of_a_world_that_knows_them_are_marked() -> None:
    made = {
        name: token_recorder.recorder(5, 8, build_tokenizer(WORLDS[name]), {}).keywords["marks"]
        for name in ("tiny-arithmetic", "marked-chains")
    }
    assert [name for name, marks in made.items() if marks] == ["marked-chains"]


# The sample


@pytest.mark.parametrize("size", [0, 3, 8, 17, 60, 10_000])
def test_a_sample_has_the_sizes_and_weights_of_its_kinds(size: int) -> None:
    """Of 240 tokens, many of which have a probability near tau_p."""
    logps, entropies = torch.rand(2, 6, 40, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(40) < torch.tensor([40, 12, 30, 0, 25, 40]).unsqueeze(1)
    advantages = torch.tensor([1.2, -0.4, 0.0, 0.8, 2.0, -1.0])
    s2t = {"tau_p": 0.02, "quantile": 0.6, "scope": "all"}
    found, _ = token_kinds(s2t, -8 * logps, 3 * entropies, advantages, mask)
    counts = {kind: int(found[kind].sum()) for kind in KINDS}
    assert min(counts.values()) > 0
    sample = sample_tokens(found, size, seed=0, step=1)
    sizes = sample_sizes(counts, size)
    assert len(sample[2]) == sum(sizes.values()) == min(size, sum(counts.values()))
    assert max(sizes["silenced"], sizes["retained"]) <= size // 4
    assert len({*zip(sample[0].tolist(), sample[1].tolist(), strict=True)}) == len(sample[2])
    for row, position, kind, weight in zip(*sample, strict=True):
        assert found[kind][row, position]
        assert weight == counts[kind] / sizes[kind]
    others = [sample_tokens(found, 20, *key)[1].tolist() for key in ((0, 1), (0, 2), (1, 1))]
    assert len({*map(tuple, others)}) == 3
    assert sample_tokens(found, 20, 0, 1)[1].tolist() == others[0]
