"""How far the log-probs of the rollouts are from the trainer's: recorded, limited, corrected."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file
from training_jobs import TRAINING, job_in, metrics, parity_reward, weights

from stapo.methods import METHODS
from stapo.objective import importance_weights
from stapo.training import rewards
from stapo.training import run as run_module
from stapo.training.measure import rollout_mismatch
from stapo.training.minibatch import MiniBatch
from stapo.training.step_checkpoints import step_checkpoints
from stapo.training.trainer import StapoTrainer
from stapo.training.update import micro_batch_loss

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


def test_a_factor_is_the_ratio_of_probabilities_up_to_the_cap_and_1_if_unknown():
    old = torch.tensor([[0.5, 0.2, 0.9, 0.3]], dtype=torch.double).log()
    rollout = torch.tensor([[0.4, 0.4, 0.1, NAN]], dtype=torch.double).log()
    expected = torch.tensor([[1.25, 0.5, 2.0, 1.0]], dtype=torch.double)
    torch.testing.assert_close(importance_weights(old, rollout, 2.0), expected)


def test_a_factor_multiplies_the_surrogate_of_its_token_and_no_divergence():
    """As in TRL, whose term of the KL divergence is added after the factor."""
    logps = torch.tensor([[-1.0, -2.0]], dtype=torch.double)
    batch = MiniBatch(
        mask=torch.ones(1, 2, dtype=torch.bool),
        advantages=torch.ones(1, dtype=torch.double),
        old_logps=logps - 0.01,
        old_entropies=logps,
        ref_logps=logps - 0.5,
        importance=torch.tensor([[0.5, 2.0]], dtype=torch.double),
    )
    method = replace(METHODS["justrl"], kl_coefficient=0.1)
    found = micro_batch_loss(logps, batch, torch.ones(1, 2, dtype=torch.double), method)[0]
    kl = math.exp(-0.5) - (-0.5) - 1
    assert found.item() == pytest.approx(-(0.5 + 2.0) * math.exp(0.01) + 2 * 0.1 * kl, rel=1e-12)


# In a training -------------------------------------------------------------------------------------


def sampled(self: StapoTrainer, prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
    """Random responses, with log-probs that are far off from the second rollout on."""
    ids, logps = [], []
    for row in range(len(prompt_ids)):
        generator = torch.Generator().manual_seed(1000 * self.state.global_step + row)
        length = int(torch.randint(1, 24, (), generator=generator))
        ids.append(
            torch.randint(5, len(self.processing_class), (length,), generator=generator).tolist()
        )
        logps.append([-2.0 if self.state.global_step < 2 else -50.0] * length)
    return ids, logps


def run(world: Path, out: Path, **changes: Any) -> list[dict[str, Any]]:
    with (
        patch.object(StapoTrainer, "_generate_single_turn", sampled),
        patch.dict(rewards.BUILT_IN, boxed=parity_reward),
    ):
        training = TRAINING.model_copy(update={"steps": 4, **changes})
        run_module.train(job_in(world, out, training, "justrl"))
    return metrics(out)


@pytest.fixture(scope="module")
def unlimited(world, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("unlimited")
    run(world, out)
    return out


def test_a_training_stops_above_the_limit_before_the_weights_change(world, unlimited, tmp_path):
    expected = metrics(unlimited)
    found = [record["rollout_mismatch"] for record in expected]
    assert max(found[:2]) < 20 < min(found[2:])
    with pytest.raises(FloatingPointError) as stopped:
        run(world, tmp_path, rollout_mismatch_limit=20.0)
    for part in ("step 3: ", f"by {found[2]:.3g} nats", "rollout_mismatch_limit, 20;", "raise the"):
        assert part in str(stopped.value)
    kept = load_file(tmp_path / "work" / "refused-step-3.safetensors")
    assert "sampling_per_token_logps" in kept
    assert step_checkpoints(tmp_path / "work")[-1].name == "checkpoint-2"
    assert run(world, tmp_path, rollout_mismatch_limit=max(found)) == expected
    for name, tensor in weights(unlimited).items():
        assert torch.equal(weights(tmp_path)[name], tensor), name


def test_the_correction_changes_the_gradient_and_no_measurement(world, unlimited, tmp_path):
    expected = metrics(unlimited)[0]
    (found,) = run(world, tmp_path, rollout_correction=2.0, steps=1)
    differs = {name for name in expected if found[name] != expected[name]}
    assert differs == {"loss", "gradient_norm"}
