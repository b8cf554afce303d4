"""The tiny model: its tokenizer is lossless, its size as promised, its start reproducible."""

import re
from itertools import islice
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
import torch

from stapo.models import tiny
from stapo.models.arithmetic import FILLERS, VOCABULARY, sloppy_solution, training_problems
from stapo.models.tiny import IGNORED, build_model, build_tokenizer, supervise, supervised_batches
from stapo.study.sources import TinyModel

SETTINGS = TinyModel(builder="tiny-arithmetic", supervised_steps=3, supervised_batch=8)

pytestmark = pytest.mark.rounding


def test_every_text_of_the_world_survives_the_tokenizer():
    tokenizer, rng = build_tokenizer(), Random(0)
    for problem in islice(training_problems(0), 500):
        for text in (problem.question, sloppy_solution(problem, rng, 0.8)):
            assert tokenizer.decode(tokenizer.encode(text)) == text
    assert [tokenizer.encode(token)[0] for token in VOCABULARY[2:]] == list(
        range(2, len(VOCABULARY))
    )


def test_a_question_is_the_same_alone_and_through_the_chat_template():
    tokenizer = build_tokenizer()
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "chain:1+2*3?"}], add_generation_prompt=True, return_dict=True
    )
    assert chat["input_ids"] == tokenizer.encode("chain:1+2*3?")


def test_the_model_has_a_quarter_to_half_a_million_parameters():
    size = sum(parameter.numel() for parameter in build_model(SETTINGS).parameters())
    assert 250_000 <= size <= 500_000


def test_only_solutions_are_learned_and_they_end():
    tokenizer = build_tokenizer()
    ids, labels = next(
        supervised_batches(tokenizer, SETTINGS.model_copy(update={"supervised_batch": 16}))
    )
    for row, label in zip(ids, labels, strict=True):
        learned = label != IGNORED
        assert row[learned].tolist() == label[learned].tolist()
        assert label[learned][-1] == tokenizer.eos_token_id
        assert tokenizer.decode(row[: int(learned.nonzero()[0])]).endswith("?")


def test_the_start_lowers_the_loss_and_repeats_itself():
    tokenizer = build_tokenizer()
    ids, labels = next(
        supervised_batches(
            tokenizer, SETTINGS.model_copy(update={"supervised_batch": 64, "seed": 7})
        )
    )
    weights = []
    for _ in range(2):
        model = build_model(SETTINGS)
        before = model(input_ids=ids, labels=labels).loss.item()
        supervise(model, tokenizer, SETTINGS)
        assert model(input_ids=ids, labels=labels).loss.item() < before
        weights.append(torch.cat([p.flatten() for p in model.parameters()]))
    assert torch.equal(*weights)


def test_a_longer_world_and_more_slips_are_what_the_settings_say():
    tokenizer = build_tokenizer()
    settings = {"builder": "long-arithmetic", "slip_rate": 1.0, "supervised_batch": 256}
    ids, labels = next(supervised_batches(tokenizer, SETTINGS.model_copy(update=settings)))
    questions = [
        tokenizer.decode(row[: int((label != IGNORED).nonzero()[0])])
        for row, label in zip(ids, labels, strict=True)
    ]
    operations = {len(re.findall(r"[-+*]", text)) for text in questions if "chain" in text}
    assert operations == set(range(4, 9))
    tokens = ids[labels != IGNORED]
    # All but the end of a solution are random: connecting words, 24 of 57, are no longer rare.
    assert (tokens >= VOCABULARY.index(FILLERS[-1])).float().mean() > 0.01


@pytest.mark.parametrize(
    ("rate", "least", "most"), [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.8, 0.7, 0.9)]
)
def test_connecting_words_are_as_frequent_as_the_settings_say(rate, least, most):
    tokenizer = build_tokenizer()
    settings = {"connecting_word_rate": rate, "slip_rate": 0.0, "supervised_batch": 256}
    ids, labels = next(supervised_batches(tokenizer, SETTINGS.model_copy(update=settings)))
    answers = [
        tokenizer.decode(row[label != IGNORED][:-1]) for row, label in zip(ids, labels, strict=True)
    ]
    steps = [
        step for answer in answers if "." in answer for step in answer.split(".")[0].split(";")
    ]
    assert least <= sum(step.startswith(FILLERS) for step in steps) / len(steps) <= most


class Killed(BaseException):
    """Stands for a kill: nothing handles it."""


def supervised(state: Path | None, killed_at: int = 0) -> torch.Tensor:
    """Return the weights after a start of 25 steps, of which a kill may interrupt one."""
    settings = SETTINGS.model_copy(update={"supervised_steps": 25})
    tokenizer, model = build_tokenizer(), build_model(settings)
    clip, calls = torch.nn.utils.clip_grad_norm_, 0

    def count(*args, **named):
        nonlocal calls
        calls += 1
        if calls == killed_at:
            raise Killed
        return clip(*args, **named)

    with patch.object(torch.nn.utils, "clip_grad_norm_", count):
        supervise(model, tokenizer, settings, state)
    return torch.cat([p.flatten() for p in model.parameters()])


def test_a_killed_start_resumes_to_the_same_bits_and_loses_ten_steps_at_most(tmp_path, capsys):
    whole, state = supervised(None), tmp_path / "state"
    for killed_at, after in ((9, None), (18, None), (9, 10)):
        with pytest.raises(Killed):
            supervised(state, killed_at)
        said = capsys.readouterr().out
        assert (f"resuming after step {after} of 25" in said) == (after is not None)
    assert torch.equal(supervised(state), whole)
    assert "resuming after step 10 of 25" in capsys.readouterr().out


def test_a_damaged_or_foreign_state_is_no_start(tmp_path, capsys):
    whole, state = supervised(None), tmp_path / "state"
    supervised(state)
    data = bytearray(state.read_bytes())
    data[-100] ^= 1
    state.write_bytes(data)
    assert torch.equal(supervised(state), whole)
    assert "state: skipped, truncated or corrupt" in capsys.readouterr().out
    other = SETTINGS.model_copy(update={"supervised_steps": 25, "slip_rate": 0.1})
    tokenizer, fresh, model = build_tokenizer(), build_model(other), build_model(other)
    tiny.supervise(fresh, tokenizer, other)
    tiny.supervise(model, tokenizer, other, state)
    assert torch.equal(fresh.lm_head.weight, model.lm_head.weight)
