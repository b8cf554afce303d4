"""The tiny model: its tokenizer is lossless, its size as promised, its start reproducible."""

from itertools import islice
from random import Random

import pytest
import torch

from stapo.models.arithmetic import VOCABULARY, sloppy_solution, training_problems
from stapo.models.tiny import IGNORED, build_model, build_tokenizer, supervise, supervised_batches
from stapo.schema import TinyModel

SETTINGS = TinyModel(builder="tiny-arithmetic", supervised_steps=3, supervised_batch=8)

pytestmark = pytest.mark.rounding


def test_every_text_of_the_world_survives_the_tokenizer():
    tokenizer, rng = build_tokenizer(), Random(0)
    for problem in islice(training_problems(0), 500):
        for text in (problem.question, sloppy_solution(problem, rng)):
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
    ids, labels = next(supervised_batches(tokenizer, 16, 0))
    for row, label in zip(ids, labels, strict=True):
        learned = label != IGNORED
        assert row[learned].tolist() == label[learned].tolist()
        assert label[learned][-1] == tokenizer.eos_token_id
        assert tokenizer.decode(row[: int(learned.nonzero()[0])]).endswith("?")


def test_the_start_lowers_the_loss_and_repeats_itself():
    tokenizer = build_tokenizer()
    ids, labels = next(supervised_batches(tokenizer, 64, 7))
    weights = []
    for _ in range(2):
        model = build_model(SETTINGS)
        before = model(input_ids=ids, labels=labels).loss.item()
        supervise(model, tokenizer, SETTINGS)
        assert model(input_ids=ids, labels=labels).loss.item() < before
        weights.append(torch.cat([p.flatten() for p in model.parameters()]))
    assert torch.equal(*weights)
