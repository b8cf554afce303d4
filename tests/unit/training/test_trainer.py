"""The trainer: its update is the objective's, its resume is bit for bit, its errors are clear."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file
from training_jobs import job_in

from stapo.files import read_jsonl
from stapo.locks import ForeignDirectoryError
from stapo.methods import METHODS
from stapo.models.tiny import build_tiny
from stapo.objective import (
    SELECTIONS,
    clipped_surrogate,
    group_advantages,
    group_token_mean,
    kl_k3,
    sequence_mean,
    token_mean,
)
from stapo.records.tokens import read_token_file
from stapo.study.schema import TrainingSettings
from stapo.study.sources import TinyData, TinyModel
from stapo.training import rewards
from stapo.training import run as run_module
from stapo.training.prompts import write_prompts

TRAINING = TrainingSettings(
    steps=6,
    prompts_per_batch=8,
    group_size=4,
    prompts_per_mini_batch=4,
    micro_batch_tokens=512,
    learning_rate=1e-3,
    max_prompt_tokens=24,
    max_response_tokens=32,
)
UNTIMED = ("seconds",)

pytestmark = pytest.mark.rounding


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A base model of a few supervised steps, and prompts."""
    root = tmp_path_factory.mktemp("world")
    settings = TinyModel(
        builder="tiny-arithmetic", supervised_steps=40, supervised_batch=48, hidden_size=64
    )
    build_tiny(settings, root / "base")
    write_prompts(TinyData(builder="tiny-arithmetic", prompts=64), root / "prompts.jsonl")
    return root


def parity_reward(completions: Any, **_: Any) -> list[float]:
    """A reward that even a model of a few steps gets now and then: text of even length."""
    return [1.0 - 2 * (len(conversation[-1]["content"]) % 2) for conversation in completions]


def run(world: Path, out: Path, method: str = "stapo", **changes: Any) -> list[dict[str, Any]]:
    """Train once and return the metrics without times."""
    with patch.dict(rewards.BUILT_IN, boxed=parity_reward):
        training, config = TRAINING.model_copy(update=changes), {"method": method, **changes}
        run_module.train(job_in(world, out, training, method, config=config))
    return metrics(out / "metrics.jsonl")


def metrics(path: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k not in UNTIMED} for r in read_jsonl(path)]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model" / "model.safetensors")


def tokens(out: Path) -> bytes:
    return (out / "tokens.parquet").read_bytes()


