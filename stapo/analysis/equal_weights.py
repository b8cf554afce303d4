"""Trainings of a table that ended with the same weights: a difference between them says nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stapo import paths
from stapo.analysis.selection import Choice
from stapo.files import read_json, read_published
from stapo.study import Study, TrainingRun

WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class SameWeights:
    """Methods whose trainings of a size ended with the same weights."""

    size: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    silent: tuple[str, ...]
    """Those of the methods that silence tokens, but silenced none in these trainings."""


def same_weights(study: Study, choices: Iterable[Choice], root: Path) -> list[SameWeights]:
    """Return the methods with the same weights, by the checksums that their trainings recorded.

    Args:
        study: the study.
        choices: the checkpoint of each training that the table shows.
        root: directory that contains `results/STUDY`; a training without a record there has no checksums.

    Raises:
        DamagedFileError: a record is truncated or corrupt.
    """
    trained: dict[tuple[str, int, frozenset[tuple[str, str]]], list[Choice]] = {}
    for choice in choices:
        if weights := _weights(study, choice, root):
            trained.setdefault((choice.size, choice.seed, weights), []).append(choice)
    seeds: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for (size, seed, _), same in trained.items():
        if len(same) > 1:
            silent = tuple(one.method for one in same if _is_silent(study, one, root))
            methods = tuple(one.method for one in same)
            seeds.setdefault((size, methods, silent), []).append(seed)
    return [
        SameWeights(size, methods, tuple(found), silent)
        for (size, methods, silent), found in seeds.items()
    ]


def _weights(study: Study, choice: Choice, root: Path) -> frozenset[tuple[str, str]]:
    """Return name and SHA-256 of each file of weights of a checkpoint; empty without a record."""
    path = root / paths.RUN_PROVENANCE.format(study=study.name, **_run(choice).wildcards)
    if not path.exists():
        return frozenset()
    outputs = read_json(path).get("outputs")
    last = choice.selected == study.training.steps
    inside = "model/" if last else f"step{choice.selected}/"
    found = outputs.items() if isinstance(outputs, dict) else ()
    return frozenset(
        (name.removeprefix(inside), str(sha))
        for name, sha in found
        if name.startswith(inside) and name.endswith(WEIGHTS)
    )


def _is_silent(study: Study, choice: Choice, root: Path) -> bool:
    """Return whether a training with a method that silences tokens silenced none up to the checkpoint."""
    if study.method(choice.method).spec.silenced is None:
        return False
    path = root / paths.METRICS.format(study=study.name, **_run(choice).wildcards)
    steps = read_published(path, ("step", "num_silenced"))[: choice.selected]
    return len(steps) == choice.selected and not any(step["num_silenced"] for step in steps)


def _run(choice: Choice) -> TrainingRun:
    return TrainingRun(choice.size, choice.method, choice.seed)
