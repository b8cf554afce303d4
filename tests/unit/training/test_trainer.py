"""The trainer: its update is the objective's, its resume is bit for bit, its errors are clear."""

import shutil
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file
from training_jobs import TRAINING, assert_same, metrics, run

from stapo.files import read_jsonl
from stapo.locks import ForeignDirectoryError
from stapo.methods import METHODS
from stapo.objective import (
    SELECTIONS,
    clipped_surrogate,
    group_advantages,
    kl_k3,
    sequence_mean,
    token_mean,
)
from stapo.records.tokens import read_token_file
from stapo.training import run as run_module

pytestmark = pytest.mark.rounding


@pytest.mark.parametrize("method", ["grpo", "20-entropy"])
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


def test_the_same_seed_gives_the_same_run_and_a_resume_with_nothing_to_do_publishes_it(
    world, reference, tmp_path, capsys
):
    run(world, tmp_path)
    assert_same(tmp_path, reference)
    shutil.rmtree(tmp_path / "model")
    run(world, tmp_path)
    assert "all 6 steps were done before: nothing to train" in capsys.readouterr().out
    assert_same(tmp_path, reference)


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
    run(world, tmp_path, steps=1)
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
    for name in ("stapo", "grpo"):
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


def test_curves_go_to_tensorboard_by_default(reference):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (directory,) = (reference / "work" / "runs").iterdir()
    events = EventAccumulator(str(directory))
    events.Reload()
    records = metrics(reference)
    curve = [event.value for event in events.Scalars("train/stapo/entropy")]
    # Events hold single precision.
    assert curve == pytest.approx([record["entropy"] for record in records], rel=1e-6)


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
    expected = metrics(reference)
    # Eight bits of mantissa through two layers; the rollouts are those of another model, barely.
    assert records[0]["entropy"] == pytest.approx(expected[0]["entropy"], rel=0.05)
    assert records[0]["entropy"] != expected[0]["entropy"]
