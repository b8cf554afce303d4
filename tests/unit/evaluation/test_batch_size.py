"""The rule for batch sizes: powers of two by the memory that full responses take."""

import json
from types import SimpleNamespace

import pytest
import torch

from stapo.evaluation.batch_size import MOST, PROMPT_TOKENS, UNKNOWN, default_batch_size

QWEN = {
    "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "num_hidden_layers": 28, "vocab_size": 151_936,
}  # fmt: skip
TINY = {"hidden_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 48}


def model(path, config, stored=0):
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    with (path / "model.safetensors").open("wb") as stream:
        stream.truncate(stored)  # A sparse file.
    return path


def gpu(monkeypatch, gib):
    properties = SimpleNamespace(total_memory=gib * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


def test_full_responses_fit_into_half_of_what_the_weights_leave(tmp_path, monkeypatch):
    path = model(tmp_path / "qwen", QWEN, 4 * 2**30)
    gpu(monkeypatch, 80)
    # Of 1.7B, a token takes 2 x 28 x 8 x 128 values of 2 bytes, a response 2.5 GB: 16 of them 39 GB.
    assert default_batch_size([path], 20480) == 16
    assert default_batch_size([path], 2 * (20480 + PROMPT_TOKENS) - PROMPT_TOKENS) == 8
    assert default_batch_size([path], 16) == 256
    gpu(monkeypatch, 6)
    assert default_batch_size([path], 20480) == 1
    gpu(monkeypatch, 3)
    assert default_batch_size([path], 20480) == 1


def test_a_cpu_computes_in_single_precision(tmp_path, monkeypatch):
    path = model(tmp_path / "qwen", QWEN, 4 * 2**30)
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 79 * 2**18}.get)
    assert default_batch_size([path], 20480) == 4  # Twice the bytes, also of the weights.


@pytest.mark.parametrize("config", [{}, {**TINY, "num_attention_heads": None}, [1]])
def test_a_model_of_unknown_shape(tmp_path, config):
    assert default_batch_size([model(tmp_path / "m", config)], 16) == UNKNOWN


def test_the_smallest_of_several_and_a_maximum(tmp_path, monkeypatch):
    gpu(monkeypatch, 80)
    tiny, qwen = model(tmp_path / "tiny", TINY), model(tmp_path / "qwen", QWEN, 4 * 2**30)
    assert default_batch_size([tiny], 20480) == MOST
    assert default_batch_size([tiny, qwen], 20480) == 16
