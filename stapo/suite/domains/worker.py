"""The process in which reasoning-gym runs: makes rows, or judges answers by a task's `score_answer`.

Usage: worker make|judge MEMORY_BYTES SECONDS; only `stapo.suite.domains` and `evaluation.grading` start it.

An answer is untrusted. Some tasks of the library evaluate it as Python, also by sympy's `parse_expr`: they
get only answers of characters with which nothing but numbers can be computed, or are refused.
"""

import hashlib
import json
import sys
from functools import lru_cache
from typing import Any

from stapo.core.files import canonical
from stapo.suite.domains.safety import ANSWERS, REFUSED
from stapo.suite.limited import limited, serve
from stapo.suite.text import did_you_mean, normalised

FULL_SCORE = 1.0
"""From which an answer counts as right, our choice: what the library promises for its own answers."""
MOST_TRIED = 50
"""Problems made for each row that is asked for; a task with few different ones would never end."""
SIZE = 500
"""Problems of one data set of the library, its default; more are made as another one."""
BENCHMARK_SHARE = 4
"""One question in so many belongs to benchmarks, by its hash, and all others to trainings: our choice."""
SEEDS = {True: 0, False: 10**9}
"""Of trainings and benchmarks. The library adds the number of a problem."""
NOT_SET = {"seed", "size", "data_file"}
"""Settings that no study has: rows are made here, of no other file."""


def _fault(name: str, settings: dict[str, Any]) -> str | None:
    from dataclasses import fields

    from reasoning_gym.factory import DATASETS

    if name in REFUSED:
        return f"{name}: {REFUSED[name]}; choose another task"
    if name not in DATASETS:
        like = did_you_mean(name, DATASETS)
        known = ", ".join(sorted(DATASETS.keys() - REFUSED.keys()))
        return f"{name}: reasoning-gym has no such task; {like}known: {known}"
    takes = [field.name for field in fields(DATASETS[name][1]) if field.name not in NOT_SET]
    if unknown := sorted(settings.keys() - {*takes}):
        return f"{name}.{unknown[0]}: the task has no such setting; it takes {', '.join(takes)}"
    try:
        _made(name, json.dumps(settings), SEEDS[True])[0]
    except Exception as error:
        told = "its settings give no problem; check their types and ranges"
        return f"{name}: {told}: {type(error).__name__}: {error}"
    return None


def rows(
    tasks: dict[str, dict[str, Any]], count: int, is_training: bool
) -> tuple[list[dict[str, str]], list[str]]:
    """Return rows of each task in turn, and why there are none, such as each unknown name or setting."""
    if faults := [line for name in tasks if (line := _fault(name, tasks[name]))]:
        return [], faults
    seen: set[str] = set()
    made = []
    for index in range(MOST_TRIED * count):
        seed = SEEDS[is_training] + index // SIZE * SIZE
        for name, settings in tasks.items():
            entry = _made(name, json.dumps(settings), seed)[index % SIZE]
            question = entry["question"].strip()
            plain = normalised(question)
            if plain in seen or is_training == _is_of_benchmarks(plain):
                continue
            seen.add(plain)
            kept = {"answer": entry["answer"], "metadata": entry["metadata"]}
            gold = canonical({"task": name, "settings": settings, **kept})
            if judge(gold, str(entry["answer"])) != "correct":
                return [], [f"{name}: its verifier rejects its own answer to {question[:60]!r}"]
            made.append({"question": question, "answer": gold})
            if len(made) == count:
                return made, []
    return [], [f"there are only about {len(made)} different problems; ask for fewer rows"]


def _is_of_benchmarks(question: str) -> bool:
    return hashlib.sha256(question.encode()).digest()[0] % BENCHMARK_SHARE == 0


def judge(gold: str, answer: str) -> str:
    """Return the verdict on an answer: `correct` with the full score, otherwise `wrong`."""
    row = json.loads(gold)
    name = row["task"]
    if name in REFUSED or not (name not in ANSWERS or ANSWERS[name].fullmatch(answer)):
        return "wrong"
    try:
        score = _made(name, json.dumps(row["settings"]), SEEDS[True]).score_answer(answer, row)
    except Exception:  # An answer that the task cannot read.
        return "wrong"
    return "correct" if score >= FULL_SCORE else "wrong"


@lru_cache(64)
def _made(name: str, settings: str, seed: int) -> Any:
    """Return a data set of the library."""
    import reasoning_gym

    return reasoning_gym.create_dataset(name, **json.loads(settings), seed=seed, size=SIZE)


def main(mode: str, memory_bytes: int, seconds: float) -> None:
    """Answer requests with the arguments of `rows`, or pairs of gold and answer."""
    answers = limited(memory_bytes)
    import reasoning_gym  # noqa: F401  Before the first request, whose time it is not.

    serve(answers, seconds, rows if mode == "make" else judge)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
