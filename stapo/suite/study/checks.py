"""Checks across the fields of a study: names that must exist or differ, values that must be compatible."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from stapo.core.methods import METHODS, PARTS
from stapo.core.methods.parts import ARGUMENTS
from stapo.suite.answers import is_built_in, judged_by_task
from stapo.suite.study.loader import Place, Problem
from stapo.suite.study.method_settings import CLIPS
from stapo.suite.study.schema import OF_HUB, BenchmarkSettings, TrainingSettings
from stapo.suite.study.sources import DomainData
from stapo.suite.study.study import BASE_TITLE, Study
from stapo.suite.tasks import benchmark_definitions, copied_from, task_faults
from stapo.suite.text import did_you_mean

RESERVED = {
    "methods": ["base"],
    "models": ["all", "base", "verifier", "verifier.json"],
    "benchmarks": ["avg"],
}
"""Section -> names of something else in paths or tables."""
MAX_CELLS = 50_000
"""Maximum number of score files of a study; Snakemake keeps a job for each in memory."""
NO_INTERVENTIONS = " (`interventions: null` makes none)"


def slug(name: str) -> str:
    """Return a name in the form in which rule names contain it."""
    return re.sub(r"\W", "_", name)


def cross_problems(study: Study) -> Iterator[Problem]:
    """Yield the problems between the fields of a study."""
    for check in (_names, _benchmarks, _compare, _bases, _methods, _titles, _batches, _others):
        yield from check(study)


def _unknown(
    place: Place, names: Iterable[Any], known: Iterable[Any], where: str = ""
) -> Iterator[Problem]:
    """Report names that are not known, or that are listed twice."""
    choices, seen = [*dict.fromkeys(map(str, known))], set()
    for name in names:
        if name in seen:
            yield place, f"{name!r} is listed twice; remove one"
        elif str(name) not in choices:
            message = f"unknown name {name!r}; {did_you_mean(str(name), choices)}known{where}"
            yield place, f"{message}: {', '.join(choices)}"
        seen.add(name)


def _names(study: Study) -> Iterator[Problem]:
    """Report names that are unknown, listed twice, or give the same path or rule of Snakemake."""
    run = study.run
    sections: dict[str, Iterable[Any]] = {
        "models": study.models,
        "methods": [*METHODS, *study.methods],
        "decodings": study.decodings,
        "benchmarks": study.benchmarks,
        "seeds": run.seeds,
    }
    for section, known in sections.items():
        names = getattr(run, section)
        yield from _unknown(("run", section), names, known)
        first: dict[str, str] = {}
        for name in map(str, names):
            other = first.setdefault(slug(name).lower(), name)
            if other != name:
                message = "are equal where . + and - are _ and case is ignored; rename one"
                yield ("run", section), f"{other!r} and {name!r} {message}"
    if study.name.lower().endswith(".md"):
        message = "ends with .md, as a file beside the folders of results does; choose another"
        yield ("name",), message
    for section, reserved in RESERVED.items():
        for name in getattr(study, section):
            if name.lower() in reserved:
                yield (section, name), "this name is reserved; choose another"
    yield from _unknown(("engine", "models"), study.engine.models, study.models)
    if curve := study.evaluation.curve:
        place = ("evaluation", "curve")
        yield from _unknown((*place, "benchmarks"), curve.benchmarks, run.benchmarks, " in run")
        yield from _unknown((*place, "decoding"), [curve.decoding], run.decodings, " in run")


def _benchmarks(study: Study) -> Iterator[Problem]:
    """Report benchmarks without problems, with two sources of them, or with too few responses."""
    tasks = benchmark_definitions()
    for name, given in study.benchmarks.items():
        place = ("benchmarks", name)
        if given.answer_sha256 and (given.answer is None or is_built_in(given.answer)):
            message = "only beside an `answer` in a file of your own; remove it"
            yield (*place, "answer_sha256"), message
        if given.is_own:
            if name in tasks:
                yield place, "is also a benchmark of benchmarks/; choose another name"
            yield from (((*place, key), message) for key, message in _unfit_source(given))
        elif name not in tasks:
            message = (
                f"no task of this name in benchmarks/; known: {', '.join(tasks)}; or name a `file`"
            )
            yield place, f"{message}, a data set of the `hub`, or tasks of `reasoning_gym`"
        elif faults := task_faults(tasks[name]):
            yield from ((place, fault) for fault in faults)
        else:
            for key, message in _unfit(given, tasks[name]["metadata"]):
                yield (*place, key), message
    yield from _domains(study)


def _unfit(given: BenchmarkSettings, metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings that do not fit a task of `benchmarks/`."""
    if given.samples < (least := metadata.get("minimum_samples", 1)):
        message = f"{given.samples} are too few for its number of problems; use at least {least}"
        yield "samples", message
    if (given.rows or 0) > metadata["rows"]:
        yield "rows", f"it has only {metadata['rows']} problems; use at most as many"
    if given.answer == "python_function":
        yield "answer", "only for tests in a `file`; choose another"
    if given.sha256:
        yield "sha256", "only beside a `file` or `hub`; the task file has its own; remove it"
    yield from _without_hub(given)


