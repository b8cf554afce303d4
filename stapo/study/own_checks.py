"""Checks of what a study takes from files of its own: benchmarks, prompts, models, token selections.

Like those in `stapo.study.checks`, they work on raw input; files were read before.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from stapo.methods import METHODS
from stapo.study.checks import Tasks, _given, _names, _section, has_own_selection, lineage
from stapo.study.validation import Problem


def own_problems(raw: Mapping[str, Any], tasks: Tasks) -> Iterator[Problem]:
    """Yield the problems of what a study takes from files of its own.

    Args:
        raw: the merged study, which may have any structure.
        tasks: the benchmarks of `benchmarks/`.
    """
    yield from _benchmarks(raw, tasks)
    yield from _prompts(raw)
    yield from _models(raw)
    yield from _selections(raw)


def _benchmarks(raw: Mapping[str, Any], tasks: Tasks) -> Iterator[Problem]:
    """Report benchmarks from files of the study's own that are incomplete."""
    used = {*_names(_section(raw, "run"), "benchmarks")}
    used |= {*_names(_section(raw, "evaluation"), "development")}
    for name in _names(_section(raw, "benchmarks")):
        given, place = _given(_section(raw, "benchmarks", name)), ("benchmarks", name)
        if "file" not in given:
            # Of a name without a task it is reported that it lacks a `file`.
            for key in ("question", "answer", "rows", "sha256") if name in tasks else ():
                if key in given:
                    yield (*place, key), "only for a benchmark with `file`; add it, or remove this"
            continue
        if name in tasks:
            yield place, "is also a benchmark of benchmarks/; choose another name"
        columns = [key for key in ("question", "answer") if key not in given]
        for key in columns:
            yield (*place, key), f"missing; name the column of `file` that has the {key}s"
        if name in used and not columns and not {"rows", "sha256"} <= given.keys():
            yield (*place, "file"), f"{given['file']} was not read; its rows and sha256 are missing"


def _prompts(raw: Mapping[str, Any]) -> Iterator[Problem]:
    given = _given(_section(raw, "data"))
    if "file" in given and "hub" not in given and not {"rows", "sha256"} <= given.keys():
        yield ("data", "file"), f"{given['file']} was not read; its rows and sha256 are missing"


def _models(raw: Mapping[str, Any]) -> Iterator[Problem]:
    for size in _names(_section(raw, "run"), "sizes"):
        given = _given(_section(raw, "models", size))
        if "path" in given and "hub" not in given and "sha256" not in given:
            yield ("models", size, "path"), f"{given['path']} was not read; its sha256 is missing"


def _selections(raw: Mapping[str, Any]) -> Iterator[Problem]:
    run = _names(_section(raw, "run"), "methods")
    used = {str(one) for name in run for one in lineage(raw, name)}
    for name in _names(_section(raw, "methods")):
        given, place = _given(_section(raw, "methods", name)), ("methods", name)
        if "selection" in given:
            if name in METHODS:
                about = "a selection of your own needs a name of its own"
                yield (*place, "selection"), f"{about}: methods: {{mine: {{base: {name}, ...}}}}"
            elif name in used and "selection_sha256" not in given:
                about = f"{given['selection']} was not read; its selection_sha256 is missing"
                yield (*place, "selection"), about
        elif "selection_sha256" in given:
            yield (*place, "selection_sha256"), "only for a method with `selection`; remove it"
        if "selection_args" in given and not has_own_selection(raw, lineage(raw, name)):
            about = "only for a `selection` of your own; write the arguments beside `base`"
            yield (*place, "selection_args"), about
