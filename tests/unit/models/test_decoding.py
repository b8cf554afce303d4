"""Responses are those of Transformers' own loop, however early others in the batch are finished."""

import pytest
import torch
from transformers import GenerationConfig

from stapo.models.decoding import decode
from stapo.models.tiny import build_model
from stapo.study.sources import TinyModel

PAD, END = 0, 1


@pytest.fixture(scope="module")
def model():
    """A model in double precision, in which rounding cannot decide between tokens; it ends often."""
    built = build_model(TinyModel(builder="tiny-arithmetic", supervised_steps=1)).double()
    with torch.no_grad():
        built.model.embed_tokens.weight[END] *= 1.5
    return built.eval()


@pytest.mark.parametrize("drawn", [True, False])
def test_responses_are_those_of_transformers(model, drawn):
    torch.manual_seed(0)
    ids = torch.randint(2, 48, (40, 9))
    attended = (torch.arange(9) >= torch.arange(40).remainder(6).unsqueeze(1)).long()
    config = GenerationConfig(
        do_sample=drawn, top_k=0, max_new_tokens=80, pad_token_id=PAD, eos_token_id=[END, 7]
    )
    batch = {"input_ids": ids.masked_fill(attended == 0, PAD), "attention_mask": attended}
    found = []
    for loop in (None, decode):
        torch.manual_seed(1)
        found.append(model.generate(**batch, generation_config=config, custom_generate=loop))
    assert torch.equal(*found)
    lengths = (found[0][:, 9:] != PAD).sum(dim=1)
    assert lengths.min() < 10 < 70 < lengths.max()  # Rows left the batch, and the cache grew.
    assert model.config._attn_implementation == "sdpa"
