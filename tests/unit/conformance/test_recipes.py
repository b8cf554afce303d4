"""The recipes for other trainers: the kit judges the functions themselves, and their page says the same."""

import copy
import importlib.util
import re
import sys
from dataclasses import replace
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="TRL's recipe and a step of it are judged here")

from datasets import Dataset
from torch import Tensor
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from stapo.conformance import Layout, MiniBatch, Update, conventions, run_checks, trainers
from stapo.methods import METHODS, STAPO, Method
from stapo.models.loading import load_tokenizer
from stapo.models.tiny import build_tiny
from stapo.objective import at_resolution, silence_spurious
from stapo.repository import ROOT
from stapo.study.sources import TinyModel
from stapo.training.config import StapoConfig
from stapo.training.trainer import StapoTrainer

RECIPES = ROOT / "docs" / "recipes"


def recipe(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# A plain loop


def loop(batch: MiniBatch, layout: Layout, method: Method) -> Update:
    leaf = batch.logps.clone().requires_grad_()
    loss = recipe("pytorch_loop").accumulate(
        lambda rows: leaf[rows], batch.old_logps, batch.old_entropies, batch.advantages, batch.mask,
        [torch.tensor(rows) for rank in layout for rows in rank], **method.selection_args,
    )  # fmt: skip
    return Update(loss, leaf.grad)


def test_the_loop_reads_a_model_as_the_trainer_does(base):
    """Log-probs and entropies of the tiny model's own logits, and a step that changes its weights."""
    model, module = AutoModelForCausalLM.from_pretrained(base), recipe("pytorch_loop")
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 14, (4, 9), generator=generator)
    attention = torch.ones_like(ids)
    attention[1, :3] = attention[2, -2:] = 0
    logps, entropies = module.log_probs(model, ids, attention, 5)
    for t in range(5):
        alone = model(ids[:1, : 4 + t]).logits[0, -1].log_softmax(-1)
        assert logps[0, t].item() == pytest.approx(alone[ids[0, 4 + t]].item(), abs=1e-5)
        assert entropies[0, t].item() == pytest.approx(
            -(alone.exp() * alone).sum().item(), abs=1e-5
        )
    mask = attention[:, -5:].bool()
    module.accumulate(
        lambda rows: module.log_probs(model, ids[rows], attention[rows], 5)[0],
        logps.detach(), entropies, torch.tensor([1.0, -1.0, 0.5, -0.5]), mask,
        torch.arange(4).split(2), tau_p=0.5,
    )  # fmt: skip
    assert all(p.grad.isfinite().all() for p in model.parameters())
    assert any(p.grad.abs().sum() > 0 for p in model.parameters())


# TRL


def s2t_rollout(batch: MiniBatch, method: Method) -> dict[str, Tensor]:
    """Run the recipe's selection on a rollout of TRL, in one process."""
    trainer = copy.copy(trainers._shell("dapo"))
    trainer.__class__ = type("Judged", (recipe("trl_grpo").S2TTrainer,), {})
    trainer.selection = dict(method.selection_args)
    trainer.accelerator = trainers.RankAccelerator(trainers.Ranks(1), 0)
    trainer.accelerator.pad_across_processes = lambda value, dim: value
    tables = batch.old_logps, batch.old_entropies, None
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: tables
    rollout = trainers._inputs(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GRPOTrainer, "_generate_and_score_completions", lambda *_: dict(rollout))
        return trainer._generate_and_score_completions([])


def trl(batch: MiniBatch, layout: Layout, method: Method) -> Update:
    rollout = s2t_rollout(batch, method)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainers, "_inputs", lambda _: rollout)
        return trainers._trl("dapo", batch, layout, method)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("base")
    build_tiny(TinyModel(builder="tiny-arithmetic", supervised_steps=5, hidden_size=32), path)
    return path


def test_a_step_of_trls_trainer_with_s2t_is_a_step_of_ours(base, tmp_path):
    """The same rollout, four micro-batches in TRL's, the weights after one step."""

    def reward(completions, **_):
        return [float(len(one) % 3) for one in completions]

    common = {
        "num_generations": 4, "max_completion_length": 8, "max_steps": 1, "learning_rate": 1e-2,
        "save_strategy": "no", "report_to": "none", "use_cpu": True, "bf16": False, "max_grad_norm": 1e9,
        "optim": "sgd", "gradient_checkpointing": False,
    }  # fmt: skip
    rows = Dataset.from_list([{"prompt": f"{n}+2?"} for n in range(1, 9)])
    module, weights = recipe("trl_grpo"), []
    module.S2TTrainer.selection = {"tau_p": 0.5}
    theirs = GRPOConfig(
        str(tmp_path), **common, per_device_train_batch_size=4, gradient_accumulation_steps=4,
        epsilon_high=0.28, loss_type="dapo",
    )  # fmt: skip
    ours = StapoConfig(
        str(tmp_path), **common, per_device_train_batch_size=16, advantage_epsilon=1e-4
    )
    method = replace(STAPO, selection_args={**STAPO.selection_args, "tau_p": 0.5})
    kinds = (module.S2TTrainer, theirs, {}), (StapoTrainer, ours, {"method": method})
    for kind, config, named in kinds:
        named = {**named, "processing_class": load_tokenizer(base)}
        trainer = kind(str(base), reward, config, rows, **named)
        before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
        trainer.train()
        weights.append({n: p.detach() - before[n] for n, p in trainer.model.named_parameters()})
    largest = max(change.abs().max() for change in weights[1].values())
    assert largest > 0
    for name, change in weights[1].items():
        # Single precision, and padded otherwise.
        assert (weights[0][name] - change).abs().max() < 1e-3 * largest, name


