"""Checks of what a study takes from files of its own: benchmarks, prompts, models, token selections.

Like those in `stapo.study.checks`, they work on raw input; files were read before.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stapo.methods import METHODS
from stapo.study.checks import Tasks
from stapo.study.fields import CODE
from stapo.study.raw import given_in, has_own_selection, lineage, names_in, section_of
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
    used = {*names_in(section_of(raw, "run"), "benchmarks")}
    used |= {*names_in(section_of(raw, "evaluation"), "development")}
    for name in names_in(section_of(raw, "benchmarks")):
        given, place = given_in(section_of(raw, "benchmarks", name)), ("benchmarks", name)
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
        if name in used and not columns:
            yield from _unread(place, given, "file", "rows", "sha256")


def _unread(
    place: tuple[str, ...], given: Mapping[str, Any], key: str, *of_content: str
) -> Iterator[Problem]:
    """Report a file without the settings that its content gives, in a study that is read without its files.

    Args:
        place: place of the section.
        given: the section.
        key: setting that names the file; if it is no name, that is reported with other fields.
        of_content: settings that its content gives.
    """
    name = given.get(key)
    is_name = isinstance(name, str) and (key != "selection" or re.fullmatch(CODE, name))
    if is_name and not set(of_content) <= given.keys():
        verb = "are" if len(of_content) > 1 else "is"
        yield (*place, key), f"{name} was not read; its {' and '.join(of_content)} {verb} missing"


def _prompts(raw: Mapping[str, Any]) -> Iterator[Problem]:
    given = given_in(section_of(raw, "data"))
    if "hub" not in given:
        yield from _unread(("data",), given, "file", "rows", "sha256")


def _models(raw: Mapping[str, Any]) -> Iterator[Problem]:
    for size in names_in(section_of(raw, "run"), "sizes"):
        given = given_in(section_of(raw, "models", size))
        if "hub" not in given:
            yield from _unread(("models", size), given, "path", "sha256")


def _selections(raw: Mapping[str, Any]) -> Iterator[Problem]:
    run = names_in(section_of(raw, "run"), "methods")
    used = {str(one) for name in run for one in lineage(raw, name)}
    for name in names_in(section_of(raw, "methods")):
        given, place = given_in(section_of(raw, "methods", name)), ("methods", name)
        if "selection" in given:
            if name in METHODS:
                about = "a selection of your own needs a name of its own"
                yield (*place, "selection"), f"{about}: methods: {{mine: {{base: {name}, ...}}}}"
            elif name in used:
                yield from _unread(place, given, "selection", "selection_sha256")
        elif "selection_sha256" in given:
            yield (*place, "selection_sha256"), "only for a method with `selection`; remove it"
        if "selection_args" in given and not has_own_selection(raw, lineage(raw, name)):
            about = "only for a `selection` of your own; write the arguments beside `base`"
            yield (*place, "selection_args"), about
