"""StapoTrainer uses a setting of TRL or refuses it, and checks its own."""

from dataclasses import replace

import pytest
from datasets import Dataset
from trl import GRPOConfig

from stapo.core.config import UNUSED, StapoConfig, check
from stapo.core.methods import STAPO
from stapo.core.trainer import StapoTrainer
from stapo.suite.models.loading import load_tokenizer

CPU = {"use_cpu": True, "bf16": False}


def test_settings_that_would_be_ignored_are_refused_all_at_once(tmp_path):
    config = StapoConfig(str(tmp_path), **CPU)
    for name in (*UNUSED, "method", "statistics", "decayed"):
        setattr(config, name, 7)  # The default of none of them.
    with pytest.raises(ValueError, match="epsilon_high: not used by StapoTrainer; leave") as one:
        check(config)
    found = [line.partition(":")[0] for line in str(one.value).splitlines()]
    assert found == [*UNUSED, "method", "statistics", "decayed"]
    with pytest.raises(ValueError, match="beta: not used"):
        StapoConfig(str(tmp_path), **CPU, beta=0.04)
    assert "hf_secret" not in repr(StapoConfig(str(tmp_path), **CPU, hub_token="hf_secret"))


def trainer(world, config, **named):
    return StapoTrainer(
        str(world / "base"), lambda completions, **_: [float(len(one) % 3) for one in completions],
        config, Dataset.from_list([{"prompt": "1+2?"}] * 8),
        processing_class=load_tokenizer(world / "base"), **named,
    )  # fmt: skip


SMALL = {
    "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 6, "max_steps": 1,
    "learning_rate": 1e-3, "save_strategy": "no", "gradient_checkpointing": False,
    "report_to": "none",
}  # fmt: skip


def test_it_trains_the_method_it_is_given_or_that_of_its_settings(world, tmp_path):
    records = []
    config = StapoConfig(str(tmp_path), **CPU, **SMALL, method="grpo")
    for _ in range(2):  # A second trainer takes the same settings.
        assert trainer(world, config).beta == 0.04
    own = replace(STAPO, args={**STAPO.args, "tau_p": 0.9, "quantile": 0.9})
    trainer(world, config, method=own, on_metrics=records.append).train()
    assert records[0].num_candidates > records[0].num_silenced > 0
    config.epsilon = 0.1
    with pytest.raises(ValueError, match="epsilon: not used by StapoTrainer; "):
        trainer(world, config)
    with pytest.raises(TypeError, match="args: expected a StapoConfig, found GRPOConfig"):
        trainer(world, GRPOConfig(str(tmp_path), **CPU))


def test_weight_decay_is_that_of_transformers_or_of_all_parameters_as_in_verl(world, tmp_path):
    decaying = {}
    for decayed in ("matrices", "all"):
        config = StapoConfig(str(tmp_path), **CPU, **SMALL, weight_decay=0.1, decayed=decayed)
        groups = trainer(world, config).create_optimizer().param_groups
        decaying[decayed] = [
            p.ndim for group in groups if group["weight_decay"] for p in group["params"]
        ]
    assert {*decaying["matrices"]} == {2}
    norms = decaying["all"].count(1)
    assert norms > 0
    assert len(decaying["all"]) == len(decaying["matrices"]) + norms