# veRL


@pytest.fixture(autouse=True)
def verl(monkeypatch):
    """The names that the recipe imports of veRL, which is not installed here."""
    store: dict[str, Any] = {"losses": {}, "trainers": {}, "rollout": {}}

    def register(kind: str, name: str) -> Any:
        return lambda what: store[kind].setdefault(name, what)

    class Sync:
        def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
            return batch

    class Data(dict):
        def to_padded_tensor(self) -> "Data":
            return self

    def put(keys: Any, partition_id: str, fields: dict[str, Tensor]) -> Any:
        store["rollout"].update(fields)
        return SimpleNamespace(keys=keys, partition_id=partition_id)

    def get(keys: Any, partition_id: str, select_fields: list[str]) -> Data:
        return Data({name: store["rollout"][name] for name in select_fields})

    modules = {
        "transfer_queue": {"kv_batch_get": get, "kv_batch_put": put},
        "tensordict": {"TensorDict": lambda fields, batch_size: fields},
        "verl.trainer.ppo.core_algos": {"register_policy_loss": partial(register, "losses")},
        "verl.trainer.ppo.v1": {
            "PPOTrainerSync": Sync, "register_trainer": partial(register, "trainers"),
        },
        "verl.workers.utils.padding": {"response_to_nested": lambda tensor, mask: tensor},
    }  # fmt: skip
    for name, content in modules.items():
        parts = name.split(".")
        for end in range(1, len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(parts[0]))
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))
    return store


def verl_update(batch: MiniBatch, layout: Layout, method: Method) -> Update:
    """Do what veRL's FSDP engine does with a mini-batch: count tokens on all ranks, sum, average."""
    module = recipe("verl_policy_loss")
    advantages = batch.advantages.unsqueeze(1) * batch.mask
    tables = batch.old_logps, batch.old_entropies, advantages, batch.mask
    keep = module.kept_tokens(*tables, 1, len(batch.mask), **method.selection_args)
    info = {
        "batch_num_tokens": int(keep.sum()),
        "dp_size": len(layout),
        "global_batch_size": len(keep),
    }
    config = SimpleNamespace(
        clip_ratio_low=method.clip_low, clip_ratio_high=method.clip_high, global_batch_info=info
    )
    leaf, loss = batch.logps.clone().requires_grad_(), 0.0
    for rows in (rows for rank in layout for rows in rank):
        part, _ = module.policy_loss(
            old_log_prob=batch.old_logps[rows], log_prob=leaf[rows], advantages=advantages[rows],
            response_mask=keep[rows], loss_agg_mode="token-mean", config=config, rollout_is_weights=None,
        )  # fmt: skip
        (part / len(layout)).backward()
        loss += part.item() / len(layout)
    return Update(loss, leaf.grad)


def test_verl_selects_in_each_mini_batch_of_all_ranks(verl):
    """Two ranks of four rows, mini-batches of two rows of each: rows 0, 1, 4, 5 and 2, 3, 6, 7."""
    module = recipe("verl_policy_loss")
    generator = torch.Generator().manual_seed(1)
    logps, entropies = (torch.rand(8, 16, generator=generator).double() for _ in range(2))
    advantages = torch.ones(8, 16).double()
    mask = torch.ones(8, 16, dtype=torch.bool)
    expected = torch.zeros_like(mask)
    for rows in ([0, 1, 4, 5], [2, 3, 6, 7]):
        expected[rows] = silence_spurious(
            -8 * logps[rows], at_resolution(entropies[rows]), advantages[rows, 0], mask[rows]
        )
    assert not expected.equal(mask)
    assert module.kept_tokens(-8 * logps, entropies, advantages, mask, 2, 2).equal(expected)

    assert set(verl["losses"]) == {"stapo"}
    verl["rollout"] = {
        "old_log_probs": -8 * logps, "entropy": entropies, "advantages": advantages,
        "response_mask": mask.long(),
    }  # fmt: skip
    trainer = verl["trainers"]["stapo_sync"]()
    trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0, 1]})
    trainer.config = SimpleNamespace(
        actor_rollout_ref=SimpleNamespace(
            actor=SimpleNamespace(ppo_mini_batch_size=2), rollout=SimpleNamespace(n=2)
        )
    )
    metrics: dict[str, Any] = {}

    class Batch(SimpleNamespace):
        def __len__(self) -> int:
            return 8

    trainer._update_actor(Batch(keys=[*range(8)], partition_id="train"), metrics)
    for name in ("response_mask", "loss_mask"):
        assert verl["rollout"][name].bool().equal(expected)
        assert verl["rollout"][name].dtype == torch.long
    silenced = 1 - expected.sum().item() / 128
    assert metrics["actor/silenced_fraction"] == pytest.approx(silenced)
    with pytest.raises(ValueError, match="loss_agg_mode: expected token-mean"):
        module.policy_loss(logps, logps, advantages, mask, "seq-mean-token-mean")


