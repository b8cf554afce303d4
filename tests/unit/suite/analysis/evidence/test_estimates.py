"""Estimates from samples of tokens whose truth is known."""

import numpy as np
import pandas as pd
import pytest
from synthetic_tokens import drawn, population

from stapo.suite.analysis.evidence.estimates import UNSEEN, mean, ratio, relative, sample_of, share
from stapo.suite.evaluation.statistics import clopper_pearson

PROMPTS = 8
BUDGET = {"silenced": 3, "retained": 3, "other": 60}


def tokens(weights, prompts, steps=None, kinds="other"):
    return pd.DataFrame({"step": steps or 1, "prompt": prompts, "kind": kinds, "weight": weights})


def estimates_of(frames, prompts=PROMPTS):
    """Every estimator, about classes of different frequency."""
    frame = pd.concat(frames)
    sample, a = sample_of(frames, prompts), (frame["advantage"] > 0).to_numpy()
    y = np.sqrt(frame["gradient_norm_sq"].to_numpy())
    sure = (frame["entropy"] < 1).to_numpy()
    digit = frame["token"].str.isdigit().to_numpy()
    rare = (frame["token"] == "x").to_numpy()
    return {
        "share": share(sample, sure & a, a),
        "share of a rare class": share(sample, rare & sure & a, a),
        "mean": mean(sample, y, a & sure),
        "ratio": ratio(sample, np.where(digit, y**2, 0), y**2),
        "relative": relative(sample, y, a & sure, a & ~sure),
    }


def training(seed):
    """All tokens of a training with new prompts; responses of a prompt are alike."""
    rng = np.random.default_rng(seed)
    return population(rng, steps=6, prompts=PROMPTS, group=4, length=12, slips=0.05, top=False)


@pytest.mark.slow
@pytest.mark.parametrize("several", [1, 3])
def test_95_percent_intervals_hold_the_truth_in_95_percent_of_the_samples(several):
    trainings = [training([7, i]) for i in range(150 if several == 1 else 90)]
    truth = estimates_of(trainings)
    found = {name: [] for name in truth}
    for i in range(0, len(trainings), several):
        rng = np.random.default_rng([8, i])
        samples = [drawn(one, rng, BUDGET) for one in trainings[i : i + several]]
        for name, one in estimates_of(samples).items():
            value = truth[name].value
            found[name].append(0 if one.low <= value <= one.high else 1 if value > one.high else -1)
    for name, sides in found.items():
        # Two standard errors of a share of 95 % in 150 trainings are 3.6 points, in 30 samples 8.
        assert np.mean(np.array(sides) == 0) >= (0.91 if several == 1 else 0.86), name
        assert several > 1 or max(sides.count(1), sides.count(-1)) <= 0.07 * len(sides), name


def test_the_variance_is_that_of_prompts_by_hand():
    # Two steps of three prompts: the third of step 1 and the second and third of step 2 have no record.
    frame = tokens([4.0, 4.0, 1.0, 3.0], [0, 0, 1, 5], steps=[1, 1, 1, 2])
    sample = sample_of([frame], 3)
    y = np.array([1.0, 3.0, 5.0, 2.0])
    found = ratio(sample, y, np.ones(4))
    value = (4 + 12 + 5 + 6) / 12
    assert found.value == pytest.approx(value)
    # Sums of prompts: 4 (1 - r) + 4 (3 - r), 5 - r and 0; 3 (2 - r), 0 and 0.
    first = np.var([16 - 8 * value, 5 - value, 0], ddof=1) * 3
    second = np.var([6 - 3 * value, 0, 0], ddof=1) * 3
    spread = (first + second) ** 0.5 / 12
    t = 4.302652729911275  # Three prompts.
    assert found.high / found.value == pytest.approx(np.exp(t * spread / value))
    assert found.low * found.high == pytest.approx(value**2)
    signed = ratio(sample, y - 2, np.ones(4))
    assert signed.high - signed.value == pytest.approx(t * spread)


def test_a_class_without_a_recorded_token_may_have_a_few_tokens():
    frame = tokens([10.0] * 50 + [1.0], range(51), kinds=["other"] * 50 + ["silenced"])
    sample, whole = sample_of([frame], 51), np.ones(51, bool)
    none, silenced = np.zeros(51, bool), (frame["kind"] == "silenced").to_numpy()
    found = share(sample, none, whole)
    assert (found.value, found.low) == (0, 0)
    assert found.high == pytest.approx(10 * UNSEEN / 501)
    everything = share(sample, ~silenced, ~silenced)
    assert everything.value == everything.high == 1
    assert everything.low == pytest.approx(1 - 10 * UNSEEN / 500)
    assert 0 < share(sample, silenced, whole).low < 1 / 501 < share(sample, silenced, whole).high


def test_few_units_that_agree_are_at_most_as_many_as_their_tokens():
    whole, part = np.ones(3, bool), np.array([True, True, False])
    alone = share(sample_of([tokens([1.0] * 3, [0, 0, 0])], PROMPTS), part, whole)
    assert alone.value == pytest.approx(2 / 3)
    assert np.isnan([alone.low, alone.high]).all()
    frames = [tokens([2.0] * 8, range(8))] * 2
    equal = share(sample_of(frames, PROMPTS), np.arange(16) % 2 == 0, np.ones(16, bool))
    assert (equal.low, equal.high) == pytest.approx(clopper_pearson(8, 8))


def test_a_part_in_a_single_prompt_has_no_interval_of_its_ratio():
    sample, part = sample_of([tokens([1.0] * 4, range(4))], PROMPTS), np.arange(4) == 0
    found = ratio(sample, part.astype(float), np.ones(4), part)
    assert found.value == 0.25
    assert np.isnan([found.low, found.high]).all()
