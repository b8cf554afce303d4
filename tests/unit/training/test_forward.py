"""Padded and packed passes through real models: the same log-probs, entropies and gradients."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config
from trl.trainer.utils import add_fused_lm_head

from stapo.models.decoding import has_full_attention
from stapo.training.forward import PACKED, Sequences, packed_forward, padded_forward

pytestmark = pytest.mark.rounding

PROMPTS, RESPONSES = [6, 2, 3, 1, 4], [9, 1, 4, 0, 7]
PROMPT, WIDTH, VOCABULARY = 6, 9, 50
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3,
}  # fmt: skip


def batch() -> Sequences:
    mask = torch.zeros(len(PROMPTS), PROMPT + WIDTH, dtype=torch.long)
    for row, (prompt, response) in enumerate(zip(PROMPTS, RESPONSES, strict=True)):
        mask[row, PROMPT - prompt : PROMPT + response] = 1
    ids = torch.randint(3, VOCABULARY, mask.shape, generator=torch.Generator().manual_seed(0))
    return Sequences(ids * mask, mask, WIDTH)


@pytest.fixture(scope="module", params=[Qwen3Config, Qwen2Config, LlamaConfig])
def model(request) -> Any:
    torch.manual_seed(0)
    found = AutoModelForCausalLM.from_config(request.param(**SHAPE))
    add_fused_lm_head(found, outputs=("log_probs", "entropy"))
    return found.train()


def measured(model: Any, compute: Any, sequences: Sequences) -> tuple[Any, Any, list[Any]]:
    model.zero_grad()
    logps, entropies = compute(model, sequences)
    responses = sequences.mask[:, -sequences.width :].bool()
    slopes = torch.randn(logps.shape, generator=torch.Generator().manual_seed(1))
    logps.masked_fill(~responses, 0.0).mul(slopes).sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    return logps[responses], entropies[responses], gradients


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4], [4, 2], [2], [3], []], ids=str)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_packed_equals_padded(model, rows: list[int], checkpointing: bool):
    sequences = batch().take(torch.tensor(rows, dtype=torch.long))
    model.set_attn_implementation("sdpa")
    expected = measured(model, padded_forward, sequences)
    model.set_attn_implementation(PACKED)
    if checkpointing:
        model.gradient_checkpointing_enable()
    seen: list[int] = []
    hook = model.model.norm.register_forward_hook(lambda _, __, out: seen.append(out.shape[1]))
    found = measured(model, packed_forward, sequences)
    hook.remove()
    assert seen[0] == sequences.mask.sum()  # No padding is computed.
    model.gradient_checkpointing_disable()
    # Single precision; log-probs reach some 10 nats.
    torch.testing.assert_close(found[:2], expected[:2], rtol=1e-5, atol=1e-5)
    largest = max(gradient.abs().max().item() for gradient in expected[2])
    torch.testing.assert_close(found[2], expected[2], rtol=1e-4, atol=1e-5 * largest)
    assert len(expected[0]) == sum(RESPONSES[row] for row in rows or [3])


def test_taken_sequences_are_trimmed_and_none_is_the_shortest():
    sequences = batch()
    taken = sequences.take(torch.tensor([1, 2]))
    assert taken.ids.shape == taken.mask.shape == (2, 3 + 4)
    assert taken.width == 4
    assert taken.mask.sum(dim=1).tolist() == [2 + 1, 3 + 4]
    shortest = sequences.take(torch.tensor([], dtype=torch.long))
    assert shortest.ids.shape == (1, 1 + 1)  # A position for a response without a token.


def test_models_with_windows_cannot_pack():
    windows = Qwen3Config(**SHAPE, use_sliding_window=True, sliding_window=4, max_window_layers=0)
    for config, full in ((Qwen3Config(**SHAPE), True), (windows, False)):
        assert has_full_attention(AutoModelForCausalLM.from_config(config)) == full
