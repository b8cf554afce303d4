"""The tiny model: its tokenizer, its size, and a start that is what the settings say and reproducible."""

import pytest
import torch

from stapo.suite.models.tiny import build_model, build_tokenizer, supervise, supervised_batches
from stapo.suite.study.sources import TinyModel

SETTINGS = TinyModel(builder="tiny-arithmetic", supervised_steps=3, supervised_batch=8)

pytestmark = pytest.mark.rounding


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
