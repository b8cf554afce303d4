"""lm-eval on stored responses: its own metric, without a model or a GPU."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager

from stapo.bars import only_ours
from stapo.records.responses import AnsweredProblem, read_responses
from stapo.repository import BENCHMARKS
from stapo.study import StudyError
from stapo.tasks import TASK_PREFIX


class _Stored(LM):  # type: ignore[misc]
    """Answers each problem's repeats with its stored responses, in order."""

    def __init__(self, problems: list[AnsweredProblem]) -> None:
        super().__init__()
        self.left = {one.problem: iter(one.responses) for one in problems}

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Return one stored response per request."""
        return [next(self.left[request.doc_id]) for request in requests]

    loglikelihood = loglikelihood_rolling = None  # Abstract in lm-eval; our tasks use neither.


def _plain(rows: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return questions and golds with white space collapsed, which differs between copies of a benchmark."""
    return [[" ".join(str(text).split()) for text in row] for row in rows]


def regrade(completions: Path, benchmark: str) -> float:
    """Return avg@N of stored responses as lm-eval computes it, 0 to 1.

    Args:
        completions: JSON lines written by `evaluation.generate`, to all problems or to the first ones.
        benchmark: name of the benchmark, without prefix.

    Raises:
        StudyError: the questions or the golds are not those of the benchmark.
    """
    only_ours()
    name, problems = TASK_PREFIX + benchmark, read_responses(completions)
    loaded = TaskManager(include_path=str(BENCHMARKS), include_defaults=False).load([name])
    task = loaded["tasks"][name]
    docs = list(task.test_docs())[: len(problems)]
    asked = _plain((task.doc_to_text(doc), task.doc_to_target(doc)) for doc in docs)
    if asked != _plain((one.question, one.gold) for one in problems):
        about = f"not the questions and answers of {benchmark}"
        remedy = "name with --benchmark the one that was answered"
        raise StudyError([f"{completions}: {about}; {remedy}"])
    task.set_config(key="repeats", value=max(len(one.responses) for one in problems))
    # By default, lm-eval asks all problems.
    results = evaluate(_Stored(problems), loaded, bootstrap_iters=0, limit=len(problems))
    return float(results["results"][name]["average_at_n,all-samples"])
