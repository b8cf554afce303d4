"""The memory model against peaks of resident memory that were measured, and what it advises."""

import pytest

from stapo.suite.models.shapes import Shape
from stapo.suite.operations import memory
from stapo.suite.study import merge, parse_study

SMOLLM2 = Shape(30, 576, 9, 3, 64, 1536, True, 49_152)
"""135 million parameters."""


@pytest.fixture
def study(raw_study, monkeypatch):
    """As it was measured: prompts of about 60 tokens, all responses of 32."""
    monkeypatch.setattr(memory, "shape_of", lambda model: SMOLLM2)

    def of(prompts, tokens, batch_size=64):
        sizes = {"prompts_per_batch": prompts, "prompts_per_mini_batch": prompts, "group_size": 8}
        lengths = {"max_prompt_tokens": 64, "max_response_tokens": 32}
        change = {"training": {**sizes, **lengths, "micro_batch_tokens": tokens}}
        return parse_study(merge(raw_study, {**change, "evaluation": {"batch_size": batch_size}}))

    return of


@pytest.mark.parametrize(
    # The second was measured in a first update, before Adam has moments.
    ("prompts", "tokens", "peak"),
    [(8, 1024, 5.95e9), (6, 4096, 12.42e9 + 8 * SMOLLM2.parameters)],
)
def test_measured_trainings_are_met(study, prompts, tokens, peak):
    found = memory.training_bytes(study(prompts, tokens), "tiny", "stapo")
    assert found == pytest.approx(peak, rel=0.1)


def test_a_job_that_does_not_fit_is_named_with_a_setting_that_fits(study, monkeypatch):
    large = study(64, 8192, batch_size=20_000)
    monkeypatch.setattr(memory, "machine_bytes", lambda: 8e9)
    train, generate = memory.too_large(large)
    assert train.startswith("train tiny: a job needs about ")
    for line, section, name in (
        (train, "training", "micro_batch_tokens"),
        (generate, "evaluation", "batch_size"),
    ):
        assert f"this machine has 8.0 for jobs; set {section}.{name}: " in line
        fitting = {name: int(line.rpartition(" ")[2])}
        for factor, fits in ((1, True), (2, False)):
            part = getattr(large, section).model_copy(update={name: factor * fitting[name]})
            changed = large.model_copy(update={section: part})
            lines = [one for one in memory.too_large(changed) if one.split(":")[0] in line]
            assert (not lines) == fits
    monkeypatch.setattr(memory, "machine_bytes", lambda: 2e9)
    assert "; choose a smaller model" in next(memory.too_large(large))
    monkeypatch.setattr(memory, "machine_bytes", lambda: 1e12)
    assert not [*memory.too_large(large)]
