"""A model judges the answers that the rules reject; off unless a study names one.

Only responses that the rule grader rejects are asked about, at temperature 0, and exactly "A" makes one
correct: the verifier never turns a correct response into a wrong one. Both verdicts are kept.

Source: STAPO, evaluation protocol (CompassVerifier-3B). The wording of the prompt is ours.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import GenerationConfig

from stapo.models.loading import load_model, load_tokenizer
from stapo.schema import Verifier

VerifierVerdict = Literal["accepted", "rejected", "invalid", "not_asked"]
MEANING: dict[str, VerifierVerdict] = {"A": "accepted", "B": "rejected", "C": "invalid"}
PROMPT = """\
You check whether a candidate's final answer to a problem agrees with the reference answer.
Do not solve the problem; the reference answer is right. Only the final answer counts, in whatever form it
is written. Reply with one letter: A if it agrees, B if it does not, C if the response is cut off, repeats
itself or has no final answer.

Problem:
{question}

Reference answer:
{gold}

Candidate's response:
{response}

Letter:"""
PRIVATE_USE = range(0xE000, 0xF900)
"""Characters that mean nothing to anybody."""


@dataclass(frozen=True)
class Judgement:
    """What the verifier said of one response."""

    verdict: VerifierVerdict
    cut: bool
    """Whether the response was too long and lost its beginning."""


@dataclass(frozen=True)
class Question:
    """A rejected response with what it answers; all three are text, hostile in `response`."""

    question: str
    gold: str
    response: str


def judge(path: Path, questions: Sequence[Question], settings: Verifier) -> list[Judgement]:
    """Return the judgement of every question.

    Args:
        path: directory of the verifier, any causal language model.
        questions: rejected responses.
        settings: batch size and limits.
    """
    tokenizer = load_tokenizer(path, padding_side="left")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = load_model(path, dtype).to(device).eval()
    prompts = [_prompt(tokenizer, question, settings.max_prompt_tokens) for question in questions]
    found = []
    for start in range(0, len(prompts), settings.batch_size):
        batch = prompts[start : start + settings.batch_size]
        texts = _greedy(model, tokenizer, [ids for ids, _ in batch], settings.max_response_tokens)
        found += [
            Judgement(MEANING.get(text.strip(), "invalid"), cut)
            for text, (_, cut) in zip(texts, batch, strict=True)
        ]
    return found


def _prompt(tokenizer: Any, question: Question, limit: int) -> tuple[list[int], bool]:
    """Return the ids of a prompt; one that is too long loses the front of the response.

    Raises:
        ValueError: problem and reference answer alone do not fit.
    """
    ids = _ids(tokenizer, question, question.response)
    if len(ids) <= limit:
        return ids, False
    response = tokenizer.encode(
        question.response, add_special_tokens=False, split_special_tokens=True
    )
    keep = len(response) - (len(ids) - limit)
    while keep > 0:
        # Cutting changes how the rest is split into tokens: by a few, so a few rounds at most.
        ids = _ids(tokenizer, question, tokenizer.decode(response[-keep:]))
        if len(ids) <= limit:
            return ids, True
        keep -= len(ids) - limit
    raise ValueError(
        f"verifier.max_prompt_tokens: {limit} do not hold problem and reference answer; allow more"
    )


def _ids(tokenizer: Any, question: Question, response: str) -> list[int]:
    """Return the ids of a prompt, whose only special tokens are those of the chat template."""
    # One pass over the template: braces in a response are text.
    text = PROMPT.format(question=question.question, gold=question.gold, response=response)
    text, hidden = _hide_special(tokenizer, text)
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
        )
    ids: list[int] = []
    for part in re.split(f"([{''.join(hidden)}])", text) if hidden else [text]:
        plain = hidden.get(part)
        ids += tokenizer.encode(
            plain or part, add_special_tokens=False, split_special_tokens=plain is not None
        )
    return ids


def _hide_special(tokenizer: Any, text: str) -> tuple[str, dict[str, str]]:
    """Return text with a character that is not in it for each special token that is written out in it.

    Such a token would end the turn or begin another. What has none is encoded in one piece, as ever.
    """
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    found = sorted((s for s in special | {*tokenizer.all_special_tokens} if s in text), key=len)
    unused = (chr(code) for code in PRIVATE_USE if chr(code) not in text)
    hidden = dict(zip(unused, reversed(found), strict=False))
    for mark, token in hidden.items():
        text = text.replace(token, mark)
    return text, hidden


def _greedy(model: Any, tokenizer: Any, prompts: list[list[int]], limit: int) -> list[str]:
    longest = max(len(ids) for ids in prompts)
    filler = (
        tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    )
    ids = torch.tensor([[filler] * (longest - len(p)) + p for p in prompts])
    attended = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    settings = GenerationConfig(
        do_sample=False,
        max_new_tokens=limit,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=filler,
    )
    model.generation_config = settings
    with torch.inference_mode():
        output = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=attended.to(model.device),
            generation_config=settings,
        )
    texts: list[str] = tokenizer.batch_decode(output[:, longest:], skip_special_tokens=True)
    return texts