@pytest.fixture(scope="module")
def reference(world, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("reference")
    run(world, out)
    return out


@pytest.mark.parametrize("method", ["grpo", "20-entropy", "justrl"])
def test_each_method_trains_and_measures(world, tmp_path, method):
    records = run(world, tmp_path, method, steps=2)
    assert [record["step"] for record in records] == [1, 2]
    kept = {"20-entropy": 0.2}.get(method, 1.0)
    for record in records:
        # k = ceil(0.2 n) of a few hundred tokens.
        assert record["kept_fraction"] == pytest.approx(kept, abs=0.01)
        assert record["gradient_norm"] > 0
        assert 0 < record["entropy"] < 4
    # The policy is the reference until the first step: exactly no divergence, then some.
    assert records[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert (records[1]["kl"] > 0) == (method == "grpo")


@pytest.mark.parametrize("budget", [64, 100_000], ids=["one sequence", "one micro-batch"])
def test_micro_batches_change_nothing_but_rounding(world, reference, tmp_path, budget):
    run(world, tmp_path, steps=2, micro_batch_tokens=budget)
    expected = metrics(reference / "metrics.jsonl")
    found = metrics(tmp_path / "metrics.jsonl")
    for key in ("num_tokens", "num_candidates", "num_silenced", "reward"):
        assert found[0][key] == expected[0][key], key
    for key in ("loss", "gradient_norm", "entropy"):
        # Single precision, sums of some thousand terms in another order; one step taken.
        assert found[0][key] == pytest.approx(expected[0][key], rel=1e-4, abs=1e-6), key


def test_the_same_seed_gives_the_same_run(world, reference, tmp_path):
    run(world, tmp_path)
    assert metrics(tmp_path / "metrics.jsonl") == metrics(reference / "metrics.jsonl")
    assert tokens(tmp_path) == tokens(reference)
    for name, tensor in weights(reference).items():
        assert torch.equal(weights(tmp_path)[name], tensor), name


def test_the_last_rollout_may_be_used_in_part(world, reference, tmp_path):
    """Two mini-batches per rollout, five steps; a method with batches of its own has the study's steps."""
    assert run(world, tmp_path, steps=5) == metrics(reference / "metrics.jsonl")[:5]


def test_a_killed_run_resumes_to_the_same_bits(world, reference, tmp_path):
    code = f"""
import sys
from pathlib import Path
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}
from test_trainer import run
run(Path({str(world)!r}), Path({str(tmp_path)!r}))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    log = tmp_path / "work" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    # Five steps: past a checkpoint (4) and inside a rollout, whose buffer is lost.
    while len(read_jsonl(log)) < 5 and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "model").exists()
    run(world, tmp_path)
    assert metrics(tmp_path / "metrics.jsonl") == metrics(reference / "metrics.jsonl")
    assert tokens(tmp_path) == tokens(reference)
    for name, tensor in weights(reference).items():
        assert torch.equal(weights(tmp_path)[name], tensor), name


def test_a_truncated_checkpoint_is_passed_over_and_the_run_finishes(
    world, reference, tmp_path, capsys
):
    run(world, tmp_path, steps=6)
    (tmp_path / "work" / "checkpoint-6" / "optimizer.pt").write_bytes(b"torn")
    (tmp_path / "work" / "writing" / "checkpoint-8").mkdir(parents=True)
    run(world, tmp_path, steps=6)
    assert "checkpoint-6: skipped, truncated or corrupt: optimizer.pt" in capsys.readouterr().out
    assert metrics(tmp_path / "metrics.jsonl") == metrics(reference / "metrics.jsonl")
    assert tokens(tmp_path) == tokens(reference)
    for name, tensor in weights(reference).items():
        assert torch.equal(weights(tmp_path)[name], tensor), name


def test_a_resume_with_nothing_to_do_says_so_and_publishes(world, reference, tmp_path, capsys):
    run(world, tmp_path, steps=6)
    shutil.rmtree(tmp_path / "model")
    run(world, tmp_path, steps=6)
    assert "all 6 steps were done before: nothing to train" in capsys.readouterr().out
    assert metrics(tmp_path / "metrics.jsonl") == metrics(reference / "metrics.jsonl")
    assert tokens(tmp_path) == tokens(reference)
    for name, tensor in weights(reference).items():
        assert torch.equal(weights(tmp_path)[name], tensor), name


def test_a_training_that_ends_early_is_not_mistaken_for_a_finished_one(world, tmp_path):
    class Lazy(run_module.Progress):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step == 3

    with (
        patch.object(run_module, "Progress", Lazy),
        pytest.raises(RuntimeError, match="after step 3 of 6 for an unknown reason"),
    ):
        run(world, tmp_path, steps=6)
    assert not (tmp_path / "model").exists()


def test_the_work_directory_of_another_run_is_refused(world, tmp_path):
    run(world, tmp_path, steps=2)
    with pytest.raises(ForeignDirectoryError, match="another configuration"):
        run(world, tmp_path, steps=4)


def test_the_update_is_the_objective(world, tmp_path, monkeypatch):
    """One mini-batch against the public functions on plain logits of the same model."""
    from transformers import AutoModelForCausalLM

    from stapo.training import trainer as module

    captured: dict[str, Any] = {}
    original = module.StapoTrainer._accumulate_gradients

    def spy(self: Any, model: Any, batch: Any) -> Any:
        loss = original(self, model, batch)
        if not captured:
            gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
            captured.update(batch=batch, loss=loss, gradients=gradients)
        return loss

    monkeypatch.setattr(module.StapoTrainer, "_accumulate_gradients", spy)
    by_group = replace(METHODS["justrl"], aggregation="group_token_mean")
    monkeypatch.setitem(METHODS, "by-group", by_group)
    for name in ("stapo", "grpo", "20-entropy", "by-group"):
        captured.clear()
        run(world, tmp_path / name, name, steps=2)
        method, batch = METHODS[name], captured["batch"]
        model = AutoModelForCausalLM.from_pretrained(world / "base", dtype=torch.float32)
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        width = batch["completion_ids"].shape[1]
        logits = model(input_ids=ids, attention_mask=attention).logits[:, -width - 1 : -1]
        log_softmax = logits.log_softmax(dim=-1)
        logps = log_softmax.gather(2, batch["completion_ids"].unsqueeze(2)).squeeze(2)
        entropies = -(log_softmax.exp() * log_softmax).sum(dim=-1).detach()
        mask = batch["completion_mask"].bool()
        advantages = group_advantages(batch["rewards"], TRAINING.group_size)
        keep = SELECTIONS[method.selection](
            logps.detach(), entropies, advantages, mask, **method.selection_args
        )
        values = clipped_surrogate(
            logps, logps.detach(), advantages, method.clip_low, method.clip_high
        )
        values = values - method.kl_coefficient * kl_k3(logps, logps.detach())
        mean = {
            "token_mean": token_mean,
            "group_token_mean": partial(group_token_mean, group_size=TRAINING.group_size),
            "sequence_mean": sequence_mean,
        }[method.aggregation]
        loss = -mean(values, keep)
        loss.backward()
        # Single precision through two layers, trimmed and padded differently.
        torch.testing.assert_close(captured["loss"], loss.detach(), rtol=1e-4, atol=1e-6)
        for parameter, gradient in model.named_parameters():
            torch.testing.assert_close(
                captured["gradients"][parameter], gradient.grad, rtol=1e-3, atol=1e-6
            )


def test_a_loss_that_is_not_finite_stops_the_run(world, tmp_path, monkeypatch):
    from stapo.training import update as module

    monkeypatch.setattr(
        module, "clipped_surrogate", lambda logps, *_: logps * torch.tensor(float("nan"))
    )
    with pytest.raises(FloatingPointError, match="step 1: the loss is nan"):
        run(world, tmp_path)
    saved = load_file(tmp_path / "work" / "refused-step-1.safetensors")
    assert {"prompt_ids", "completion_ids", "advantages", "old_per_token_logps"} <= saved.keys()
    assert len(saved["completion_ids"]) == TRAINING.prompts_per_mini_batch * TRAINING.group_size


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_stops_before_the_weights_change(
    world, tmp_path, monkeypatch, value
):
    from stapo.training import trainer as module

    original, before = module.StapoTrainer._accumulate_gradients, {}

    def poison(self: Any, model: Any, batch: Any) -> Any:
        loss = original(self, model, batch)
        if self.state.global_step == 2:
            next(model.parameters()).grad[0, 0] = value
            before.update(model=model, weights=[p.detach().clone() for p in model.parameters()])
        return loss

    monkeypatch.setattr(module.StapoTrainer, "_accumulate_gradients", poison)
    with pytest.raises(FloatingPointError, match=r"step 3: the gradient norm is (nan|inf)"):
        run(world, tmp_path)
    after = before["model"].parameters()
    assert all(torch.equal(a, b) for a, b in zip(after, before["weights"], strict=True))
    assert (tmp_path / "work" / "refused-step-3.safetensors").exists()
    assert len(read_jsonl(tmp_path / "work" / "metrics.jsonl")) == 2


def test_current_statistics_are_the_current_policys(world, tmp_path):
    """At the first update after a rollout the same as behaviour, afterwards not."""
    chosen: dict[str, list[Any]] = {"behaviour": [], "current": []}
    for statistics, records in chosen.items():
        out = tmp_path / statistics
        run(world, out, "20-entropy", statistics=statistics, learning_rate=1e-2)
        records += metrics(out / "metrics.jsonl")
    first, second = zip(*chosen.values(), strict=True), range(6)
    for step, (ours, theirs) in zip(second, first, strict=True):
        if step == 0:
            assert ours == theirs
        elif step == 1:
            # The same rollout and number of tokens, another choice of them.
            assert ours["num_tokens"] == theirs["num_tokens"]
            assert ours["kept_fraction"] == theirs["kept_fraction"]
            assert ours["gradient_norm"] != theirs["gradient_norm"]


def test_the_mask_scope_meter_compares_the_scopes(world, tmp_path):
    records = run(world, tmp_path, "20-entropy", steps=2, micro_batch_tokens=128)
    for record in records:
        scope = record["mask_scope"]
        dropped = round((1 - record["kept_fraction"]) * record["num_tokens"])
        assert scope["mini_batch"] == {"num_dropped": dropped, "num_different": 0}
        # One process: its scope is the mini-batch's; micro-batches of few sequences are another method.
        assert scope["rank"] == scope["mini_batch"]
        assert scope["micro_batch"]["num_different"] > 0
    assert "mask_scope" not in run(world, tmp_path / "justrl", "justrl", steps=2)[0]


def test_curves_go_to_tensorboard_by_default(reference):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (directory,) = (reference / "work" / "runs").iterdir()
    events = EventAccumulator(str(directory))
    events.Reload()
    records = metrics(reference / "metrics.jsonl")
    curve = [event.value for event in events.Scalars("train/stapo/entropy")]
    # Events hold single precision.
    assert curve == pytest.approx([record["entropy"] for record in records], rel=1e-6)


def test_a_mini_batch_without_gradient_still_takes_its_step(world, tmp_path):
    """Adam's moments decay and move the weights, as in an update that computes the zeros."""
    rewards = iter([parity_reward, *[lambda completions, **_: [1.0] * len(completions)] * 9])

    def first_only(completions: Any, **kwargs: Any) -> list[float]:
        return next(rewards)(completions, **kwargs)

    with patch(f"{__name__}.parity_reward", first_only):
        records = run(world, tmp_path, steps=4)
    assert [record["gradient_norm"] > 0 for record in records] == [True, True, False, False]
    two = tmp_path / "two"
    run(world, two, steps=2)
    assert any(not torch.equal(weights(two)[n], w) for n, w in weights(tmp_path).items())


def test_bf16_and_gradient_checkpointing_keep_log_probs_in_single_precision(
    world, reference, tmp_path, monkeypatch
):
    """What GPUs use: the model computes in bfloat16, log-probs and entropies stay float32."""
    from stapo.training import trainer as module

    original, forward = run_module.StapoConfig, module.StapoTrainer._forward
    seen: list[tuple[torch.dtype, torch.dtype | None]] = []

    def config(**settings: Any) -> Any:
        return original(**settings | {"bf16": True, "gradient_checkpointing": True})

    def spy(self: Any, *args: Any) -> Any:
        logps, entropies = forward(self, *args)
        # TRL turns it off where no gradient is taken.
        assert self.model.is_gradient_checkpointing == torch.is_grad_enabled()
        assert self.accelerator.mixed_precision == "bf16"
        seen.append((logps.dtype, None if entropies is None else entropies.dtype))
        return logps, entropies

    monkeypatch.setattr(run_module, "StapoConfig", config)
    monkeypatch.setattr(module.StapoTrainer, "_forward", spy)
    records = run(world, tmp_path, steps=2)
    assert set(seen) == {(torch.float32, torch.float32)}
    table = read_token_file(tmp_path / "tokens.parquet").to_pandas()
    # The logits of the sampled tokens are those of the pass, to the rounding of their type.
    assert (table["collision"].isna() == table["ratio"].isna()).all()
    expected = metrics(reference / "metrics.jsonl")
    # Eight bits of mantissa through two layers; the rollouts are those of another model, barely.
    assert records[0]["entropy"] == pytest.approx(expected[0]["entropy"], rel=0.05)
    assert records[0]["entropy"] != expected[0]["entropy"]
