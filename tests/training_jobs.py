"""Trainings of seconds, started by hand, as several tests and programs do."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file

from stapo.core.files import read_jsonl
from stapo.core.methods import METHODS
from stapo.suite.study.schema import TrainingSettings
from stapo.suite.training import rewards, run as run_module, settings
from stapo.suite.training.run import TrainingJob

TRAINING = TrainingSettings(
    steps=6, prompts_per_batch=8, group_size=4, prompts_per_mini_batch=4, micro_batch_tokens=512,
    learning_rate=1e-3, max_prompt_tokens=24, max_response_tokens=32,
    checkpoint_every=1,
)  # fmt: skip


def job_in(
    world: Path, out: Path, training: TrainingSettings, method: str, **changes: Any
) -> TrainingJob:
    """Return a training on `base` and `prompts.jsonl` of a world; changes are arguments of TrainingJob."""
    given: dict[str, Any] = {
        "config": {},
        "training": training,
        "method": METHODS[method],
        "seed": 0,
        "base": world / "base",
        "prompts": world / "prompts.jsonl",
        "work": out / "work",
        "out": out,
    }
    return TrainingJob(**given | changes)


def with_settings(**changes: Any) -> Any:
    """Return a patch that changes settings of the trainer which no study has."""
    original, made = settings.trainer_config, settings.StapoConfig

    def changed(*given: Any) -> Any:
        # Only meanwhile: checkpoints contain the settings by the name of their class.
        with patch.object(settings, "StapoConfig", lambda **given: made(**given | changes)):
            return original(*given)

    return patch.object(run_module, "trainer_config", changed)


def parity_reward(completions: Any, **_: Any) -> list[float]:
    """A reward that even a model of a few steps gets now and then: text of even length."""
    return [1.0 - 2 * (len(conversation[-1]["content"]) % 2) for conversation in completions]


def run(world: Path, out: Path, method: str = "stapo", **changes: Any) -> list[dict[str, Any]]:
    """Train once and return the metrics without times."""
    with patch.dict(rewards.BUILT_IN, boxed=parity_reward):
        training, made_of = TRAINING.model_copy(update=changes), {"method": method, **changes}
        run_module.train(job_in(world, out, training, method, config=made_of))
    return metrics(out)


def metrics(out: Path) -> list[dict[str, Any]]:
    """Return the metrics of a training without times."""
    records = read_jsonl(out / "metrics.jsonl")
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model" / "model.safetensors")


def assert_same(out: Path, reference: Path) -> None:
    """Check that two trainings have the same metrics, token records and weights, bit for bit."""
    assert metrics(out) == metrics(reference)
    assert (out / "tokens.parquet").read_bytes() == (reference / "tokens.parquet").read_bytes()
    found = weights(out)
    for name, tensor in weights(reference).items():
        assert torch.equal(found[name], tensor), name