def _unfit_source(given: BenchmarkSettings) -> Iterator[tuple[str, str]]:
    """Yield the settings that do not fit where the problems of a study's own benchmark come from."""
    source, *others = given.sources
    for key in others:
        yield key, f"not beside `{source}`; remove one of them"
    if given.rows is None and not given.file:
        yield "rows", f"missing; say how many problems {'it has' if given.hub else 'are made'}"
    if given.sha256 and source == "reasoning_gym":
        yield "sha256", "not beside `reasoning_gym`; remove one of them"
    if given.sha256 and (other := copied_from({"hub": given.hub, "sha256": given.sha256})):
        yield "sha256", f"that of {other}; remove it until `stapo fetch` prints it"
    if not given.hub:
        yield from _without_hub(given)
    elif missing := [key for key in OF_HUB[:2] if getattr(given, key) is None]:
        yield "hub", f"needs {' and '.join(missing)} beside it; add them"


def _without_hub(given: BenchmarkSettings) -> Iterator[tuple[str, str]]:
    for key in OF_HUB:
        if getattr(given, key):
            yield key, "only beside `hub`; remove it"


def _domains(study: Study) -> Iterator[Problem]:
    """Report readers and data of which only one is of reasoning-gym."""
    readers: dict[Place, tuple[Any, bool]] = {
        ("benchmarks", name, "answer"): (given.answer, given.reasoning_gym is not None)
        for name, given in study.benchmarks.items()
        if given.answer is not None
    }
    if study.run.methods and is_built_in(study.training.reward):
        is_domain = isinstance(study.data, DomainData)
        readers["training", "reward"] = study.training.reward, is_domain
    for place, (reader, is_domain) in readers.items():
        if judged_by_task(reader) != is_domain:
            message = "these tasks judge themselves: write {reasoning_gym: last_number}, "
            message += "{reasoning_gym: whole}, or reasoning_gym for answers in <answer> tags"
            yield place, message if is_domain else "only for tasks of reasoning-gym; choose another"


def _compare(study: Study) -> Iterator[Problem]:
    """Report comparisons of methods that are not run, without a baseline, or of a method with itself."""
    if study.compare is None:
        return
    problems: list[Problem] = []
    for key in ("target", "baselines"):
        names = getattr(study.compare, key) or []
        problems += _unknown(("compare", key), names, study.run.methods, " in run.methods")
    yield from problems
    ours, theirs = study.compared()
    asked = study.compare.target or study.compare.baselines
    if asked and not problems and (not ours or any({*theirs} <= {name} for name in ours)):
        yield ("compare",), "a target without a baseline, or the reverse; name both"


def _is_sound(study: Study, method: str) -> bool:
    """Return whether the bases of a method lead to one of `stapo.core.methods`."""
    line = study.lineage(method)
    return line[-1] in METHODS and line[-1] not in line[:-1]


def _bases(study: Study) -> Iterator[Problem]:
    """Report bases that are unknown, or lead in a cycle, and methods with the name of another one."""
    for name, given in study.methods.items():
        line = study.lineage(name)
        if line[-1] == name and len(line) > 1:
            message = f"is in a cycle: {' -> '.join(line)}; choose another base"
            yield ("methods", name, "base"), message
        elif line[-1] not in METHODS and len(line) <= 2:
            # An error in a base of the base is reported for that base.
            place = ("methods", name, *(("base",) if given.base else ()))
            known = (other for other in (*METHODS, *study.methods) if other != name)
            yield from _unknown(place, [line[-1]], known)
        elif name in METHODS and _is_sound(study, name) and study.origin_of(name) != name:
            yield ("methods", name, "base"), "this is a method of the suite; choose another name"


def _methods(study: Study) -> Iterator[Problem]:
    """Report settings that belong to another selection, surrogate, advantage, weighting or penalty."""
    for name, given in study.methods.items():
        place = ("methods", name)
        if _is_sound(study, name):
            for key in given.model_dump(exclude_none=True):
                if message := _foreign(study, name, key):
                    yield (*place, key), message
            method = study.method(name)
            if method.part("surrogate").of_responses and method.selection != "keep_all":
                message = f"{method.surrogate} has one ratio per response, of which no token"
                yield place, f"the surrogate {message} can be silenced; start from justrl"
        if given.selection and name in METHODS:
            message = "a selection of your own needs a name of its own"
            yield (*place, "selection"), f"{message}: methods: {{mine: {{base: {name}, ...}}}}"
        for key in ("selection_sha256", "selection_args"):
            if getattr(given, key) and not given.selection:
                yield (*place, key), "only beside a `selection` of your own; add it, or remove this"