def test_verls_correction_multiplies_each_token(verl):
    module = recipe("verl_policy_loss")
    logps = torch.zeros(1, 3).double()
    info = {"batch_num_tokens": 2, "dp_size": 1}
    config = SimpleNamespace(clip_ratio_low=0.2, clip_ratio_high=0.28, global_batch_info=info)
    mask, weights = torch.tensor([[True, True, False]]), torch.tensor([[0.5, 2.0, 9.0]]).double()
    loss, _ = module.policy_loss(
        logps, logps, torch.ones(1, 3).double(), mask, config=config, rollout_is_weights=weights
    )
    assert loss.item() == -(0.5 + 2.0) / 2


# prime-rl


def prime(batch: MiniBatch, layout: Layout, method: Method) -> Update:
    """Do what prime-rl does: call the loss once per sequence, divide by the tokens of all ranks."""
    loss_function = recipe("prime_rl_loss").s2t_loss
    leaf, total = batch.logps.clone().requires_grad_(), 0.0
    scale = max(int(batch.mask.sum()), 1)
    for row in (row for rank in layout for rows in rank for row in rows):
        inputs = SimpleNamespace(
            trainer_logprobs=leaf[row], inference_logprobs=batch.old_logps[row], ref_logprobs=None,
            advantages=batch.advantages[row].expand(batch.mask.shape[1]), loss_mask=batch.mask[row],
            loss_weights=None, entropies=batch.entropies[row],
        )  # fmt: skip
        found = loss_function(inputs, method.clip_low, method.clip_high, **method.selection_args)
        (found.loss / scale).backward()
        total += found.loss.item() / scale
    return Update(total, leaf.grad)


def test_prime_rl_without_the_four_lines_is_an_error():
    with pytest.raises(ValueError, match="entropies: missing; see the four lines"):
        recipe("prime_rl_loss").s2t_loss(SimpleNamespace(entropies=None))


# What the page says

JUDGED = {
    "pytorch_loop.py": loop, "trl_grpo.py": trl, "verl_policy_loss.py": verl_update,
    "prime_rl_loss.py": prime,
}  # fmt: skip


def stated(name: str) -> list[str]:
    """Return the cells of a recipe's row in the README."""
    for line in (RECIPES / "README.md").read_text().splitlines():
        if f"({name})" in line:
            return [cell.strip() for cell in line.strip("| ").split("|")]
    raise AssertionError(f"no row for {name}")


@pytest.mark.parametrize("name", JUDGED)
def test_the_readme_says_what_the_kit_reports(name):
    _, threshold, policy, divisor, checks = stated(name)
    for method in ("stapo", "stapo-v2"):
        found = conventions(JUDGED[name], method)
        assert found["threshold over"] == threshold
        assert found["probabilities and entropies of"] == policy
        assert found["divisor"] == divisor
        assert found["compares by"] == "p < tau_p, H < threshold"
        assert found["without a candidate"] == "nothing is silenced"
        failed = [check.name for check in run_checks(JUDGED[name], method) if not check.holds]
        assert (not failed) == (checks == "all hold"), failed
        # Even what is another update depends on no micro-batches, ranks, order or padding.
        assert not [one for one in failed if one.startswith("the same")]


def test_every_recipe_is_judged_and_names_what_it_was_read_in():
    assert {path.name for path in RECIPES.glob("*.py")} == set(JUDGED)
    for name, library in (("verl_policy_loss", "verl"), ("prime_rl_loss", "prime-rl")):
        text = (RECIPES / f"{name}.py").read_text()
        assert re.search(rf"{library} at [0-9a-f]{{12}} \(\d", text)
        assert "not been run with" in text
    assert METHODS["stapo"].dual_clip is None  # The recipes have none.
