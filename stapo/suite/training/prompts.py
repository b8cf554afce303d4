"""Training prompts: generated or loaded, checked against the benchmarks, and ordered."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import ceil, isfinite
from pathlib import Path
from random import Random
from typing import Any

from stapo.core.files import canonical, fingerprint, read_published, write_json, write_jsonl
from stapo.suite import domains
from stapo.suite.answers import Setting
from stapo.suite.hub import data_set
from stapo.suite.models.worlds import training_problems
from stapo.suite.study import StudyError
from stapo.suite.study.files import pinned_rows
from stapo.suite.study.golds import MOST_LEFT_OUT, faulty_golds, summary
from stapo.suite.study.schema import TrainingSettings
from stapo.suite.study.sources import Data, DomainData, FileData, HubData, TinyData
from stapo.suite.text import normalised, plain, shorten, visible

DAPO_PREFIX = (
    "Solve the following math problem step by step. The last line of your response should be of the "
    "form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
DAPO_SUFFIX = '\n\nRemember to put your answer on its own line after "Answer:".'
"""Wrapper of every prompt of DAPO-Math-17k, which our own instruction replaces."""
WANTED = "expected question and answer, or prompt with a user turn and reward_model.ground_truth"
RUN_OF_WORDS = 13
"""Length in words of a common run that counts as contamination, as usual."""


def write_prompts(
    data: Data, path: Path, record: Path | None = None, reward: Setting | None = None
) -> dict[str, Any]:
    """Write the unique prompts to `path` as JSON lines with question and answer, in a fixed order.

    Returns:
        What is also written to `record`: the number of `rows`, of `unique` prompts in them, of those removed
        for `conflicting` answers, of `prompts` written, and their `sha256`; if there are any, also of those
        removed as `unrewarded`, for whose answer no response gets the built-in `reward`; None: not checked.

    Raises:
        StudyError: the prompts cannot be read, or are not those that the study expects.
    """
    rows = [*_hub_rows(data)] if isinstance(data, HubData) else local_rows(data)
    unique = {row["question"]: row["answer"] for row in rows}
    answers: dict[str, set[str]] = {}
    for row in rows:
        answers.setdefault(" ".join(row["question"].split()), set()).add(row["answer"])
    # With conflicting answers the reward would be random; white space makes no other question.
    single = [
        {"question": question, "answer": answer}
        for question, answer in unique.items()
        if len(answers[" ".join(question.split())]) == 1
    ]
    faults = faulty_golds(reward, single, is_rewarded=True) if reward is not None else {}
    records = [record for i, record in enumerate(single) if i not in faults]
    counts = {
        "rows": len(rows),
        "unique": len(unique),
        "conflicting": len(unique) - len(single),
        **({"unrewarded": len(faults)} if faults else {}),
        "prompts": len(records),
        "sha256": checksum(records),
    }
    errors = [] if single else ["data: no prompt with a single answer; choose other data"]
    if len(faults) > MOST_LEFT_OUT * len(single):
        errors.append(f"data: {summary(faults, single)}; change training.reward or the data")
    elif faults:
        print(f"left out: {visible(summary(faults, single))}")  # noqa: T201
    stated = {"unique_prompts": "unique", "sha256": "sha256"} if isinstance(data, HubData) else {}
    for key, name in stated.items():
        if (wanted := getattr(data, key)) not in (None, value := counts[name]):
            remedy = "if this is intended, write the found value into the study"
            errors.append(f"data.{key}: expected {wanted}, found {value}; {remedy}")
    if errors:
        raise StudyError(errors)
    write_jsonl(path, records)
    if record:
        write_json(record, counts)
    return counts


def local_rows(data: DomainData | FileData | TinyData) -> list[dict[str, str]]:
    """Return the rows of training prompts that need no network.

    Raises:
        StudyError: the file changed since the study was read, or there are too few problems.
    """
    if isinstance(data, DomainData):
        try:
            return domains.rows(data.reasoning_gym, data.prompts, is_training=True)
        except ValueError as error:
            raise StudyError([f"data.reasoning_gym: {error}"]) from error
    if isinstance(data, TinyData):
        return [*tiny_prompts(data)]
    return pinned_rows(data.file, data.sha256)


def checksum(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the SHA-256 of the canonical JSON of questions and answers, in order."""
    plain = [[record["question"], record["answer"]] for record in records]
    return hashlib.sha256(canonical(plain).encode()).hexdigest()