def _foreign(study: Study, name: str, key: str) -> str | None:
    """Return why a setting has no effect on a method, None if it has one."""
    method = study.method(name)
    if key in ARGUMENTS:
        takes = [key for kind in PARTS for key in method.part(kind).arguments]
        message = f"none of its parts takes it; they take {', '.join(takes) or 'nothing'}"
        if method.is_own:
            message += "; set arguments of a selection of your own under selection_args"
    elif key in CLIPS:
        takes = [*method.part("surrogate").clips]
        message = f"the surrogate {method.surrogate} does not take it"
    else:
        return None
    return None if key in takes else message


def _titles(study: Study) -> Iterator[Problem]:
    """Report titles that another row of a table has."""
    rows = {BASE_TITLE: "the base model"}
    for name in filter(partial(_is_sound, study), dict.fromkeys(study.run.methods)):
        title = study.title(name)
        if title in rows:
            message = f"{title!r} is also the title of {rows[title]}; choose another"
            yield ("methods", name, "title"), message
        rows.setdefault(title, name)


def _batches(study: Study) -> Iterator[Problem]:
    """Report batches that mini-batches do not divide, and penalties for every response."""
    trained: dict[Place, TrainingSettings] = {("training",): study.training}
    for name in filter(partial(_is_sound, study), study.run.methods):
        if (settings := study.training_of(name)) != study.training:
            trained["methods", name, "training"] = settings
    for place, training in trained.items():
        batch, mini = training.prompts_per_batch, training.prompts_per_mini_batch
        if batch % mini:
            message = f"{mini} does not divide prompts_per_batch {batch}; choose a divisor"
            yield (*place, "prompts_per_mini_batch"), message
        buffer, limit = training.overlong_buffer_tokens or 0, training.max_response_tokens
        if buffer >= limit:
            message = f"{buffer} are not below max_response_tokens {limit}; choose fewer"
            yield (*place, "overlong_buffer_tokens"), message


def _others(study: Study) -> Iterator[Problem]:
    """Report settings without what they belong to, unusable interventions, and too many score files."""
    run, steps = study.run, len(study.kept_steps()) + 1
    checkpoints = len(run.models) * (1 + len(run.methods) * len(run.seeds) * steps)
    cells = checkpoints * len(run.decodings) * len(run.benchmarks)
    if cells > MAX_CELLS:
        message = f"{cells} score files, more than {MAX_CELLS}; choose fewer of something"
        yield ("run",), message
        return
    evaluation = study.evaluation
    if evaluation.verdict == "verifier" and evaluation.verifier is None:
        yield ("evaluation", "verdict"), "verifier, but evaluation.verifier names none; add it"
    section = study.interventions
    if section.checkpoints:
        known = [str(checkpoint) for checkpoint in study.checkpoints()]
        yield from _unknown(
            ("interventions", "checkpoints"), section.checkpoints, known, NO_INTERVENTIONS
        )
        usable = [
            name for name, preset in METHODS.items() if preset.part("selection").silences_candidates
        ]
        method = study.method(section.method) if _is_sound(study, section.method) else None
        if (
            not method
            or not method.part("selection").silences_candidates
            or method.kl_coefficient > 0
        ):
            message = "is unknown, silences no candidates, or has a KL term"
            message += f"; choose from {', '.join([*usable, *study.methods])}"
            yield ("interventions", "method"), f"{section.method} {message}"
    yield from _unknown(("interventions", "methods"), section.methods, [*METHODS, *study.methods])
    sound = _is_sound(study, section.method)
    training = study.training_of(section.method) if sound else study.training
    mini_batch = training.prompts_per_mini_batch
    if section.methods and (section.rollout_prompts or 0) % mini_batch:
        message = f"{section.rollout_prompts} is not a multiple of training.prompts_per_mini_batch"
        remedy = (
            f"the prompts of an update by interventions.methods; set {mini_batch} or more of it"
        )
        yield ("interventions", "rollout_prompts"), f"{message}, {remedy}"
    for name in section.methods:
        if _is_sound(study, name) and study.method(name).kl_coefficient > 0:
            message = "has a KL term, for which interventions have no reference; leave it out"
            yield ("interventions", "methods"), f"{name} {message}"
