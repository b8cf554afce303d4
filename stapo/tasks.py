"""The lm-eval task files of `benchmarks/`. Nothing here imports lm-eval."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from stapo.repository import BENCHMARKS

TASK_PREFIX = "stapo_"
"""Prefix that no task of lm-eval has, so that a missing `--include_path` cannot run a built-in task."""


class _TaskLoader(yaml.SafeLoader):
    """Reads lm-eval task files; `!function x` becomes the string `!function x`."""


_TaskLoader.add_constructor("!function", lambda loader, node: f"!function {node.value}")


@cache
def benchmark_definitions() -> dict[str, dict[str, Any]]:
    """Return every task of `benchmarks/` by its name without prefix, with includes resolved.

    The definitions are part of fingerprints; comments and the order of keys have no effect on them.
    """
    tasks = {}
    for path in sorted(BENCHMARKS.rglob("*.yaml")):
        definition = _read_task(path)
        if "task" in definition:
            tasks[str(definition["task"]).removeprefix(TASK_PREFIX)] = definition
    return tasks


def own_definition(name: str, rows: int, sha256: str, instruction: bool) -> dict[str, Any]:
    """Return the task of a study's own benchmark, in the form of those in `benchmarks/`.

    The checksum is that of its questions and answers; the paper's instruction may follow each question.
    """
    prompt = "math_question" if instruction else "question"
    return {
        **_read_task(BENCHMARKS / "math" / "_base.yaml"),
        "task": TASK_PREFIX + name,
        "doc_to_text": f"!function stapo.evaluation.task.{prompt}",
        "metadata": {"version": 1, "rows": rows, "sha256": sha256},
    }


def _read_task(path: Path) -> dict[str, Any]:
    definition: dict[str, Any] = yaml.load(path.read_text(), Loader=_TaskLoader)
    include = definition.pop("include", None)
    # lm-eval's include is a shallow update: a nested mapping of the child replaces the parent's.
    return {**_read_task(path.parent / include), **definition} if include else definition
