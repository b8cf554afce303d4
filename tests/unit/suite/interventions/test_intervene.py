"""Interventions: all arms start equal, differ only by what they silence, and are repeatable to the bit."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
import pytest
import torch
from damaged import weights
from training_jobs import TRAINING, parity_reward

from stapo.core.checksums import write_sums
from stapo.core.methods import JUSTRL, METHODS, STAPO
from stapo.core.minibatch import MiniBatch
from stapo.core.trainer import mini_batch
from stapo.suite.interventions import trial
from stapo.suite.interventions.arms import silenced_by_arm
from stapo.suite.interventions.gradients import token_gradients
from stapo.suite.interventions.intervene import intervene
from stapo.suite.interventions.job import InterventionJob, make_trainer
from stapo.suite.interventions.updates import Updates, inner
from stapo.suite.records.arms import ARMS, MOMENT_ROLLOUTS, NOTHING, SILENCED
from stapo.suite.records.interventions import Quadrant, read_intervention
from stapo.suite.study import StudyError
from stapo.suite.study.schema import Interventions
from stapo.suite.training import rewards

# A model of a few steps is uncertain: with the paper's tau_p it would have no candidates.
OFTEN = replace(STAPO, args={"tau_p": 0.02, "quantile": 0.75, "scope": "candidates"})

pytestmark = pytest.mark.rounding


@pytest.fixture(scope="module", autouse=True)
def rewarded():
    """A reward that such a model gets now and then."""
    with patch.dict(rewards.BUILT_IN, boxed=parity_reward):
        yield


def job_of(world: Path, out: Path, **changes: Any) -> InterventionJob:
    given: dict[str, Any] = {
        "config": {},
        "checkpoint": "tiny/base",
        "settings": Interventions(repetitions=2, prompts=6, controls=[*ARMS][2:]),
        "training": TRAINING,
        "method": OFTEN,
        "methods": {},
        "model": world / "base",
        "prompts": world / "prompts.jsonl",
        "work": out / "work",
        "out": out / "tiny" / "base.json",
    }
    return InterventionJob(**given | changes)


@pytest.fixture(scope="module")
def made(world, tmp_path_factory) -> InterventionJob:
    out = tmp_path_factory.mktemp("made")
    job = job_of(world, out)
    intervene(job)
    return job


def bytes_of(job: InterventionJob) -> list[bytes]:
    return [job.out.with_suffix(suffix).read_bytes() for suffix in (".json", ".parquet")]


@pytest.mark.slow
def test_arms_silence_equally_many_tokens_and_measure_something(made):
    first, second = read_intervention(made.out).repetitions
    assert (first.tokens, first.entropy) != (second.tokens, second.entropy)
    for one in (first, second):
        counts = {arm: found.silenced for arm, found in one.arms.items()}
        assert counts[NOTHING] == 0 < counts[SILENCED] < one.candidates < one.positive
        scarce = {counts.pop("rare_negative"), counts.pop("mirror")}  # There may be fewer.
        assert {counts[arm] for arm in counts if arm != NOTHING} == {counts[SILENCED]}
        assert 0 < max(scarce) <= counts[SILENCED]
        assert one.arms[NOTHING].cosine == 1
        assert all(-1 < one.arms[arm].cosine < 1 for arm in ARMS if arm != NOTHING)
        for name in ("entropy", "entropy_rollout", "gradient_norm", "kl", "tail_mass"):
            different = len({getattr(arm, name) for arm in one.arms.values()})
            # Where they are scarce, two arms silence all rare tokens with A < 0.
            assert different >= len(ARMS) - 1, name
        assert all(arm.kl > 0 and arm.entropy != one.entropy for arm in one.arms.values())


@pytest.mark.slow
def test_methods_use_a_whole_rollout_from_the_same_weights_whatever_came_before(world, tmp_path):
    training = TRAINING.model_copy(update={"prompts_per_batch": 4, "prompts_per_mini_batch": 2})
    held = replace(METHODS["lp-reg"], args={"unlikely_share": 0.5})
    bonus = replace(METHODS["entropy-bonus"], args={"entropy_coefficient": 0.1})
    others = {"qae": METHODS["qae"], "held": held, "bonus": bonus}
    # The last one has a state, which the arms of the next repetition must not get.
    remembers = {"adaptive": METHODS["adaptive-entropy"]}
    methods = {"justrl": JUSTRL, **others, "again": JUSTRL, **remembers}
    settings = Interventions(repetitions=2, prompts=6, rollout_prompts=4)
    job = job_of(world, tmp_path, methods=methods, training=training, settings=settings)
    assert job.updates == 2
    intervene(job)
    for one in read_intervention(job.out).repetitions:
        assert one.methods["again"] == one.methods["justrl"]
        assert one.methods["justrl"].cosine == 1
        assert one.methods["justrl"].silenced == 0
        assert all(one.methods[n].silenced > 0 and -1 < one.methods[n].cosine < 1 for n in others)
        assert all(arm.gradient_norm > 0 and arm.kl > 0 for arm in one.methods.values())
        # Two updates move the weights further than one.
        assert one.methods["justrl"].kl != one.arms[NOTHING].kl


@pytest.mark.slow
def test_a_stop_loses_the_repetition_in_progress_and_no_bit_changes(made, world, tmp_path):
    job, numbers = job_of(world, tmp_path), []
    original = trial.Trial.record

    def interrupted(self: trial.Trial, shown: Any) -> Any:
        numbers.append(self.number)
        if numbers == [0, 1]:
            raise KeyboardInterrupt
        return original(self, shown)

    with patch.object(trial.Trial, "record", interrupted):
        with pytest.raises(KeyboardInterrupt):
            intervene(job)
        assert not job.out.exists()
        intervene(job)
    assert numbers == [0, 1, 1]
    assert bytes_of(job) == bytes_of(made)


@pytest.mark.slow
def test_repetitions_of_other_weights_are_made_again(made, world, tmp_path):
    job, before = job_of(world, tmp_path), bytes_of(made)
    intervene(job)
    assert bytes_of(job) == before
    other = tmp_path / "other"
    shutil.copytree(job.model, other)
    weights(other, lambda held: {name: 1.01 * tensor for name, tensor in held.items()})
    write_sums(other)
    intervene(replace(job, model=other))
    assert bytes_of(job) != before


def test_too_few_prompts_are_an_error(world, tmp_path):
    settings = Interventions(repetitions=2, prompts=61)
    with pytest.raises(StudyError, match="too few for a mini-batch of 4 and 61 others"):
        intervene(job_of(world, tmp_path, settings=settings))


@pytest.mark.slow
def test_gradients_of_tokens_are_off_by_default_and_change_nothing_else(made, world, tmp_path):
    assert b"gradients" not in made.out.read_bytes()
    settings = made.settings.model_copy(update={"gradient_tokens": 2})
    job = job_of(world, tmp_path, settings=settings)
    intervene(job)
    for one, other in zip(
        *(read_intervention(job.out).repetitions for job in (job, made)), strict=True
    ):
        assert replace(one, gradients=()) == other
        counts = Counter(token.quadrant for token in one.gradients)
        assert set(counts) == {*get_args(Quadrant)}
        assert max(counts.values()) == 2
        total = sum(token.weight for token in one.gradients)
        assert total == pytest.approx(one.positive)


# The update


@pytest.fixture(scope="module")
def rollout(world, tmp_path_factory):
    """A trainer at its first weights, prepared for updates, and a rollout of it."""
    job = job_of(world, tmp_path_factory.mktemp("rollout"))
    trainer, records = make_trainer(job)
    updates = Updates(trainer)
    return job, updates, trainer.respond(records[:4], 0)


@pytest.mark.parametrize(
    ("arm", "method"),
    [(NOTHING, JUSTRL), (SILENCED, OFTEN), (SILENCED, replace(OFTEN, divisor="all"))],
)
def test_the_gradient_of_an_arm_is_that_of_its_method(rollout, arm, method):
    job, updates, found = rollout
    batch, trainer = mini_batch(found), updates.trainer
    silenced = silenced_by_arm(batch, job.method, 0.02, 0)[arm]
    with patch.object(trainer, "method", replace(trainer.method, divisor=method.divisor)):
        ours = updates.gradient_without(found, silenced, updates.gradient(found, batch.mask))
    with patch.object(trainer, "method", method):
        trainer.model.zero_grad()
        trainer._accumulate_gradients(trainer.model, found)
    theirs = {name: p.grad for name, p in trainer.model.named_parameters()}
    # That of S2T is a difference of two gradients: 1e-6 of the largest number, about 8 steps of float32.
    largest = max(float(one.abs().max()) for one in theirs.values())
    for name, one in ours.items():
        torch.testing.assert_close(one, theirs[name], rtol=0, atol=1e-6 * largest)
    assert inner(ours, ours) > 0


def test_gradients_of_tokens_are_those_of_plain_loops(rollout):
    job, updates, found = rollout
    batch, trainer = mini_batch(found), updates.trainer
    everything = token_gradients(trainer, found, job.measured, 10**6, "")
    chances, positive = batch.old_logps.exp(), batch.mask & (batch.advantages > 0).unsqueeze(1)
    rare = positive & (chances < 0.02)
    threshold = np.quantile(batch.old_entropies[rare], 0.75)
    expected = []
    for is_rare in (True, False):
        for is_sure in (True, False):
            alike = (rare == is_rare) & ((batch.old_entropies < threshold) == is_sure)
            expected += (positive & alike).nonzero().tolist()
    assert len(expected) == len(everything) == int(positive.sum())
    weights = [p for p in trainer.model.parameters() if p.requires_grad]
    for (row, position), token in zip(expected, everything, strict=True):
        ids = torch.cat([found["prompt_ids"][row], found["completion_ids"][row]])
        whole = torch.cat([found["prompt_mask"][row], found["completion_mask"][row]]).bool()
        at = int(found["prompt_mask"][row].sum()) + position
        # As in training, over the whole response.
        logits = trainer.model(input_ids=ids[whole][None]).logits / trainer.args.temperature
        loss = -logits[0, at - 1].log_softmax(0)[ids[whole][at]]
        at_logits, *at_weights = torch.autograd.grad(loss, [logits, *weights])
        norm = sum(float(one.double().square().sum()) for one in at_weights) ** 0.5
        assert token.at_weights == pytest.approx(norm, rel=1e-3, abs=1e-6)
        assert token.at_logits == pytest.approx(at_logits.norm().item(), rel=1e-3, abs=1e-6)
        assert token.logp == pytest.approx(-loss.item(), abs=1e-4)
        assert token.weight == 1
    assert trainer.model.config.tie_word_embeddings
    assert all(p.grad is None for p in weights)


def test_tail_mass_is_that_of_the_distributions_from_which_tokens_are_drawn(rollout):
    _, updates, found = rollout
    trainer = updates.trainer
    ids, mask = (
        torch.cat([found[f"prompt_{name}"], found[f"completion_{name}"]], dim=1)
        for name in ("ids", "mask")
    )
    masses = []
    for row, own in zip(ids, mask.bool(), strict=True):
        with torch.no_grad():
            logits = trainer.model(row[own].unsqueeze(0)).logits[0].double()
        chances = torch.softmax(logits / trainer.args.temperature, dim=1)
        first = int(own[: found["prompt_ids"].shape[1]].sum())
        masses += chances[first - 1 : -1].masked_fill(chances[first - 1 : -1] >= 0.01, 0).sum(1)
    expected = torch.stack(masses).mean().item()
    assert 0 < expected < 0.5
    # Float32 against double precision; a probability at the limit could fall on either side.
    tails = trial.tails(trainer.model, trainer.args.temperature, found, 0.01)
    assert trial.mean([tails], [found]) == pytest.approx(expected, rel=1e-3)


def test_a_step_has_no_first_moment_and_the_second_moments_of_other_rollouts(rollout):
    _, updates, found = rollout
    with patch.object(updates.trainer.args, "max_grad_norm", 1e9):
        updates.moments = {name: torch.full_like(p, 2.0) for name, p in updates.weights.items()}
        updates.restore()
        before = {name: p.detach().clone() for name, p in updates.weights.items()}
        gradient = updates.gradient(found, found["completion_mask"].bool())
        updates.step(1e-2)
    for name, parameter in updates.weights.items():
        second = 0.999 * 2.0 + 0.001 * gradient[name] ** 2
        second /= 1 - 0.999 ** (MOMENT_ROLLOUTS + 1)
        step = gradient[name] / (second.sqrt() + 1e-8)
        torch.testing.assert_close(parameter.detach(), before[name] - 1e-2 * step)
    updates.restore()
    assert all(torch.equal(before[name], p) for name, p in updates.weights.items())


# The arms


def test_arms_of_a_batch_by_hand():
    # Candidates: the first four tokens of the first response; the second response has A < 0.
    chances = torch.full((2, 5), 0.001)
    chances[0, 4] = 0.5
    batch = MiniBatch(
        mask=torch.ones(2, 5, dtype=torch.bool),
        advantages=torch.tensor([1.0, -1.0]),
        old_logps=chances.log(),
        old_entropies=torch.tensor([[0.5, 2.0, 1.0, 3.0, 9.0], [1.0, 3.0, 1.0, 2.0, 0.5]]),
    )
    silenced = silenced_by_arm(batch, STAPO, 0.002, 0)
    assert not silenced[NOTHING].any()
    assert silenced[SILENCED].nonzero().tolist() == [[0, 0], [0, 1], [0, 2]]
    assert silenced["high_entropy"].nonzero().tolist() == [[0, 1], [0, 2], [0, 3]]
    assert int(silenced["random_candidates"][0, :4].sum()) == 3
    assert int(silenced["random_positive"][0].sum()) == 3
    assert int(silenced["rare_negative"][1].sum()) == int(silenced["random"].sum()) == 3
    assert silenced["mirror"].nonzero().tolist() == [[1, 0], [1, 2], [1, 4]]
    assert not silenced["likely_negative"].any()  # There is none.
    drawn_tokens = {
        tuple(silenced_by_arm(batch, STAPO, 0.002, seed)["random_positive"][0].tolist())
        for seed in range(50)
    }
    assert len(drawn_tokens) == 10  # All sets of three of the five tokens with A > 0.
