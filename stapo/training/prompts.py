"""Training prompts: made or loaded, checked against the benchmarks, put in order."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from stapo.artifacts import read_published, write_jsonl
from stapo.hub import persistently
from stapo.models.arithmetic import training_problems
from stapo.schema import Data, HubData, TinyData
from stapo.study import StudyError, fingerprint

DAPO_PREFIX = (
    "Solve the following math problem step by step. The last line of your response should be of the "
    "form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
DAPO_SUFFIX = '\n\nRemember to put your answer on its own line after "Answer:".'
"""DAPO-Math-17k wraps every prompt; our own instruction takes the wrapper's place."""
RUN_OF_WORDS = 13
"""In common with a prompt: the usual measure of contamination."""


def write_prompts(data: Data, path: Path) -> None:
    """Write the unique prompts as JSON lines with question and answer, in a fixed order."""
    records = list(tiny_prompts(data)) if isinstance(data, TinyData) else _hub_prompts(data)
    write_jsonl(path, records)


def read_prompts(path: Path) -> list[dict[str, Any]]:
    """Return the training prompts of a file.

    Raises:
        StudyError: there are none.
        DamagedFileError: a line is truncated or corrupt.
    """
    records = read_published(path, ("question", "answer"))
    if not records:
        raise StudyError([f"{path}: no training prompts; `stapo prompts` writes them"])
    return records


def tiny_prompts(data: TinyData) -> Iterator[dict[str, Any]]:
    """Yield the unique prompts of the tiny world, in a fixed order.

    Raises:
        StudyError: the world has too few.
    """
    seen: set[str] = set()
    # The world is finite: stop drawing when nearly nothing new comes.
    for problem in islice(training_problems(data.seed), 50 * data.prompts):
        if problem.question not in seen:
            seen.add(problem.question)
            yield {"question": problem.question, "answer": str(problem.answer)}
            if len(seen) == data.prompts:
                return
    raise StudyError(
        [
            f"data.prompts: the tiny world has only about {len(seen)} training problems; ask for fewer"
        ]
    )


def _hub_prompts(data: HubData) -> list[dict[str, Any]]:
    from datasets import load_dataset

    rows = persistently(lambda: load_dataset(data.hub, revision=data.revision, split=data.split))
    answers: dict[str, set[str]] = {}
    for row in rows:
        question = row["prompt"][0]["content"].removeprefix(DAPO_PREFIX).removesuffix(DAPO_SUFFIX)
        answers.setdefault(question, set()).add(row["reward_model"]["ground_truth"])
    # A prompt with conflicting answers would reward chance.
    return [{"question": q, "answer": a.pop()} for q, a in answers.items() if len(a) == 1]


def overlap(prompts: Iterable[str], problems: Iterable[str]) -> list[str]:
    """Return the benchmark problems that are training prompts too, white space and case apart."""
    trained = {_normal(prompt) for prompt in prompts}
    return [problem for problem in problems if _normal(problem) in trained]


def sharing_words(prompts: Iterable[str], problems: Iterable[str]) -> list[str]:
    """Return the benchmark problems that have 13 words in a row in common with a training prompt."""
    runs = [(problem, _runs(problem)) for problem in problems]
    # Only runs of the problems are kept: those of all prompts would fill the memory.
    asked = {run for _, own in runs for run in own}
    trained = {run for prompt in prompts for run in _runs(prompt) & asked}
    return [problem for problem, own in runs if not trained.isdisjoint(own)]


def _runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[i : i + RUN_OF_WORDS]) for i in range(len(words) - RUN_OF_WORDS + 1)}


def _normal(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().casefold()


def check_overlap(
    prompts: Path, benchmarks: dict[str, list[str]], published: bool = False
) -> dict[str, Any]:
    """Return how many problems of each benchmark are training prompts.

    Problems that share 13 words in a row with a prompt are counted, not refused: that may be a phrase.

    Args:
        prompts: JSON lines with the question of each.
        benchmarks: questions by name.
        published: the prompts are somebody else's, on whom the paper trained as they are; those that
            are problems too are counted, and the tables say so. Otherwise they are an error.

    Raises:
        StudyError: one line for each benchmark with such a problem.
    """
    questions = [record["question"] for record in read_prompts(prompts)]
    found = {name: overlap(questions, problems) for name, problems in benchmarks.items()}
    errors = [
        f"{prompts}: {len(shared)} training prompts are problems of {name}, first {shared[0][:60]!r}; "
        "remove them from the training data"
        for name, shared in found.items()
        if shared and not published
    ]
    if errors:
        raise StudyError(errors)
    return {
        "prompts": fingerprint(questions),
        "shared": {name: len(shared) for name, shared in found.items()},
        "sharing_13_words": {
            name: len(sharing_words(questions, problems)) for name, problems in benchmarks.items()
        },
    }


def prompt_order(prompts: int, needed: int, seed: int) -> list[int]:
    """Return the indices of `needed` prompts: epoch after epoch, each in an order of its own.

    One list for the whole training, so that a resumed run continues it at its step.
    """
    order: list[int] = []
    epoch = 0
    while len(order) < needed:
        indices = list(range(prompts))
        Random(f"order {seed} {epoch}").shuffle(indices)
        order += indices
        epoch += 1
    return order[:needed]
