"""The counting of FLOPs against its closed form, and micro-batches that compute nothing twice."""

import pytest
import torch
from counted_flops import CAUSAL, Coefficients, coefficients, counted, parts_of

from stapo.models.shapes import Shape
from stapo.training.minibatch import micro_batches

SMALL = Shape(3, 64, 4, 2, 16, 128, True, 256)
UNIT = Coefficients(token=1.0, square=0.0, scored=0.0)


def matrices(shape: Shape) -> int:
    """Weights of one layer that take part in products: all but two norms."""
    return shape.layer - 2 * shape.hidden


def test_a_forward_pass_is_two_flops_per_weight_and_four_per_pair_of_positions():
    found = coefficients(SMALL, gradient=False)
    assert found.token == pytest.approx(3 * 2 * matrices(SMALL))
    assert found.square == pytest.approx(3 * 4 * 4 * 16)
    # The angles of the rotation, once for all layers, are counted with the head.
    assert found.scored == pytest.approx(2 * 256 * 64 + 16, rel=1e-4)
    whole = found.token * 100 + found.square * 100**2 + found.scored * 99
    assert counted(SMALL, 100, gradient=False) == pytest.approx(whole)


def test_an_update_is_four_forward_passes_but_for_attention():
    """Forward, recomputation, and twice as much backward; attention's backward pass has five products.

    The last product of a layer is not computed again: nothing of the backward pass reads its result.
    """
    forward, update = coefficients(SMALL, gradient=False), coefficients(SMALL, gradient=True)
    assert update.token == pytest.approx(4 * forward.token - 3 * 2 * 64 * 128)
    assert update.scored == pytest.approx(4 * forward.scored, rel=0.01)
    assert update.square == pytest.approx((1 + 1 + 5 / 2) * forward.square)


def test_padding_is_counted_with_its_positions_and_without_the_half_of_causal_attention():
    prompts, responses = torch.tensor([1, 1]), torch.tensor([9, 3])
    square = Coefficients(token=0.0, square=1.0, scored=0.0)
    assert UNIT.packed(prompts, responses) == 14
    assert UNIT.padded(prompts, responses) == 20
    assert square.packed(prompts, responses) == CAUSAL * (10**2 + 4**2)
    assert square.padded(prompts, responses) == 2 * 10**2
    assert square.padded(prompts[:1], responses[:1]) == CAUSAL * 10**2
    assert UNIT.padded(prompts, responses, width=16) == 32


def test_packed_micro_batches_compute_each_token_once_and_an_empty_one_the_shortest_sequence():
    prompts, responses = torch.tensor([2, 3, 1]), torch.tensor([8, 5, 3])
    parts = micro_batches(prompts, responses, torch.arange(3), 12, packed=True)
    assert parts_of(UNIT, prompts, responses, parts, packed=True) == 22
    empty = [*parts, torch.arange(0)]
    assert parts_of(UNIT, prompts, responses, empty, packed=True) == 22 + 4
    assert parts_of(UNIT, prompts, responses, parts, packed=False) == 10 + 2 * 8
