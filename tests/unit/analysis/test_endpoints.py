"""Endpoints of trainings: numbers by hand, and the differences between methods."""

from math import isnan

import numpy as np
import pytest
from scipy import stats

from stapo.analysis.tables.endpoints import gap
from stapo.analysis.tables.stability import entropy_numbers
from stapo.evaluation.statistics import detectable_between, difference_between


def test_a_difference_of_trainings_has_welchs_interval_and_an_exact_p_value() -> None:
    ours, theirs = [0.9, 0.8, 0.95, 0.85], [0.2, 0.4, 0.3, 0.1]
    found = gap(ours, theirs)
    welch = stats.ttest_ind(ours, theirs, equal_var=False)
    expected = welch.confidence_interval(0.95)
    assert found.value.value == pytest.approx(0.625)
    # Degrees of freedom are rounded down, so the interval is a little wider than Welch's own.
    assert found.value.low <= expected.low < expected.high <= found.value.high
    assert found.value.high - found.value.low < 1.15 * (expected.high - expected.low)
    # No exchange of the eight trainings is as extreme but this one and its mirror, of 70.
    assert found.p_value == pytest.approx(2 / 70)
    assert found.detectable == detectable_between(ours, theirs) > 0


def test_one_training_of_each_has_no_interval_and_no_p_value() -> None:
    found = gap([0.5], [0.25])
    assert found.value.value == 0.25
    assert isnan(found.value.low)
    assert isnan(found.p_value)
    assert isnan(found.detectable)
    assert difference_between([1.0, 1.0], [0.0, 0.0]).low == 1.0


def test_a_collapse_is_found_at_its_step():
    entropy = np.where(np.arange(400) < 300, 1.0, 0.01)
    # The moving mean over 20 steps is below a tenth once 19 of them are past the fall.
    assert entropy_numbers(entropy, 8).before_collapse == pytest.approx(309 / 400)
    assert entropy_numbers(np.ones(400), 8).before_collapse == 1
