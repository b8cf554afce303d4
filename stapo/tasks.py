"""The benchmarks as lm-eval tasks: what `benchmarks/` says of each. Nothing here imports lm-eval."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from stapo.repository import BENCHMARKS

TASK_PREFIX = "stapo_"
"""lm-eval has no task of such a name, so that a forgotten `--include_path` cannot run another one."""


class _TaskLoader(yaml.SafeLoader):
    """Reads lm-eval task files; `!function x` becomes the string `!function x`."""


_TaskLoader.add_constructor("!function", lambda loader, node: f"!function {node.value}")


@cache
def benchmark_definitions() -> dict[str, dict[str, Any]]:
    """Return every task of `benchmarks/` by its name without prefix, includes resolved.

    Comments and the order of keys do not show; everything else is part of the fingerprints.
    """
    tasks = {}
    for path in sorted(BENCHMARKS.rglob("*.yaml")):
        definition = _read_task(path)
        if "task" in definition:
            tasks[str(definition["task"]).removeprefix(TASK_PREFIX)] = definition
    return tasks


def _read_task(path: Path) -> dict[str, Any]:
    definition: dict[str, Any] = yaml.load(path.read_text(), Loader=_TaskLoader)
    include = definition.pop("include", None)
    # lm-eval's include is a shallow update: a nested mapping of the child replaces the parent's.
    return {**_read_task(path.parent / include), **definition} if include else definition
