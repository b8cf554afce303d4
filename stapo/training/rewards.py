"""Training rewards with TRL's signature: for correct answers, and a penalty for overlong responses.

No large library is imported here, since `stapo check` uses this module.
"""

import math
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import wraps
from typing import Any

from stapo.study import StudyError
from stapo.study.code import found_path, load, sha256_of
from stapo.study.schema import TrainingSettings
from stapo.training.own_functions import own_function

RIGHT, WRONG = 1.0, -1.0
BOX = r"\boxed{"
TAIL = 100
"""Characters at the end of a response that must contain the box."""
ANSWER_TAIL = 300
"""Characters at the end of a response that must contain the answer line."""
ANSWER = re.compile(r"answer\s*:\s*([^\n]+)", re.IGNORECASE)
NO_ANSWER = "[INVALID]"

Completions = Sequence[str | Sequence[dict[str, str]]]
"""Responses, each as text or as a conversation that ends with it."""
Reward = Callable[..., Sequence[float]]
"""TRL's signature: `completions`, `completion_ids` and the columns of the prompts as keyword arguments."""


def boxed_reward(completions: Completions, answer: Sequence[str], **_: Any) -> list[float]:
    r"""Return +1 if the last \boxed{...} at the end of a response is the answer, else -1.

    The content is compared as a string: no symbolic mathematics in the training reward.

    Source: the strict box of JustRL's and veRL's `math_dapo.py`: the last 100 characters of the last 300.
    """
    found = (box_content(text[-TAIL:]) for text in texts(completions))
    return [RIGHT if one == truth else WRONG for one, truth in zip(found, answer, strict=True)]


def box_content(text: str) -> str | None:
    r"""Return the content of the last \boxed{; None if it is not closed, even if an earlier box is.

    Evaluation is less strict with a truncated response (`stapo.evaluation.grading.last_boxed`).
    """
    start = text.rfind(BOX)
    depth = 0
    for place in range(start, len(text)) if start >= 0 else ():
        depth += (text[place] == "{") - (text[place] == "}")
        if text[place] == "}" and depth == 0:
            return text[start + len(BOX) : place]
    return None


def dapo_reward(completions: Completions, answer: Sequence[str], **_: Any) -> list[float]:
    """Return +1 if the last `Answer: ...` of a response is the answer, both normalised, else -1.

    It is meant for the wrapper of DAPO-Math-17k, which asks for such a line (`wrapper: keep`).

    Source: veRL's `math_dapo.py` as DAPO (arXiv 2503.14476) used it, without a later revision's fallback to
    a box; the normalisation is that of Minerva (arXiv 2206.14858, appendix D.1).
    """
    found = (_last_answer(text[-ANSWER_TAIL:]) for text in texts(completions))
    return [
        RIGHT if normal_answer(one) == normal_answer(truth) else WRONG
        for one, truth in zip(found, answer, strict=True)
    ]


def _last_answer(text: str) -> str:
    lines = ANSWER.findall(text)
    return str(lines[-1]) if lines else NO_ANSWER


REWRITTEN = {
    "an ": "", "a ": "", ".$": "$", r"\$": "", r"\ ": "", " ": "", "mbox": "text",
    r",\text{and}": ",", r"\text{and}": ",", r"\text{m}": r"\text{}",
}  # fmt: skip
"""Text -> its replacement, applied in this order."""
REMOVED = (
    "square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", r"\ldots", "sue",
    "points", "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals",
    "edges", "students", "childrentickets", "multiples", r"\text{s}", r"\text{.}", "\\text{\ns}",
    r"\text{}^2", r"\text{}^3", "\\text{\n}", r"\text{}", r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;",
    r",\!", "{,}", '"', r"\dots",
)  # fmt: skip
"""Units and marks without meaning for the comparison, removed in this order."""
UNWRAPPED = (
    (re.compile(r"[^$\n]*\$([^$\n]*)\$.*"), r"$\1$"),
    (re.compile(r"\\text\{(.*?)\}"), r"\1"),
    (re.compile(r"\\textbf\{(.*?)\}"), r"\1"),
    (re.compile(r"\\overline\{(.*?)\}"), r"\1"),
    (re.compile(r"\\boxed\{(.*)\}"), r"\1"),
    (re.compile(r"frac([^{])(.)"), r"frac{\1}{\2}"),
    (re.compile(r"sqrt([^{])"), r"sqrt{\1}"),
)
"""Patterns that remove the text around mathematics, and add missing braces to fractions and roots."""


