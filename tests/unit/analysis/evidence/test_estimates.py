"""Estimates from samples of tokens whose truth is known."""

import numpy as np
import pandas as pd
import pytest
from synthetic_tokens import drawn, population

from stapo.analysis.evidence.estimates import (
    UNSEEN,
    count,
    mean,
    ratio,
    relative,
    sample_of,
    share,
    written,
)

DRAWS = 200


def tokens(weights, kinds, steps=None):
    return pd.DataFrame({"step": steps or 1, "kind": kinds, "weight": weights})


def estimates_of(frames):
    """Every estimator, about classes of different frequency."""
    frame = pd.concat(frames)
    sample, a = sample_of(frames), (frame["advantage"] > 0).to_numpy()
    y = np.sqrt(frame["gradient_norm_sq"].to_numpy())
    sure = (frame["entropy"] < 1).to_numpy()
    digit = frame["token"].str.isdigit().to_numpy()
    rare = (frame["token"] == "x").to_numpy()
    return {
        "count": count(sample, sure & a),
        "count of a rare class": count(sample, rare & a & sure),
        "share": share(sample, sure & a, a),
        "share of a rare class": share(sample, rare & sure & a, a),
        "mean": mean(sample, y, a & sure),
        "ratio": ratio(sample, np.where(digit, y**2, 0), y**2),
        "relative": relative(sample, y, a & sure, a & ~sure),
    }


@pytest.fixture(scope="module")
def covered():
    """How often the interval of each estimator holds the truth, below it, and above it."""
    everything = population(np.random.default_rng(7), steps=4, length=60, slips=0.05)
    truth = estimates_of([everything])
    found = {name: [] for name in truth}
    for i in range(DRAWS):
        budget = {"silenced": 3, "retained": 3, "other": 200}
        sample = drawn(everything, np.random.default_rng([7, i]), budget)
        for name, one in estimates_of([sample]).items():
            value = truth[name].value
            found[name].append(0 if one.low <= value <= one.high else 1 if value > one.high else -1)
    return {name: np.array(sides) for name, sides in found.items()}


@pytest.mark.parametrize(
    "name",
    [
        "count",
        "count of a rare class",
        "share",
        "share of a rare class",
        "mean",
        "ratio",
        "relative",
    ],
)
def test_95_percent_intervals_hold_the_truth_in_95_percent_of_the_samples(covered, name):
    # Two standard errors of a share of 95 % in 200 draws are 3 points; intervals of rare classes are
    # wider. With 50 tokens instead of 180, 88 to 93 % of the intervals of means hold the truth: norms are
    # very skewed.
    assert np.mean(covered[name] == 0) >= 0.92
    assert np.mean(covered[name] == 1) <= 0.05
    assert np.mean(covered[name] == -1) <= 0.05


def test_intervals_are_not_too_wide(covered):
    for name in ("count", "share", "mean"):
        assert np.mean(covered[name] == 0) <= 0.985


def test_estimates_are_exact_if_everything_was_recorded():
    everything = population(np.random.default_rng(3))
    for one in estimates_of([everything]).values():
        assert one.low == one.value == one.high
    frame, a = everything, everything["advantage"] > 0
    y = np.sqrt(frame["gradient_norm_sq"])
    found = estimates_of([everything])
    assert found["share"].value == pytest.approx((a & (frame["entropy"] < 1)).sum() / a.sum())
    assert found["mean"].value == pytest.approx(y[a & (frame["entropy"] < 1)].mean())
    sure, unsure = (y[a & one].mean() for one in (frame["entropy"] < 1, frame["entropy"] >= 1))
    assert found["relative"].value == pytest.approx(100 * (sure / unsure - 1))


def test_the_variance_is_that_of_a_stratified_sample_by_hand():
    sample = sample_of([tokens([4.0, 4.0, 1.0, 3.0, 3.0], ["a", "a", "b", "c", "c"])])
    y = np.array([1.0, 3.0, 5.0, 2.0, 2.0])
    found = ratio(sample, y, np.ones(5))
    # 8 tokens of kind a, 1 of b, 6 of c.
    assert found.value == pytest.approx((4 * 4 + 5 + 3 * 4) / 15)
    # Only stratum a varies: (1 - 2/8) * 2 * s^2, where s^2 of 4/15 and 12/15 is (8/15)^2 / 2.
    spread = 0.75 * 2 * (8 / 15) ** 2 / 2
    t = 3.182446305284263  # Four tokens that stand for others.
    assert found.high / found.value == pytest.approx(np.exp(t * spread**0.5 / found.value))
    assert found.low * found.high == pytest.approx(found.value**2)
    signed = ratio(sample, y - 2, np.ones(5))
    assert signed.high - signed.value == pytest.approx(t * spread**0.5)


def test_a_class_without_a_drawn_token_may_have_a_few_tokens():
    frame = tokens([10.0] * 50 + [1.0], ["other"] * 50 + ["silenced"])
    sample, whole = sample_of([frame]), np.ones(51, bool)
    none, silenced = np.zeros(51, bool), (frame["kind"] == "silenced").to_numpy()
    found = count(sample, none)
    assert (found.value, found.low) == (0, 0)
    assert found.high == pytest.approx(10 * UNSEEN)
    # All silenced tokens were recorded, so that there is no other.
    assert count(sample, none, possible=silenced).high == 0
    everything = share(sample, ~silenced, ~silenced)
    assert everything.value == everything.high == 1
    assert everything.low == pytest.approx(1 - 10 * UNSEEN / 500)
    assert share(sample, silenced, whole).low >= 1 / 501


def test_with_several_trainings_the_interval_is_that_of_their_values():
    shares = [0.2, 0.5, 0.8]
    frames = [
        tokens([1.0] * 10, ["a"] * round(10 * one) + ["b"] * round(10 - 10 * one)) for one in shares
    ]
    sample = sample_of(frames)
    part = np.concatenate([frame["kind"] == "a" for frame in frames])
    found = ratio(sample, part.astype(float), np.ones(30))
    assert found.value == pytest.approx(0.5)
    margin = 4.302652729911275 * np.std(shares, ddof=1) / 3**0.5
    assert found.high == pytest.approx(0.5 * np.exp(margin / 0.5))
    assert count(sample, part).value == pytest.approx(5)


def test_no_interval_where_one_token_stands_for_others():
    sample = sample_of([tokens([2.0], ["other"])])
    found = mean(sample, np.array([3.0]), np.array([True]))
    assert found.value == 3
    assert np.isnan(found.low)
    assert written(found) == "3"


def test_no_token_at_all():
    sample, none = sample_of([tokens([], [])]), np.zeros(0, bool)
    assert count(sample, none).high == 0
    for one in (share(sample, none, none), mean(sample, np.zeros(0), none)):
        assert np.isnan(one.value)
        assert written(one) == ""


def test_estimates_do_not_depend_on_the_order_of_the_records():
    everything = population(np.random.default_rng(5))
    budget = {"silenced": 2, "retained": 2, "other": 30}
    sample = drawn(everything, np.random.default_rng(0), budget)
    shuffled = sample.sample(frac=1, random_state=1)
    for name, one in estimates_of([sample]).items():
        assert estimates_of([shuffled])[name].value == one.value
        assert estimates_of([shuffled])[name].high == pytest.approx(one.high, rel=1e-12)
