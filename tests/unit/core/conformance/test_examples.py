"""The kit judges the examples for other trainers, whose page says the same, and the shipped trainers."""

import copy
import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

pytest.importorskip("trl", reason="TRL's trainer is judged here")

from trl import GRPOTrainer

from stapo.core.conformance import (
    MiniBatch,
    Partition,
    Update,
    conventions,
    report,
    run_checks,
    trainers,
)
from stapo.core.conformance.kit import find_trainer
from stapo.core.conformance.trainers import TRAINERS
from stapo.core.methods import CONFORMANCE_METHODS, Method
from stapo.core.objective import at_resolution, silence_spurious
from stapo.suite.repository import ROOT

EXAMPLES = ROOT / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def loop(batch: MiniBatch, partition: Partition, method: Method) -> Update:
    leaf = batch.logps.clone().requires_grad_()
    loss = example("pytorch_loop").accumulate(
        lambda rows: leaf[rows], batch.old_logps, batch.old_entropies, batch.advantages, batch.mask,
        [torch.tensor(rows) for rank in partition for rows in rank], **method.arguments_of("selection"),
    )  # fmt: skip
    return Update(loss, leaf.grad)


def trl(batch: MiniBatch, partition: Partition, method: Method) -> Update:
    trainer = copy.copy(trainers._shell())
    trainer.__class__ = type("Judged", (example("trl_grpo").S2TTrainer,), {})
    trainer.selection = method.arguments_of("selection")
    trainer.accelerator = trainers.RankAccelerator.alone()
    trainer.accelerator.pad_across_processes = lambda value, dim: value
    tables = batch.old_logps, batch.old_entropies, None
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: tables
    rollout = trainers._inputs(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GRPOTrainer, "_generate_and_score_completions", lambda *_: dict(rollout))
        selected = trainer._generate_and_score_completions([])
        patch.setattr(trainers, "_inputs", lambda _: selected)
        return trainers._trl(batch, partition, method)


@pytest.fixture(autouse=True)
def verl(monkeypatch):
    """The names that the example imports of veRL, which is not installed here."""
    modules = {
        "transfer_queue": {},
        "tensordict": {"TensorDict": dict},
        "verl.trainer.ppo.core_algos": {"register_policy_loss": lambda _: lambda loss: loss},
        "verl.trainer.ppo.v1": {"PPOTrainerSync": object, "register_trainer": lambda _: type},
        "verl.workers.utils.padding": {"response_to_nested": None},
    }
    for name, content in modules.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))


def verl_update(batch: MiniBatch, partition: Partition, method: Method) -> Update:
    """Do what veRL's FSDP engine does with a mini-batch: count tokens on all ranks, sum, average."""
    module = example("verl_policy_loss")
    advantages = batch.advantages.unsqueeze(1) * batch.mask
    tables = batch.old_logps, batch.old_entropies, advantages, batch.mask
    keep = module.kept_tokens(*tables, 1, len(batch.mask), **method.arguments_of("selection"))
    info = {"batch_num_tokens": int(keep.sum()), "dp_size": len(partition)}
    info["global_batch_size"] = len(keep)
    low, high = method.clip_low, method.clip_high
    config = SimpleNamespace(clip_ratio_low=low, clip_ratio_high=high, global_batch_info=info)
    leaf, loss = batch.logps.clone().requires_grad_(), 0.0
    for rows in (rows for rank in partition for rows in rank):
        part, _ = module.policy_loss(
            old_log_prob=batch.old_logps[rows], log_prob=leaf[rows], advantages=advantages[rows],
            response_mask=keep[rows], loss_agg_mode="token-mean", config=config, rollout_is_weights=None,
        )  # fmt: skip
        (part / len(partition)).backward()
        loss += part.item() / len(partition)
    return Update(loss, leaf.grad)


def test_verl_selects_in_each_mini_batch_of_all_ranks():
    """Two ranks of four rows, mini-batches of two rows of each: rows 0, 1, 4, 5 and 2, 3, 6, 7."""
    module = example("verl_policy_loss")
    generator = torch.Generator().manual_seed(1)
    logps, entropies = (torch.rand(8, 16, generator=generator).double() for _ in range(2))
    advantages, mask = torch.ones(8, 16).double(), torch.ones(8, 16, dtype=torch.bool)
    expected = torch.zeros_like(mask)
    for rows in ([0, 1, 4, 5], [2, 3, 6, 7]):
        expected[rows] = silence_spurious(
            -8 * logps[rows], at_resolution(entropies[rows]), advantages[rows, 0], mask[rows]
        )
    assert not expected.equal(mask)
    assert module.kept_tokens(-8 * logps, entropies, advantages, mask, 2, 2).equal(expected)
    with pytest.raises(ValueError, match="loss_agg_mode: expected token-mean"):
        module.policy_loss(logps, logps, advantages, mask, "seq-mean-token-mean")


JUDGED = {"pytorch_loop.py": loop, "trl_grpo.py": trl, "verl_policy_loss.py": verl_update}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_the_readme_says_what_the_kit_reports(name):
    lines = (EXAMPLES / "README.md").read_text().splitlines()
    (row,) = (line for line in lines if f"({name})" in line)
    _, threshold, policy, divisor = map(str.strip, row.strip("| ").split("|"))
    for method in ("stapo", "stapo-v2"):
        found = conventions(JUDGED[name], method)
        assert found["threshold over"] == threshold
        assert found["probabilities and entropies of"] == policy
        assert found["divisor"] == divisor
        assert all(check.holds for check in run_checks(JUDGED[name], method))


@pytest.mark.parametrize("method", CONFORMANCE_METHODS)
def test_our_trainer_conforms(method):
    assert [c for c in run_checks(TRAINERS["ours"][0], method) if not c.holds] == []
    found = conventions(TRAINERS["ours"][0], method)
    if method not in ("grpo", "justrl"):
        assert found["threshold over"] == "the mini-batch"
        assert found["probabilities and entropies of"] == "the behaviour policy"
    mean = "kept tokens of each response, then the mean over responses"
    assert found["divisor"] == (mean if method == "grpo" else "kept tokens of the mini-batch")


def test_what_trl_does():
    lines, holds = report(*find_trainer("trl-dapo")[:1], "trl-dapo", "justrl")
    assert holds
    assert "divisor: kept tokens of the mini-batch" in lines
    assert conventions(TRAINERS["trl-dapo"][0], "stapo")["threshold over"] == "no selection"