def normal_answer(answer: str) -> str:
    """Return the normalised answer: the text after the last `=`, without units and marks."""
    answer = answer.rpartition("=")[2]
    for old, new in REWRITTEN.items():
        answer = answer.replace(old, new)
    for old in REMOVED:
        answer = answer.replace(old, "")
    for pattern, new in UNWRAPPED:
        answer = pattern.sub(new, answer)
    answer = answer.replace("$", "")
    digits = answer.replace(",", "")
    return digits if digits.isdigit() else answer.strip()


def texts(completions: Completions) -> list[str]:
    """Return the responses as text."""
    return [one if isinstance(one, str) else one[-1]["content"] for one in completions]


BUILT_IN: dict[str, Reward] = {"boxed": boxed_reward, "dapo": dapo_reward}


def reward_functions(
    training: TrainingSettings, tokenizer: Any, end_token_ids: Sequence[int]
) -> list[Reward]:
    """Return the reward functions of a training, with that for overlong responses; TRL adds their values.

    Raises:
        StudyError: there is no such function, or its file has another checksum.
    """
    function = BUILT_IN.get(training.reward) or own_reward(training)
    rewards = [_of_texts_before_the_end(function, tokenizer, end_token_ids)]
    if training.overlong_buffer_tokens:
        from trl.rewards import get_soft_overlong_punishment

        limit, buffer = training.max_response_tokens, training.overlong_buffer_tokens
        rewards.append(get_soft_overlong_punishment(limit, buffer))
    return rewards


def _of_texts_before_the_end(function: Reward, tokenizer: Any, ends: Sequence[int]) -> Reward:
    """Return a reward that reads the same text as evaluation: the response without its end token.

    TRL decodes all tokens of a response except special ones, and an end token need not be special.
    """
    shown = {one for one in ends if tokenizer.decode([one], skip_special_tokens=True)}

    @wraps(function)
    def reward(
        completions: Completions, completion_ids: Sequence[Sequence[int]], **columns: Any
    ) -> list[float]:
        read = list(completions)
        for row, ids in enumerate(completion_ids):
            if len(ids) and ids[-1] in shown:
                text = tokenizer.decode(ids[:-1], skip_special_tokens=True)
                one = completions[row]
                read[row] = text if isinstance(one, str) else [{**one[-1], "content": text}]
        found = list(function(completions=read, completion_ids=completion_ids, **columns))
        if len(found) != len(read) or not all(map(math.isfinite, found)):
            about = f"expected {len(read)} finite numbers, found {len(found)}: {str(found)[:60]}"
            raise ValueError(f"training.reward: {about}; fix the function")
        return found

    return reward


def own_reward(training: TrainingSettings) -> Reward:
    """Return the user's reward function that a study names.

    Raises:
        StudyError: there is no such function, or its file has another checksum than in the study.
    """
    if fault := reward_fault(training):
        raise StudyError([fault])
    reference = training.reward
    path = found_path(reference)
    try:
        function: Reward = load(reference, training.reward_sha256 or "")
    except StudyError as error:
        raise StudyError([f"training.reward: {line}" for line in error.errors]) from error

    @wraps(function)
    def reward(**columns: Any) -> list[float]:
        # Copies: a function that changes its arguments must not change what the trainer reads later.
        own = {k: deepcopy(v) if isinstance(v, list) else v for k, v in columns.items()}
        with own_function(reference, path):
            return [math.nan if one is None else float(one) for one in function(**own)]

    return reward


def reward_fault(training: TrainingSettings) -> str | None:
    """Return why the reward of a training cannot be used on this machine, None if it can; runs no code.

    The checksum covers only the file of the function: no imported modules and no package versions.
    """
    if training.reward in BUILT_IN:
        return None
    path = found_path(training.reward)
    try:
        found = sha256_of(path)
    except StudyError as error:
        return f"training.reward: {error.errors[0]}; put the file there"
    if found != training.reward_sha256:
        about = f"expected {training.reward_sha256}, found {found} ({path})"
        return f"training.reward_sha256: {about}; if this file is intended, write its SHA-256 into the study"
    return None


def reward_doubt(training: TrainingSettings) -> str | None:
    """Return why a reward may not be the intended one, None if there is no reason for doubt."""
    if training.reward == "dapo" and BOX in training.instruction:
        about = 'dapo reads the line "Answer: ...", but training.instruction asks for a box'
        return f"training.reward: {about}: nearly every response would get -1; change one of them"
    return None
