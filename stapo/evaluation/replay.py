"""lm-eval on stored responses: its own metric, without a model or a GPU."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager

from stapo.bars import only_ours
from stapo.records.responses import read_responses
from stapo.repository import BENCHMARKS
from stapo.study import StudyError
from stapo.tasks import TASK_PREFIX


class Stored(LM):  # type: ignore[misc]
    """Answers each problem's repeats with its stored responses, in order."""

    def __init__(self, completions: Path) -> None:
        super().__init__()
        self.problems = {one.problem: one for one in read_responses(completions)}

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Return one stored response per request."""
        used: dict[int, int] = {}
        answers = []
        for request in requests:
            sample = used.get(request.doc_id, 0)
            used[request.doc_id] = sample + 1
            answers.append(self.problems[request.doc_id].responses[sample])
        return answers

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        """Not used by our tasks."""
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
        """Not used by our tasks."""
        raise NotImplementedError


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
    name = TASK_PREFIX + benchmark
    loaded = TaskManager(include_path=str(BENCHMARKS), include_defaults=False).load([name])
    task, stored = loaded["tasks"][name], Stored(completions)
    answered = [(one.question, one.gold) for one in stored.problems.values()]
    docs = list(task.test_docs())[: len(answered)]
    if _plain((task.doc_to_text(doc), task.doc_to_target(doc)) for doc in docs) != _plain(answered):
        about = f"not the questions and answers of {benchmark}"
        remedy = "name with --benchmark the one that was answered"
        raise StudyError([f"{completions}: {about}; {remedy}"])
    samples = {len(problem.responses) for problem in stored.problems.values()}
    task.set_config(key="repeats", value=max(samples))
    limit = len(answered)  # By default, lm-eval asks all problems.
    results = evaluate(lm=stored, task_dict=loaded, bootstrap_iters=0, limit=limit)
    return float(results["results"][name]["average_at_n,all-samples"])
