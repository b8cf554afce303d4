"""The tiny model: its tokenizer, its size, and a start that is what the settings say and reproducible."""

import pytest
import torch

from stapo.models.arithmetic import VOCABULARY
from stapo.models.tiny import IGNORED, build_model, build_tokenizer, supervise, supervised_batches
from stapo.study.sources import TinyModel

SETTINGS = TinyModel(builder="tiny-arithmetic", supervised_steps=3, supervised_batch=8)

pytestmark = pytest.mark.rounding


def batch(**settings: object) -> list[tuple[str, list[int]]]:
    """Return the questions, and the tokens of their solutions, of one batch of 256."""
    tokenizer = build_tokenizer()
    changed = SETTINGS.model_copy(update={"supervised_batch": 256, **settings})
    ids, labels = next(supervised_batches(tokenizer, changed))
    found = []
    for row, label in zip(ids, labels, strict=True):
        learned = label != IGNORED
        assert row[learned].equal(label[learned])
        found.append((tokenizer.decode(row[: int(learned.nonzero()[0])]), row[learned].tolist()))
    return found


def test_a_question_is_the_same_alone_and_through_the_chat_template():
    tokenizer = build_tokenizer()
    chat = [{"role": "user", "content": "chain:1+2*3?"}]
    asked = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)
    assert asked["input_ids"] == tokenizer.encode("chain:1+2*3?")
    ids = [tokenizer.encode(token)[0] for token in VOCABULARY[2:]]
    assert ids == list(range(2, len(VOCABULARY)))


def test_the_start_lowers_the_loss_and_repeats_itself():
    tokenizer, weights = build_tokenizer(), []
    other = SETTINGS.model_copy(update={"supervised_batch": 64, "seed": 7})
    ids, labels = next(supervised_batches(tokenizer, other))
    for _ in range(2):
        model = build_model(SETTINGS)
        before = model(input_ids=ids, labels=labels).loss.item()
        supervise(model, tokenizer, SETTINGS)
        assert model(input_ids=ids, labels=labels).loss.item() < before
        weights.append(torch.cat([p.flatten() for p in model.parameters()]))
    assert torch.equal(*weights)
    assert 250_000 <= len(weights[0]) <= 500_000
