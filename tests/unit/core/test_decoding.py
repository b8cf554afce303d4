"""Responses are those of Transformers' own loop, however early others in the batch are finished."""

from functools import partial

import pytest
import torch
from transformers import GenerationConfig

from stapo.core.decoding import _taken_apart, decode
from stapo.core.sampling import Sampler
from stapo.suite.models.tiny import build_model
from stapo.suite.study.sources import TinyModel

PAD, END = 0, 1


@pytest.fixture(scope="module")
def model():
    """A model in double precision, in which rounding cannot decide between tokens; it ends often."""
    built = build_model(TinyModel(builder="tiny-arithmetic", supervised_steps=1)).double()
    with torch.no_grad():
        built.model.embed_tokens.weight[END] *= 1.5
    return built.eval()


def settings(**changes):
    return GenerationConfig(max_new_tokens=80, pad_token_id=PAD, eos_token_id=[END, 7], **changes)


@pytest.fixture(scope="module")
def batch():
    torch.manual_seed(0)
    ids = torch.randint(2, 48, (40, 9))
    attended = (torch.arange(9) >= torch.arange(40).remainder(6).unsqueeze(1)).long()
    return {"input_ids": ids.masked_fill(attended == 0, PAD), "attention_mask": attended}


@pytest.mark.parametrize("changes", [{}, {"suppress_tokens": [9, 13], "repetition_penalty": 1.2}])
def test_greedy_responses_are_those_of_transformers(model, batch, changes):
    config = settings(do_sample=False, **changes)
    found = [
        model.generate(**batch, generation_config=config, custom_generate=loop)
        for loop in (None, decode)
    ]
    assert torch.equal(*found)
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("changes", [{}, {"top_p": 0.9, "temperature": 0.8}, {"min_p": 0.02}])
def test_a_sampled_response_depends_on_its_own_seed_alone(model, batch, changes):
    config, seeds = settings(do_sample=True, top_k=0, **changes), torch.arange(40)
    together, parts = [], []
    for rows in (seeds, *seeds.split(7)):
        loop = partial(decode, seeds=rows.tolist())
        own = {name: table[rows] for name, table in batch.items()}
        found = model.generate(**own, generation_config=config, custom_generate=loop)[:, 9:]
        (parts if together else together).extend(map(responded, found))
    assert together == parts
    lengths = [*map(len, together)]
    assert min(lengths) < 10 < 70 < max(lengths)  # Rows left the batch, and the cache grew.
    again = model.generate(**batch, generation_config=config, custom_generate=decode)[:, 9:]
    assert [*map(responded, again)] != together


def responded(tokens):
    """Return the tokens of a response without padding."""
    return tokens[: int((tokens != PAD).sum())].tolist()


def test_the_logits_that_are_drawn_from_are_those_of_transformers(model, batch):
    """Also where processors come after the temperature: they see it applied."""
    seen = []
    for changes in ({"temperature": 0.5, "min_p": 0.1, "top_p": 0.9}, {"temperature": 0.5}):
        config = settings(do_sample=True, top_k=0, **changes)
        left, sampler = _taken_apart(model._get_logits_processor(config))
        seen.append(([type(one).__name__ for one in left], sampler))
    warpers = ["TemperatureLogitsWarper", "TopPLogitsWarper", "MinPLogitsWarper"]
    assert seen == [(warpers, Sampler()), ([], Sampler(0.5))]
