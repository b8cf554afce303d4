"""Training rewards with TRL's signature: for correct answers, and a penalty for overlong responses."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from functools import wraps
from typing import Any

from trl.rewards import get_soft_overlong_punishment

from stapo.suite.answers import READERS, Setting, built_in, is_built_in
from stapo.suite.evaluation.grading import grade_all
from stapo.suite.study.functions import load, own_code
from stapo.suite.study.schema import TrainingSettings

RIGHT, WRONG = 1.0, -1.0

Completions = Sequence[str | Sequence[dict[str, str]]]
"""Responses, each as text or as a conversation that ends with it."""
Reward = Callable[..., Sequence[float]]
"""TRL's signature: `completions`, `completion_ids` and the columns of the prompts as keyword arguments."""


def texts(completions: Completions) -> list[str]:
    """Return the responses as text."""
    return [
        completion if isinstance(completion, str) else completion[-1]["content"]
        for completion in completions
    ]


def answer_reward(setting: Setting) -> Reward:
    """Return the reward of a built-in reader: +1 for a response with the gold answer, -1 for any other.

    What is compared are strings, or numbers: no symbolic mathematics in the training reward. Tasks of
    reasoning-gym and tests of functions judge as in evaluation.
    """
    reader = built_in(setting)

    def reward(completions: Completions, answer: Sequence[str], **_: Any) -> list[float]:
        golds = map(reader.gold, answer)
        pairs = [*zip(golds, texts(completions), strict=True)]
        if reader.verifier != "math_verify":
            return [RIGHT if grade.correct else WRONG for grade in grade_all(pairs, reader)]
        return [RIGHT if reader.is_right(gold, text) else WRONG for gold, text in pairs]

    kind = setting if isinstance(setting, str) else next(iter(setting))
    reward.__name__ = f"{kind}_reward"  # In TRL's logs.
    return reward


BUILT_IN: dict[str, Reward] = {name: answer_reward(name) for name in READERS}
boxed_reward = BUILT_IN["boxed"]
"""The paper's reward, JustRL's."""


def reward_functions(
    training: TrainingSettings, tokenizer: Any, end_token_ids: Sequence[int]
) -> list[Reward]:
    """Return the reward functions of a training, with that for overlong responses; TRL adds their values.

    The first reads the same text as evaluation: a response without its end token. TRL decodes all tokens of
    a response except special ones, and an end token need not be special.

    Raises:
        StudyError: there is no such function, or its file has another checksum than in the study.
    """
    setting, reference = training.reward, str(training.reward)
    user_defined = not is_built_in(setting)
    if user_defined:
        function = load(reference, training.reward_sha256 or "")
    else:
        function = BUILT_IN[setting] if isinstance(setting, str) else answer_reward(setting)
    shown = {end for end in end_token_ids if tokenizer.decode([end], skip_special_tokens=True)}

    @wraps(function)
    def reward(
        completions: Completions, completion_ids: Sequence[Sequence[int]], **columns: Any
    ) -> list[float]:
        given = {"completions": list(completions), "completion_ids": completion_ids, **columns}
        for row, ids in enumerate(completion_ids):
            if len(ids) and ids[-1] in shown:
                text = tokenizer.decode(ids[:-1], skip_special_tokens=True)
                completion = completions[row]
                given["completions"][row] = (
                    text if isinstance(completion, str) else [{**completion[-1], "content": text}]
                )
        if user_defined:
            # Copies: a function that changes its arguments must not change what the trainer reads later.
            # TRL's functions for logs are methods of the trainer, of which there is no copy.
            given = {k: value if callable(value) else deepcopy(value) for k, value in given.items()}
        with own_code(reference) if user_defined else nullcontext():
            values = function(**given)
            rewards = [math.nan if value is None else float(value) for value in values]
        if len(rewards) != len(completions) or not all(map(math.isfinite, rewards)):
            cause = f"expected {len(completions)} finite numbers, found {len(rewards)}: {str(rewards)[:60]}"
            raise ValueError(f"training.reward: {cause}; fix the function")
        return rewards

    if not training.overlong_buffer_tokens:
        return [reward]
    limit, buffer = training.max_response_tokens, training.overlong_buffer_tokens
    return [reward, get_soft_overlong_punishment(limit, buffer)]
