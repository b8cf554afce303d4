"""What the metrics of a training can say depends on what its rewards can be."""

from typing import Any

import pytest

from stapo.methods import METHODS
from stapo.publication.metrics_check import NUMBERS, metrics_faults
from stapo.records.step import QUANTILES
from stapo.study.schema import TrainingSettings

TRAINING = TrainingSettings(
    steps=1, prompts_per_batch=2, group_size=4, prompts_per_mini_batch=2, micro_batch_tokens=512,
    learning_rate=1e-3, max_prompt_tokens=24, max_response_tokens=32,
)  # fmt: skip
OWN = {"reward": "mine.rewards:score", "reward_sha256": "0" * 64}
PENALTY = {"overlong_buffer_tokens": 8}


def record(**changes: Any) -> dict[str, Any]:
    """The only step of a training of 2 groups of 4 responses, of 8 tokens each."""
    return {
        **dict.fromkeys(NUMBERS, 0.0),
        **{"step": 1, "num_tokens": 64, "num_candidates": 0, "num_silenced": 0},
        **{"kept_fraction": 1.0, "response_length": 8.0, "learning_rate": 1e-3},
        "entropy_quantiles": dict.fromkeys(map(str, QUANTILES), 0.0),
        "seconds": {"rollout": 1.0, "update": 1.0},
        **changes,
    }


@pytest.mark.parametrize(
    ("settings", "metrics", "fault"),
    [
        ({}, {"reward": 0.25}, None),
        ({}, {"reward": 0.3}, "reward 0.3 is no share of 8"),
        ({}, {"reward": -1.25}, "reward -1.25 is no share of 8"),
        ({"reward": "dapo"}, {"reward": 0.3}, "reward 0.3 is no share of 8"),
        ({}, {"zero_advantage_fraction": 0.125}, "zero_advantage_fraction 0.125 is no share of 2"),
        (PENALTY, {"reward": 0.3, "zero_advantage_fraction": 0.125}, None),
        (PENALTY, {"reward": -2.1}, "reward -2.1 is not within -2, wrong and overlong, and 1"),
        (PENALTY, {"reward": 1.1}, "reward 1.1 is not within -2, wrong and overlong, and 1"),
        ({"overlong_buffer_tokens": 0}, {"reward": 0.3}, "reward 0.3 is no share of 8"),
        (OWN, {"reward": 17.3, "zero_advantage_fraction": 0.125}, None),
    ],
)
def test_the_mean_reward_is_one_that_the_studys_rewards_give(settings, metrics, fault):
    training = TRAINING.model_copy(update=settings)
    *_, faults = metrics_faults(iter([record(**metrics)]), training, METHODS["justrl"])
    assert faults == ([] if fault is None else [f"step 1: {fault}"])
