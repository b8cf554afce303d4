"""The lm-eval task files of `benchmarks/`. Nothing here imports lm-eval."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from stapo.suite.answers import is_built_in, judged_by_task
from stapo.suite.repository import BENCHMARKS

TASK_PREFIX = "stapo_"
"""Prefix that no task of lm-eval has, so that a missing `--include_path` cannot run a built-in task."""


INSTRUCTION = r" Please reason step by step, and put your final answer within \boxed{}."
"""The paper's words; the single space before them is JustRL's, the paper does not show it."""
INSTRUCTIONS = {"question": "", "math_question": INSTRUCTION}
"""Function that a task names as `doc_to_text` -> what it appends to a question."""


KEYS = {
    "task", "custom_dataset", "test_split", "output_type", "doc_to_text", "doc_to_target", "process_results",
    "repeats", "generation_kwargs", "filter_list", "metric_list", "metadata",
}  # fmt: skip
"""Keys of a task file: lm-eval has others, which would change its questions and not the pipeline's."""
METADATA = {
    "version", "minimum_samples", "hub", "subset", "revision", "split", "names", "licence", "builder",
    "family", "rows", "sha256", "first", "answer", "instruction",
}  # fmt: skip
"""Keys of its metadata; a benchmark has as many problems as `rows` says, or the `first` of them."""

REQUIRED = ("version", "rows", "sha256")
"""Keys that the metadata of every task has."""
WRONG_READER = "metadata.answer in its task file: expected boxed, last_number or {after: TEXT}"


class _TaskLoader(yaml.SafeLoader):
    """Reads lm-eval task files; `!function x` becomes the string `!function x`."""


# Without `suite`, as functions are called in the fingerprints of all results so far.
_TaskLoader.add_constructor(
    "!function", lambda loader, node: f"!function {node.value.replace('stapo.suite.', 'stapo.')}"
)


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


def task_faults(definition: Mapping[str, Any]) -> list[str]:
    """Return a line for each missing, unknown or wrong key of a task."""
    metadata = definition.get("metadata", {})
    unknown = sorted(definition.keys() - KEYS)
    unknown += [f"metadata.{key}" for key in sorted(metadata.keys() - METADATA)]
    faults = [f"{key} in its task file: unknown key; remove it" for key in unknown]
    needed = {*REQUIRED, *(("revision", "split", "names") if "hub" in metadata else ())}
    missing = sorted(needed - metadata.keys())
    faults += [f"metadata.{key} in its task file: missing; add it" for key in missing]
    answer = metadata.get("answer", "boxed")
    if not is_built_in(answer) or judged_by_task(answer):
        faults.append(WRONG_READER)
    if (sha256 := metadata.get("sha256")) is not None:
        place = "metadata.sha256 in its task file"
        if not re.fullmatch("[0-9a-f]{64}", str(sha256)):
            faults.append(f"{place}: expected 64 hex digits, or null until `stapo fetch` prints it")
        if other := copied_from(metadata):
            faults.append(f"{place}: that of {other}; write null until `stapo fetch` prints it")
    return faults


def copied_from(metadata: Mapping[str, Any]) -> str | None:
    """Return the task of another data set of the Hub that has the checksum of this one."""
    hub = metadata.get("hub")
    for name, other in benchmark_definitions().items():
        theirs = other.get("metadata", {})
        if hub and theirs.get("hub", hub) != hub and theirs.get("sha256") == metadata["sha256"]:
            return name
    return None


def problems_of(definition: Mapping[str, Any]) -> int:
    """Return the number of problems of a task: all rows, or the first of them."""
    metadata = definition["metadata"]
    return int(metadata.get("first", metadata["rows"]))


def custom_definition(name: str, rows: int, sha256: str) -> dict[str, Any]:
    """Return the task of a study's own benchmark; the checksum is that of its questions and answers."""
    return {
        **_read_task(BENCHMARKS / "math" / "_base.yaml"),
        "task": TASK_PREFIX + name,
        "metadata": {"version": 1, "rows": rows, "sha256": sha256},
    }


def asking(definition: Mapping[str, Any], instruction: str) -> dict[str, Any]:
    """Return a task with this instruction after each question, and no other."""
    names = {text: name for name, text in INSTRUCTIONS.items()}
    metadata = {key: value for key, value in definition["metadata"].items() if key != "instruction"}
    if instruction not in names:
        metadata["instruction"] = instruction
    prompt = f"!function stapo.evaluation.task.{names.get(instruction, 'question')}"
    return {**definition, "doc_to_text": prompt, "metadata": metadata}


def instruction_of(definition: Mapping[str, Any]) -> str:
    """Return what a task appends to each question."""
    name = str(definition["doc_to_text"]).rpartition(".")[2]
    if name not in INSTRUCTIONS:
        known = ", ".join(INSTRUCTIONS)
        raise ValueError(f"{definition['task']}: doc_to_text {name}: known are {known}")
    return INSTRUCTIONS[name] + str(definition["metadata"].get("instruction", ""))


def _read_task(path: Path) -> dict[str, Any]:
    definition: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_TaskLoader)
    include = definition.pop("include", None)
    # lm-eval's include is a shallow update: a nested mapping of the child replaces the parent's.
    return {**_read_task(path.parent / include), **definition} if include else definition
