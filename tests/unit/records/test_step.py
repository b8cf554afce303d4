"""The record of a step: its line as it has always been, and readers that use its names."""

import json
import math

import pytest

from stapo.exhibits import FIGURES
from stapo.records.step import (
    COUNTS,
    NESTED,
    NUMBERS,
    OF_VLLM,
    QUANTILES,
    StepRecord,
    as_line,
    from_line,
)

LINE = {
    "step": 3, "reward": 0.5, "zero_advantage_fraction": 0.25, "entropy": 0.5,
    "entropy_quantiles": dict.fromkeys(map(str, QUANTILES), 0.5), "num_tokens": 10, "num_candidates": 2,
    "num_silenced": 1, "candidate_fraction": 0.2, "silenced_fraction": 0.1, "kept_fraction": 0.9,
    "response_length": 5.0, "truncated_fraction": 0.0,
    "mask_scope": {"mini_batch": {"num_dropped": 1, "num_different": 0}}, "clip_low_fraction": 0.0,
    "clip_high_fraction": 0.1, "loss": -0.5, "kl": 0.0, "rollout_mismatch": 0.01, "rollout_mismatch_max": 0.5,
    "rollout_changed_fraction": 0.25, "gradient_norm": 1.5, "learning_rate": 1e-06,
    "seconds": {"rollout": 2.0, "update": 1.0},
}  # fmt: skip
"""The keys of a line and their order, written out: finished results have them."""


@pytest.mark.parametrize("without", [(), ("mask_scope",), OF_VLLM, ("mask_scope", *OF_VLLM)])
def test_a_line_has_the_same_keys_in_the_same_order_and_comes_back(without) -> None:
    line = {name: value for name, value in LINE.items() if name not in without}
    assert json.dumps(as_line(from_line(line))) == json.dumps(line)
    assert from_line(line) == StepRecord(**line)


def test_every_field_is_a_number_a_count_or_nested() -> None:
    named = {*NUMBERS, *COUNTS, *NESTED, *OF_VLLM, "mask_scope"}
    assert named == LINE.keys() == StepRecord.__dataclass_fields__.keys()


def test_what_a_line_does_not_say_is_unknown() -> None:
    found = from_line({"step": True, "reward": "much", "num_tokens": 2.5, "seconds": None, "kl": 1})
    assert (found.step, found.num_tokens, found.seconds, found.mask_scope) == (0, 0, {}, None)
    assert math.isnan(found.reward)
    assert math.isnan(found.entropy)
    assert found.kl == 1


def test_figures_show_fields_of_the_record() -> None:
    """A file of metrics without the field is told apart from one with it by this name."""
    shown = {"entropy", "reward", "silenced_fraction", "response_length", "gradient_norm"}
    assert shown <= {*NUMBERS, *COUNTS} & {*FIGURES}
    assert {name for name, one in FIGURES.items() if one.needs == "vllm"} <= {*OF_VLLM}