def read_prompts(path: Path) -> list[dict[str, Any]]:
    """Return the training prompts of a file.

    Raises:
        StudyError: the file is missing or empty.
        DamagedFileError: a line is truncated or corrupt.
    """
    records = read_published(path, ("question", "answer"))
    if not records:
        raise StudyError([f"{path}: no training prompts; run `stapo run prompts --study STUDY`"])
    return records


def tiny_prompts(data: TinyData) -> Iterator[dict[str, str]]:
    """Yield unique prompts of the tiny arithmetic problems, in a fixed order.

    Raises:
        StudyError: there are too few problems.
    """
    seen: set[str] = set()
    # There are finitely many problems: stop when almost none is new.
    for problem in islice(training_problems(data.seed, data.builder), 50 * data.prompts):
        if problem.question not in seen:
            seen.add(problem.question)
            yield {"question": problem.question, "answer": str(problem.answer)}
            if len(seen) == data.prompts:
                return
    cause = f"there are only about {len(seen)} different training problems; request fewer"
    raise StudyError([f"data.prompts: {cause}"])


def _hub_rows(data: HubData) -> Iterator[dict[str, str]]:
    """Yield question and answer of each row, from columns of these names or those of DAPO-Math-17k.

    Raises:
        StudyError: a row has no question and answer, or lacks the wrapper that is to be removed.
    """
    rows = data_set(data.hub, data.subset, data.revision, data.split)
    for index, row in enumerate(rows):
        try:
            if named := {"question", "answer"} <= row.keys():
                question, answer = row["question"], row["answer"]
            else:
                question, answer = _question(row["prompt"]), row["reward_model"]["ground_truth"]
            if data.wrapper == "strip" and not named:
                if not (question.startswith(DAPO_PREFIX) and question.endswith(DAPO_SUFFIX)):
                    raise ValueError("no wrapper of DAPO-Math-17k; set data.wrapper: keep")
                question = question[len(DAPO_PREFIX) : -len(DAPO_SUFFIX)]
            answer = _answer_text(answer)
            if not question.strip():
                raise TypeError("no text")
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            cause = f"{WANTED}: {error}"
            raise StudyError([f"data: row {index} of {data.hub}: {cause}"]) from error
        yield {"question": question, "answer": answer}


def _question(chat: Sequence[Mapping[str, Any]]) -> str:
    """Return the question of a chat: its only user turn; the study's instruction replaces a system turn."""
    asked = [turn["content"] for turn in chat if turn.get("role", "user") == "user"]
    if len(asked) != 1:
        raise ValueError(f"prompt has {len(asked)} user turns; exactly one is expected")
    if not isinstance(asked[0], str):
        raise ValueError("the user turn of prompt is no text")
    return asked[0]


def _answer_text(value: Any) -> str:
    """Return the text of an answer; as in files it may be a number, but no whole one with a point."""
    if isinstance(value, str):
        return value
    is_fraction = isinstance(value, float) and isfinite(value) and not value.is_integer()
    if type(value) is int or is_fraction:
        return str(value)
    raise TypeError(
        f"the answer {value!r} is neither text nor a number without .0; write it as text"
    )


