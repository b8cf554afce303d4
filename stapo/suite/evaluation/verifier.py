"""Verifier: a model that judges the answers that the rules reject; off unless a study names one.

It judges only responses that the rule-based grader rejects, at temperature 0, and only the reply "A" makes
one correct: the verifier never turns a correct response into a wrong one. Both verdicts are kept. It reads
the question without instruction, in the prompt template of CompassVerifier beside its weights.

Source: STAPO, evaluation protocol (CompassVerifier-3B).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stapo.core.checksums import require_whole
from stapo.core.files import read_json
from stapo.suite.evaluation.engines import Request, Sampling, load_engine
from stapo.suite.evaluation.scores import Judgement, Question
from stapo.suite.models.loading import load_tokenizer
from stapo.suite.paths import VERIFIER_TEMPLATE
from stapo.suite.records.scores import Opinion
from stapo.suite.study import StudyError
from stapo.suite.study.schema import EngineSettings, Verifier

MEANING: dict[str, Opinion] = {"A": "accepted", "B": "rejected", "C": "invalid"}
PLACE = "HERE"
"""Of the text in the chat template."""


def judge(
    model: Path,
    settings: Verifier,
    questions: Sequence[Question],
    backend: str = "hf",
    engine: EngineSettings | None = None,
) -> list[Judgement]:
    """Return the judgement of every question by a model in a directory."""
    if not questions:
        return []
    require_whole(model)
    tokenizer, template = load_tokenizer(model), _template(model)
    prompts = [
        _prompt(tokenizer, template, question, settings.max_prompt_tokens) for question in questions
    ]
    requests = [Request(i, 0, 0, tuple(ids)) for i, (ids, _) in enumerate(prompts)]
    greedy = Sampling(0.0, 1.0, 0, settings.max_response_tokens, (tokenizer.eos_token_id,))
    # A score job has one GPU.
    alone = (engine or EngineSettings()).model_copy(update={"vllm_tensor_parallel": 1})
    answer = load_engine(backend, model, greedy, alone)
    # Prompts of similar length in a batch, from the shortest; vLLM forms its own batches.
    requests.sort(key=lambda request: len(request.prompt_ids))
    size = settings.batch_size if backend == "hf" else len(requests)
    replies = {
        request.problem: told.text
        for start in range(0, len(requests), size)
        for request, told in answer(requests[start : start + size])
    }
    return [
        Judgement(MEANING.get(replies[i].strip(), "invalid"), cut)
        for i, (_, cut) in enumerate(prompts)
    ]


def _template(model: Path) -> str:
    path = model / VERIFIER_TEMPLATE
    record = read_json(path) if path.exists() else {}
    text: str = record.pop("text", "")
    if record != Verifier.template:
        remedy = f"remove {model} and run snakemake again"
        raise StudyError([f"{path}: missing, or another template; {remedy}"])
    return text


def _prompt(
    tokenizer: Any, template: str, question: Question, limit: int
) -> tuple[list[int], bool]:
    """Return the ids of a prompt, and whether the beginning of a long response was removed."""
    ids = _ids(tokenizer, template, question, question.response)
    if len(ids) <= limit:
        return ids, False
    response = tokenizer.encode(
        question.response, add_special_tokens=False, split_special_tokens=True
    )
    keep = len(response)
    while (keep := keep - (len(ids) - limit)) > 0:
        # Removing text changes the tokens of the rest slightly, so a few rounds may be needed.
        ids = _ids(tokenizer, template, question, tokenizer.decode(response[-keep:]))
        if len(ids) <= limit:
            return ids, True
    cause = f"{limit} is too small for problem and reference answer; increase it"
    raise ValueError(f"verifier.max_prompt_tokens: {cause}")


def _ids(tokenizer: Any, template: str, question: Question, response: str) -> list[int]:
    """Return the ids of a prompt; in question or response, a token that could end a turn is text."""
    # All fields are filled in one call, so that braces in a response stay text.
    text = template.format(
        question=question.question, gold_answer=question.gold, llm_response=response
    )
    chat = [{"role": "user", "content": PLACE}]
    filled = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    before, _, after = filled.partition(PLACE)
    ids: list[int] = []
    for part, is_ours in ((before, True), (text, False), (after, True)):
        ids += tokenizer.encode(part, add_special_tokens=False, split_special_tokens=not is_ours)
    return ids
