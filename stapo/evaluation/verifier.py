"""A model judges the answers that the rules reject; off unless a study names one.

Only responses that the rule grader rejects are asked about, at temperature 0, and exactly "A" makes one
correct: the verifier never turns a correct response into a wrong one. Both verdicts are kept. It reads the
bare question, in the wording that lies beside its weights, or in that of this module.

Source: STAPO, evaluation protocol (CompassVerifier-3B).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stapo.evaluation.engines import engine
from stapo.evaluation.sampling import Request, Sampling
from stapo.evaluation.scores import Judgement, Question
from stapo.files import read_json
from stapo.models.loading import load_tokenizer
from stapo.paths import VERIFIER_TEMPLATE
from stapo.provenance import require_whole
from stapo.records.verdicts import Opinion
from stapo.study import StudyError
from stapo.study.schema import EngineSettings, Verifier

MEANING: dict[str, Opinion] = {"A": "accepted", "B": "rejected", "C": "invalid"}
PROMPT = """\
You check whether a candidate's final answer to a problem agrees with the reference answer.
Do not solve the problem; the reference answer is right. Only the final answer counts, in whatever form it
is written. Reply with one letter: A if it agrees, B if it does not, C if the response is cut off, repeats
itself or has no final answer.

Problem:
{question}

Reference answer:
{gold_answer}

Candidate's response:
{llm_response}

Letter:"""
PRIVATE_USE = range(0xF0000, 0xFFFFE)
"""Characters that mean nothing to anybody; more than a response has tokens, so that some are left."""
BATCH_TOKENS = 2**16
"""Of a batch of Transformers, padded: a batch of full contexts would need more memory than a GPU has."""


@dataclass(frozen=True)
class JudgeModel:
    """A model that judges what the rules reject, and what runs it."""

    path: Path
    """Directory of the model."""
    settings: Verifier
    backend: str = "hf"
    engine: EngineSettings = field(default_factory=EngineSettings)


def judge(by: JudgeModel, questions: Sequence[Question]) -> list[Judgement]:
    """Return the judgement of every question.

    Args:
        by: any causal language model, its limits and what runs it.
        questions: rejected responses.

    Raises:
        DamagedFileError: the verifier is not what was published.
        StudyError: its template is not there.
        ValueError: a problem and its reference answer alone are too long.
    """
    if not questions:
        return []
    require_whole(by.path)
    tokenizer, template = load_tokenizer(by.path), _template(by)
    limit = by.settings.max_prompt_tokens
    prompts = [_prompt(tokenizer, template, question, limit) for question in questions]
    requests = [Request(i, 0, 0, tuple(ids)) for i, (ids, _) in enumerate(prompts)]
    sampling = Sampling(
        temperature=0.0,
        top_p=1.0,
        top_k=0,
        max_response_tokens=by.settings.max_response_tokens,
        eos_token_ids=(tokenizer.eos_token_id,),
    )
    # One replica: a score job has one GPU.
    alone = by.engine.model_copy(update={"data_parallel": 1, "vllm_tensor_parallel": 1})
    texts: dict[int, str] = {}
    with engine(by.backend, by.path, sampling, alone) as answer:
        for part, responses in answer(_batches(requests, by)):
            for request, response in zip(part, responses, strict=True):
                texts[request.problem] = response.text
    return [
        Judgement(MEANING.get(texts[i].strip(), "invalid"), cut)
        for i, (_, cut) in enumerate(prompts)
    ]


def _template(by: JudgeModel) -> str:
    """Return the wording of the prompt."""
    if by.settings.template == "own":
        return PROMPT
    path = by.path / VERIFIER_TEMPLATE
    try:
        found = read_json(path)
    except FileNotFoundError:
        found = {}
    if {k: v for k, v in found.items() if k != "text"} != by.settings.template.model_dump():
        raise StudyError(
            [
                f"{path}: missing, or another than the study's; remove {by.path} and run snakemake again"
            ]
        )
    text: str = found["text"]
    return text


def _batches(requests: list[Request], by: JudgeModel) -> Iterator[list[Request]]:
    """Yield the prompts in batches, long ones together; vLLM makes batches of its own."""
    if by.backend == "vllm":
        yield requests
        return
    batch: list[Request] = []
    for request in sorted(requests, key=lambda r: len(r.prompt_ids)):
        padded = (len(batch) + 1) * len(request.prompt_ids)
        if batch and (len(batch) == by.settings.batch_size or padded > BATCH_TOKENS):
            yield batch
            batch = []
        batch.append(request)
    yield batch


def _prompt(
    tokenizer: Any, template: str, question: Question, limit: int
) -> tuple[list[int], bool]:
    """Return the ids of a prompt; one that is too long loses the front of the response.

    Raises:
        ValueError: problem and reference answer alone do not fit.
    """
    ids = _ids(tokenizer, template, question, question.response)
    if len(ids) <= limit:
        return ids, False
    response = tokenizer.encode(
        question.response, add_special_tokens=False, split_special_tokens=True
    )
    keep = len(response) - (len(ids) - limit)
    while keep > 0:
        # Cutting changes how the rest is split into tokens: by a few, so a few rounds at most.
        ids = _ids(tokenizer, template, question, tokenizer.decode(response[-keep:]))
        if len(ids) <= limit:
            return ids, True
        keep -= len(ids) - limit
    raise ValueError(
        f"verifier.max_prompt_tokens: {limit} do not hold problem and reference answer; allow more"
    )


def _ids(tokenizer: Any, template: str, question: Question, response: str) -> list[int]:
    """Return the ids of a prompt, whose only special tokens are those of the chat template."""
    # One pass over the template: braces in a response are text.
    text = template.format(
        question=question.question, gold_answer=question.gold, llm_response=response
    )
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
