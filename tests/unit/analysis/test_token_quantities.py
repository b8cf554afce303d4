"""Quantities of claims about tokens, on synthetic records of a known truth."""

import numpy as np
import pytest
from synthetic_tokens import CURVATURE, population, write_tokens

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.evidence.quadrants import quadrants
from stapo.analysis.evidence.recorded import recorded
from stapo.analysis.token_quantities import spurious_gradient, within_bounds
from stapo.study import parse_study

METHOD = "stapo"


@pytest.fixture
def records(raw_study, tmp_path):
    """A function that writes changed records of one training."""
    raw_study["run"]["methods"] = [METHOD]
    raw_study["training"] |= {"steps": 4, "prompts_per_batch": 16}
    study = parse_study(raw_study | {"name": "demo"})

    def write(change):
        frame = population(np.random.default_rng(0), slips=0.08, steps=4)
        write_tokens(tmp_path / paths.token_paths(study)[0], change(frame))
        return Artefacts(study, tmp_path)

    return write


def without_some_norms(frame):
    """The logits of every fifth token did not agree with the pass, so its norm is unknown."""
    unknown = np.arange(len(frame)) % 5 == 0
    for name in ("collision", "gradient_norm_sq"):
        frame[name] = frame[name].where(~unknown)
    for name in ("top_tokens", "top_probabilities"):
        frame[name] = frame[name].where(~unknown, None)
    return frame


def test_an_unknown_norm_leaves_the_others_to_decide(records):
    artefacts = records(without_some_norms)
    (found,) = spurious_gradient(artefacts, METHOD)
    (one,) = recorded(artefacts)
    assert found.found == quadrants(one)[0].against
    assert np.isfinite([found.found.low, found.found.high]).all()


def test_an_unknown_norm_is_not_outside_its_bounds(records):
    (found,) = within_bounds(records(without_some_norms), METHOD)
    assert found.found.value == 100


def nearly_sure(frame):
    """Tokens of probability 1 - 1e-8, with entropies that single precision rounds by 1e-6."""
    p, collision = 1 - 1e-8, 1 - 2e-8
    rounded = np.random.default_rng(1).choice([-1e-6, 0.0, 1e-6], size=len(frame)) + 2e-7
    square = np.where(frame["gradient_norm_sq"] > 0, frame["ratio"] * frame["advantage"], 0.0) ** 2
    return frame.assign(
        probability=p,
        current_probability=p,
        current_entropy=rounded,
        collision=collision,
        kind="other",
        gradient_norm_sq=square * (1 - 2 * p + collision + 1e-15),
        lower_bound=square * (1 - 2 * p + np.exp(-rounded)),
        upper_bound=square * (2 - 2 * p - CURVATURE * rounded**2),
    )


def test_rounding_where_a_token_is_nearly_sure_is_not_outside(records):
    (found,) = within_bounds(records(nearly_sure), METHOD)
    assert found.found.value == 100


def test_tokens_without_a_gradient_do_not_count_as_inside(records):
    def wrong(frame):
        some = frame["gradient_norm_sq"] > 0
        return frame.assign(
            gradient_norm_sq=np.where(some, 2 * frame["upper_bound"] + 1, frame["gradient_norm_sq"])
        )

    (found,) = within_bounds(records(wrong), METHOD)
    assert found.found.value == 0
