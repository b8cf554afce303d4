"""How far the log-probs of vLLM are from the trainer's."""

import math

import pytest
import torch

from stapo.training.minibatch import MiniBatch
from stapo.training.update import rollout_mismatch

NAN = math.nan


def batch_of(ours: list[list[float]], theirs: list[list[float]]) -> MiniBatch:
    """Two responses, of three and two tokens, given by probabilities; the second has no advantage."""
    old, rollout = torch.tensor(ours), torch.tensor(theirs)
    return MiniBatch(
        mask=torch.tensor([[True, True, True], [True, True, False]]),
        advantages=torch.tensor([1.0, -1.0]),
        old_logps=old.log(),
        old_entropies=torch.zeros(2, 3),
        rollout_logps=rollout.log(),
    )


@pytest.mark.parametrize(
    ("theirs", "mean", "largest", "changed"),
    [
        ([[0.5, 0.001, 0.1], [0.5, 0.001, 0.9]], 0.0, 0.0, 0.0),
        ([[0.5, 0.004, 0.1], [0.5, 0.001, 0.9]], math.log(4) / 5, math.log(4), 1.0),
        ([[0.5, 0.001, 0.001], [0.5, 0.001, 0.9]], math.log(100) / 5, math.log(100), 0.5),
        # Without advantage it is no candidate, and behind the response nothing counts.
        ([[0.5, 0.001, 0.1], [0.5, 0.1, 0.001]], math.log(100) / 5, math.log(100), 0.0),
        ([[0.5, NAN, 0.2], [0.5, 0.001, NAN]], math.log(2) / 4, math.log(2), 0.0),
        ([[NAN] * 3] * 2, 0.0, 0.0, 0.0),
    ],
    ids=["equal", "no candidate any more", "one more", "no candidates", "unknown", "all unknown"],
)
def test_mean_maximum_and_the_candidates_that_change_sides(theirs, mean, largest, changed):
    ours = [[0.5, 0.001, 0.1], [0.5, 0.001, 0.9]]
    found = rollout_mismatch(batch_of(ours, theirs), tau_p=0.002)
    # Logarithms in single precision.
    assert found == pytest.approx((mean, largest, changed), abs=1e-6)