def chat_rows(
    path: Path, training: TrainingSettings, tokenizer: Any
) -> tuple[list[dict[str, Any]], list[int], int]:
    """Return the prompts of a file that are short enough, as TRL takes them.

    Returns:
        Rows with chat and answer, the line of each in the file, and the number of prompts that are longer.

    Raises:
        StudyError: there are no prompts, or all of them are longer.
    """
    rows, lines, limit = [], [], training.max_prompt_tokens
    records = read_prompts(path)
    for line, record in enumerate(records):
        chat = chat_prompt(record["question"], training.instruction)
        if prompt_tokens(tokenizer, chat) <= limit:
            rows.append({"prompt": chat, "answer": record["answer"]})
            lines.append(line)
    if not rows:
        cause = f"all {len(records)} prompts are longer than {limit} tokens; increase the limit"
        raise StudyError([f"training.max_prompt_tokens: {cause}"])
    return rows, lines, len(records) - len(rows)


def prompt_tokens(tokenizer: Any, chat: list[dict[str, str]]) -> int:
    """Return the number of tokens of a chat up to the beginning of the response.

    Raises:
        StudyError: the chat cannot be written, or has characters for which there is no token.
    """
    try:
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    except Exception as error:  # Templates and tokenizers may raise anything.
        about = (
            f"the tokenizer cannot read {shorten(chat[-1]['content'], 40)!r} ({plain(str(error))})"
        )
        raise StudyError(
            [f"{about}; take the tokenizer that the model was trained with"]
        ) from error
    return len(ids)


def chat_prompt(question: str, instruction: str) -> list[dict[str, str]]:
    """Return a chat with one user turn; the model writes the next turn."""
    return [{"role": "user", "content": question + instruction}]


def sharing_words(prompts: Iterable[str], problems: Iterable[str]) -> list[str]:
    """Return the benchmark problems that share 13 consecutive words with a training prompt."""
    runs = [(problem, _runs(problem)) for problem in problems]
    # Only runs of the problems are kept: those of all prompts would need too much memory.
    asked = {run for _, problem_runs in runs for run in problem_runs}
    trained = {run for prompt in prompts for run in _runs(prompt) & asked}
    return [problem for problem, problem_runs in runs if not trained.isdisjoint(problem_runs)]


def _runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[i : i + RUN_OF_WORDS]) for i in range(len(words) - RUN_OF_WORDS + 1)}


def check_overlap(
    prompts: Path, benchmarks: dict[str, list[str]], published: bool = False
) -> dict[str, Any]:
    """Return how many problems of each benchmark are training prompts, ignoring white space and case.

    Problems that share 13 consecutive words with a prompt are only counted: it may be a common phrase. So
    are prompts of a published data set, which the paper used unchanged.

    Raises:
        StudyError: one line for each benchmark with such a problem.
    """
    questions = [record["question"] for record in read_prompts(prompts)]
    trained = {normalised(question) for question in questions}
    overlaps = {
        name: [problem for problem in problems if normalised(problem) in trained]
        for name, problems in benchmarks.items()
    }
    errors = [
        f"{prompts}: {len(shared)} training prompts are problems of {name}, the first {shared[0][:60]!r}; "
        "remove them from the training data, or from a benchmark of your own"
        for name, shared in overlaps.items()
        if shared and not published
    ]
    if errors:
        raise StudyError(errors)
    return {
        "prompts": fingerprint(questions),
        "shared": {name: len(shared) for name, shared in overlaps.items()},
        "sharing_13_words": {
            name: len(sharing_words(questions, problems)) for name, problems in benchmarks.items()
        },
    }


def prompt_order(prompts: int, training: TrainingSettings, seed: int) -> list[int]:
    """Return the indices of the prompts of all rollouts: epoch after epoch, each in its own random order.

    There is one list for the whole training, so that a resumed run continues at its step.
    """
    # Rounded up, since the steps may need only a part of the last rollout.
    rollouts = ceil(training.steps * training.prompts_per_mini_batch / training.prompts_per_batch)
    needed, order = rollouts * training.prompts_per_batch, list[int]()
    for epoch in range(ceil(needed / prompts)):
        indices = list(range(prompts))
        Random(f"order {seed} {epoch}").shuffle(indices)
        order += indices
    return order[:needed]
