"""Trainings of a table that ended with the same weights: a difference between them says nothing."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from stapo import paths
from stapo.analysis.selection import Choice
from stapo.files import read_json, read_published
from stapo.study import Study

WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class SameWeights:
    """Methods whose trainings of a size ended with the same weights."""

    size: str
    methods: tuple[str, ...]
    silent: tuple[str, ...]
    """Those of the methods that silence tokens, but silenced none in these trainings."""
    seeds: tuple[int, ...] = ()


def same_weights(study: Study, choices: Iterable[Choice], root: Path) -> list[SameWeights]:
    """Return the methods with the same weights, by the checksums that their trainings recorded.

    Compared are the checkpoints that the table shows; a training without a record has no checksums.
    """
    trained: dict[tuple[str, int, frozenset[tuple[str, str]]], list[Choice]] = {}
    for choice in choices:
        if weights := _weights(study, choice, root):
            trained.setdefault((choice.size, choice.seed, weights), []).append(choice)
    seeds: dict[SameWeights, list[int]] = {}
    for (size, seed, _), same in trained.items():
        if len(same) > 1:
            silent = tuple(one.method for one in same if _is_silent(study, one, root))
            group = SameWeights(size, tuple(one.method for one in same), silent)
            seeds.setdefault(group, []).append(seed)
    return [replace(group, seeds=tuple(found)) for group, found in seeds.items()]


def _weights(study: Study, choice: Choice, root: Path) -> frozenset[tuple[str, str]]:
    """Return name and SHA-256 of each file of weights of a checkpoint; empty without a record."""
    path = root / paths.RUN_PROVENANCE.format(study=study.name, **choice.run.wildcards)
    outputs = read_json(path).get("outputs") if path.exists() else None
    last = choice.selected == study.training.steps
    inside = "model/" if last else f"step{choice.selected}/"
    return frozenset(
        (name.removeprefix(inside), str(sha))
        for name, sha in (outputs.items() if isinstance(outputs, dict) else ())
        if name.startswith(inside) and name.endswith(WEIGHTS)
    )


def _is_silent(study: Study, choice: Choice, root: Path) -> bool:
    """Return whether a training with a method that silences tokens silenced none up to the checkpoint."""
    if study.method(choice.method).spec.silenced is None:
        return False
    path = root / paths.METRICS.format(study=study.name, **choice.run.wildcards)
    steps = read_published(path, ("step", "num_silenced"))[: choice.selected]
    return len(steps) == choice.selected and not any(step["num_silenced"] for step in steps)
