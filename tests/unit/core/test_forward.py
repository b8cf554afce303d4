"""Passes over padded sequences."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from trl.trainer.utils import add_fused_lm_head

from stapo.core.forward import Sequences, padded_forward

WIDTH = 3


def test_padding_does_not_move_the_positions_of_a_model_that_learned_them():
    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 32, "vocab_size": 20}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    add_fused_lm_head(model)
    ids, mask = torch.randint(1, 20, (2, 10 + WIDTH)), torch.ones(2, 10 + WIDTH, dtype=torch.long)
    mask[0, :8] = 0  # A prompt of two tokens beside one of ten.
    sequences = Sequences(ids, mask, WIDTH)
    beside, alone = (
        padded_forward(model, sequences.take(torch.tensor(rows)))[0][0] for rows in ([0, 1], [0])
    )
    # Rounding of single precision.
    assert beside.tolist() == pytest.approx(alone.tolist(), abs=1e-5)
