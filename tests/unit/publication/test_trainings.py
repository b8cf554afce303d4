"""Which trainings may have come to the same updates, and which of them must have been copied."""

import pytest

from stapo.publication.metrics_check import Step
from stapo.publication.trainings import _copied_metrics, acts_alike
from stapo.study import TrainingRun, parse_study

STEP = Step(entropy=1.0, loss=-0.5, gradient_norm=0.25, kept_fraction=1.0)
RUNS = TrainingRun("tiny", "justrl", 0), TrainingRun("tiny", "by-group", 0)


@pytest.mark.parametrize(("prompts", "alike"), [(1, True), (16, False)])
def test_the_mean_over_the_only_group_is_that_over_the_mini_batch(prompts, alike):
    study = parse_study(
        {
            "extends": "smoke",
            "name": "mine",
            "training": {"prompts_per_mini_batch": prompts},
            "methods": {"by-group": {"base": "justrl", "aggregation": "group_token_mean"}},
            "run": {"methods": ["justrl", "by-group"]},
        }
    )
    steps = {run: [STEP] for run in RUNS}
    assert acts_alike(study, *RUNS, steps) == alike
    assert bool(list(_copied_metrics(study, steps))) != alike
