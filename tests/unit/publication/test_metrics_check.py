"""What the metrics of a training can say depends on what its rewards can be."""

from dataclasses import replace
from typing import Any

import pytest

from stapo.methods import METHODS, SELECTION_SPECS, SelectionSpec, Silenced
from stapo.publication.metrics_check import metrics_faults
from stapo.records.step import NUMBERS, QUANTILES
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


VLLM = {"rollouts": "vllm-colocate"}
MISMATCH = {"rollout_mismatch": 0.1, "rollout_mismatch_max": 0.5, "rollout_changed_fraction": 0.25}


@pytest.mark.parametrize(
    ("settings", "metrics", "fault"),
    [
        (VLLM, MISMATCH, None),
        (
            {},
            MISMATCH,
            "other fields than this method's: rollout_changed_fraction, rollout_mismatch",
        ),
        (VLLM, {}, "other fields than this method's: rollout_changed_fraction, rollout_mismatch"),
        (VLLM, {**MISMATCH, "rollout_mismatch": None}, "a value is not a finite number"),
        (
            VLLM,
            {**MISMATCH, "rollout_mismatch": 0.6},
            "a mean rollout mismatch of 0.6, the largest",
        ),
        (VLLM, {**MISMATCH, "rollout_mismatch": -0.1}, "a mean rollout mismatch of -0.1"),
        (
            VLLM,
            {**MISMATCH, "rollout_changed_fraction": 1.5},
            "rollout_changed_fraction is not betw",
        ),
        ({**VLLM, "rollout_mismatch_limit": 0.1}, MISMATCH, None),
        ({**VLLM, "rollout_mismatch_limit": 0.05}, MISMATCH, "0.1, the study stops at 0.05"),
    ],
)
def test_differences_of_log_probs_are_those_of_trainings_with_vllm(settings, metrics, fault):
    training = TRAINING.model_copy(update=settings)
    *_, faults = metrics_faults(iter([record(**metrics)]), training, METHODS["justrl"])
    assert len(faults) == (fault is not None)
    assert fault is None or fault in faults[0]


CANDIDATES = {"num_candidates": 4, "candidate_fraction": 4 / 64}
SCOPES = {"mask_scope": {"mini_batch": {"num_dropped": 0, "num_different": 0}}}


@pytest.mark.parametrize("name", ["stapo", "high-entropy", "stapo-v2"])
def test_candidates_that_are_never_silenced_are_noticed_where_some_must_be(name):
    """Below the quantile of the candidates' own entropies lie some; below that of all tokens perhaps none."""
    records = [record(step=step, **CANDIDATES, **SCOPES) for step in range(1, 7)]
    training = TRAINING.model_copy(update={"steps": 6})
    *_, faults = metrics_faults(iter(records), training, METHODS[name])
    never = ["several candidates in 6 steps, but none was ever silenced"]
    assert faults == ([] if name == "stapo-v2" else never)


def test_of_a_selection_of_ones_own_only_what_it_declares_is_checked(monkeypatch):
    method = replace(METHODS["justrl"], selection="mine")
    half = record(**CANDIDATES, kept_fraction=0.5)
    for spec, fault in (
        (SelectionSpec(), None),
        (SelectionSpec(kept=lambda n, args: n // 2), None),
        (SelectionSpec(kept=lambda n, args: n // 4), "kept_fraction 0.5, its counts give 0.25"),
        (SelectionSpec(silenced=lambda n, args: Silenced(1, n, 1)), "0 of 4 candidates silenced"),
        (SelectionSpec(has_threshold=True), "other fields than this method's: mask_scope"),
    ):
        monkeypatch.setitem(SELECTION_SPECS, "mine", spec)
        *_, faults = metrics_faults(iter([half]), TRAINING, method)
        assert len(faults) == (fault is not None)
        assert fault is None or f"step 1: {fault}" in faults[0]
    monkeypatch.setitem(SELECTION_SPECS, "mine", SelectionSpec())
    *_, faults = metrics_faults(iter([half | {"kept_fraction": 0.501}]), TRAINING, method)
    assert "kept_fraction 0.501" in faults[0]
