"""lm-eval on stored responses: its own metric, which must be our score."""

from pathlib import Path
from typing import Any

from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager

from stapo.records.responses import read_responses
from stapo.repository import BENCHMARKS
from stapo.tasks import TASK_PREFIX


class Stored(LM):
    """Answers each problem's repeats with its stored responses, in order."""

    def __init__(self, problems) -> None:
        super().__init__()
        self.left = {one.problem: iter(one.responses) for one in problems}

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        return [next(self.left[request.doc_id]) for request in requests]

    loglikelihood = loglikelihood_rolling = None  # Abstract in lm-eval; our tasks use neither.


def regrade(completions: Path, benchmark: str) -> float:
    """Return avg@N of stored responses, to all problems or to the first ones, as lm-eval computes it."""
    name, problems = TASK_PREFIX + benchmark, read_responses(completions)
    loaded = TaskManager(include_path=str(BENCHMARKS), include_defaults=False).load([name])
    task = loaded["tasks"][name]
    docs = list(task.test_docs())[: len(problems)]
    asked = [(task.doc_to_text(doc), task.doc_to_target(doc)) for doc in docs]
    assert asked == [(one.question, one.gold) for one in problems]
    task.set_config(key="repeats", value=max(len(one.responses) for one in problems))
    results = evaluate(Stored(problems), loaded, bootstrap_iters=0, limit=len(problems))
    return float(results["results"][name]["average_at_n,all-samples"])
