"""Rollouts with colocated vLLM: every response is sampled with a seed of its own."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from stapo.files import fingerprint


def response_seed(seed: int, step: int, row: int) -> int:
    """Return the 63-bit seed of a response.

    Args:
        seed: seed of the training.
        step: optimiser steps before the rollout.
        row: index of the response in the rollout of all ranks.
    """
    return int(fingerprint([seed, step, row]), 16) >> 1


def seeded(
    generate: Callable[..., Any], seeds: Callable[[int], Sequence[int]]
) -> Callable[..., Any]:
    """Return vLLM's `LLM.generate` with `SamplingParams` for every prompt, which have a seed each.

    Otherwise vLLM samples from the random state of the process. TRL passes the rank as the seed of the
    engine, so responses would not depend on the seed of the training, and after resuming they would differ.

    Args:
        generate: method of an engine.
        seeds: returns the seeds for a number of prompts.
    """

    def generate_with_seeds(prompts: Sequence[Any], sampling_params: Any, **named: Any) -> Any:
        own = [copy(sampling_params) for _ in prompts]
        for parameters, seed in zip(own, seeds(len(prompts)), strict=True):
            parameters.seed = seed
        return generate(prompts, sampling_params=own, **named)

    return generate_with_seeds
