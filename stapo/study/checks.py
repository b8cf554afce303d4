"""Checks across the fields of a study: names that must exist or differ, values that must be compatible.

They take a draft (`stapo.study.fields.DRAFT`), in which invalid settings are None, so that what they find is
reported together with the errors of single fields.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from stapo.methods import BASELINES, METHODS, TARGETS, selection_arguments
from stapo.study.checkpoint import Checkpoint
from stapo.study.fields import REWARDS
from stapo.study.loader import Place, Problem
from stapo.study.schema import TrainingSettings
from stapo.study.study import BASE_TITLE, Study
from stapo.study.validation import close_name

RESERVED = {
    "methods": {"base": "the row of the base model"},
    "models": dict.fromkeys(("verifier", "verifier.json"), "the files of the verifier"),
    "benchmarks": {"avg": "the average of the tables"},
}
"""Section -> reserved name in it -> use of that name."""
MAX_CELLS = 50_000
"""Maximum number of score files of a study; Snakemake keeps a job for each in memory."""
MAX_PROMPTS = 10**7
"""Maximum number of prompts of a training, with repetition; their order is kept in memory."""

Tasks = Mapping[str, Mapping[str, Any]]
"""Benchmark -> its lm-eval task."""


def slug(name: str) -> str:
    """Return a name in the form in which rule names contain it."""
    return re.sub(r"\W", "_", name)


def cross_problems(study: Study, tasks: Tasks) -> Iterator[Problem]:
    """Yield the problems between the fields of a study.

    Args:
        study: the study, or a draft of it.
        tasks: the available benchmarks.
    """
    yield from _names(study)
    yield from _benchmarks(study, tasks)
    for check in (_selected_checkpoint, _compare, _bases, _methods, _titles, _batches, _training):
        yield from check(study)
    yield from _interventions(study)


def _unknown(
    place: Place, names: Iterable[Any], known: Iterable[Any], section: str = ""
) -> Iterator[Problem]:
    """Report names that are not known, with the one that was probably meant."""
    choices = [*dict.fromkeys(map(str, known))]
    for name in dict.fromkeys(names):
        # Without any, the section itself is wrong.
        if choices and str(name) not in choices:
            meant = close_name(name, choices)
            hint = f"did you mean {meant}? " if meant else ""
            yield place, f"unknown name {name!r}; {hint}known{section}: {', '.join(choices)}"


def _repeated(
    place: Place, names: Iterable[Any], key: Callable[[str], str] = str, reason: str = ""
) -> Iterator[Problem]:
    """Report names that repeat an earlier one, or have the same key as one."""
    first: dict[str, str] = {}
    for name in map(str, names):
        other = first.get(key(name))
        if other == name:
            yield place, f"{name!r} is listed twice; remove one"
        elif other is not None:
            yield place, f"{other!r} and {name!r} {reason}"
        first.setdefault(key(name), name)


def _names(study: Study) -> Iterator[Problem]:
    """Report names that are unknown, listed twice, reserved, or give the same path or rule of Snakemake."""
    run, evaluation = study.run, study.evaluation
    file = "are the same name on a file system that ignores case; rename one"
    rule = "become the same rule name, where . + and - are _ and case is ignored; rename one"

    def slugged(name: str) -> str:
        return slug(name).lower()

    for key, choices, same, reason in (
        ("sizes", study.models, str.lower, file),
        ("methods", [*METHODS, *study.methods], slugged, rule),
        ("decodings", study.decodings, slugged, rule),
        ("benchmarks", study.benchmarks, str.lower, file),
    ):
        names = getattr(run, key)
        yield from _unknown(("run", key), names, choices)
        yield from _repeated(("run", key), names, same, reason)
    yield from _repeated(("run", "seeds"), run.seeds)
    yield from _unknown(("engine", "sizes"), study.engine.sizes, study.models)
    place = ("evaluation", "development")
    yield from _unknown(place, evaluation.development, study.benchmarks)
    yield from _repeated(place, evaluation.development, str.lower, file)
    if curve := evaluation.curve:
        place = ("evaluation", "curve")
        evaluated, decodings = [curve.decoding] if curve.decoding else [], run.decodings
        yield from _repeated((*place, "benchmarks"), curve.benchmarks)
        yield from _unknown((*place, "benchmarks"), curve.benchmarks, study.evaluated(), " in run")
        yield from _unknown((*place, "decoding"), evaluated, decodings, " in run")
    for section, owners in RESERVED.items():
        for name in getattr(study, section):
            if owner := owners.get(name.lower()):
                yield (section, name), f"this name is reserved for {owner}; choose another"
    if study.name and study.name.lower() == "readme.md":
        yield ("name",), "this name is reserved for results/README.md; choose another"


def _benchmarks(study: Study, tasks: Tasks) -> Iterator[Problem]:
    """Report benchmarks without problems, with two sources of them, or with too few responses."""
    for name, given in study.benchmarks.items():
        place = ("benchmarks", name)
        if given.file:
            if name in tasks:
                yield place, "is also a benchmark of benchmarks/; choose another name"
            for key in ("question", "answer"):
                if getattr(given, key) is None:
                    yield (*place, key), f"missing; name the column of `file` that has the {key}s"
            continue
        if name not in tasks:
            about = f"no task of this name in benchmarks/; known: {', '.join(tasks)}"
            yield place, f"{about}; or name a `file` of your own"
            continue
        for key in ("question", "answer", "rows", "sha256"):
            if getattr(given, key) is not None:
                yield (*place, key), "only for a benchmark with `file`; add it, or remove this"
        least = tasks[name].get("metadata", {}).get("minimum_samples", 1)
        if given.samples is not None and given.samples < least:
            about = f"{given.samples} are too few for its number of problems; use at least {least}"
            yield (*place, "samples"), about


def _selected_checkpoint(study: Study) -> Iterator[Problem]:
    """Report settings with which checkpoints cannot be chosen, or are chosen on test benchmarks."""
    evaluation, training = study.evaluation, study.training
    tested = [name.lower() for name in study.run.benchmarks]
    for name in dict.fromkeys(evaluation.development):
        if name.lower() in tested:
            about = "is also in run.benchmarks; no table may show what chose its checkpoints"
            yield ("evaluation", "development"), f"{name!r} {about}"
    place, select = ("evaluation", "select"), evaluation.select
    if select == "development" and not evaluation.development:
        yield place, "development, but evaluation.development is empty; fill it"
    every, steps = training.evaluate_every, training.steps
    if select not in (None, "last") and every is None:
        yield place, "needs training.evaluate_every; add it"
    if isinstance(select, int) and every and steps and select not in (*study.full_steps(), steps):
        about = f"choose a multiple of {every} below {steps}, or last"
        yield place, f"no weights of step {select} are kept; {about}"


def _compare(study: Study) -> Iterator[Problem]:
    """Report comparisons of methods that are not run, without a baseline, or of a method with itself."""
    if study.compare is None:
        return
    run = study.run.methods
    targets, baselines = study.compare.target or [], study.compare.baselines or []
    for key, names in (("target", targets), ("baselines", baselines)):
        yield from _repeated(("compare", key), names)
        yield from _unknown(("compare", key), names, run or ["none"], " in run.methods")
    ours, theirs = study.compared()
    for name in dict.fromkeys(ours):
        if theirs == [name] and name in run:
            yield ("compare", "baselines"), f"{name!r} has no baseline but itself; add another"
    if targets and run and not theirs:
        about = f"run.methods has none of {', '.join(BASELINES)} beside the target; name baselines"
        yield ("compare", "baselines"), about
    if baselines and run and not ours:
        yield ("compare", "target"), f"run.methods has none of {', '.join(TARGETS)}; name a target"


def is_sound(study: Study, method: str) -> bool:
    """Return whether the bases of a method lead to one of `stapo.methods`."""
    line = study.lineage(method)
    return line[-1] in METHODS and line[-1] not in line[:-1]


def argument_problems(
    given: Mapping[str, Any], origin: str, is_own: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the arguments of a token selection that the selection of a method does not take.

    Args:
        given: settings of the method; None is not given.
        origin: method of `stapo.methods` from which it descends.
        is_own: whether its selection is a function of the study's own.
    """
    takes = METHODS[origin].spec.arguments
    for key in selection_arguments():
        if given.get(key) is None or (key in takes and not is_own):
            continue
        about = f"{origin} has no such setting; it takes {', '.join(takes) or 'none'}"
        own = "its selection is your own; set its arguments under selection_args"
        yield key, own if is_own else about


def _methods(study: Study) -> Iterator[Problem]:
    """Report settings that belong to another selection."""
    for name, given in study.methods.items():
        place, is_own = ("methods", name), _has_own_selection(study, name)
        if is_sound(study, name):
            for key, about in argument_problems(dict(given), study.origin_of(name), is_own):
                yield (*place, key), about
        if given.selection and name in METHODS:
            about = "a selection of your own needs a name of its own"
            yield (*place, "selection"), f"{about}: methods: {{mine: {{base: {name}, ...}}}}"
        if given.selection_sha256 and not given.selection:
            yield (*place, "selection_sha256"), "only for a method with `selection`; remove it"
        if given.selection_args and not given.selection:
            about = "only beside a `selection` of your own; add it, or write the arguments beside `base`"
            yield (*place, "selection_args"), about


def _bases(study: Study) -> Iterator[Problem]:
    """Report bases that are unknown, or lead in a cycle."""
    cyclic: set[str] = set()
    for name, given in study.methods.items():
        line = study.lineage(name)
        if line[-1] in line[:-1]:
            # Once for a cycle, and not for the methods that only lead into it.
            if line[-1] == name and name not in cyclic:
                about = f"is in a cycle: {' -> '.join(line)}; choose another base"
                yield ("methods", name, "base"), about
                cyclic.update(line)
        elif line[-1] not in METHODS and given.base is None:
            about = f"unknown method {name!r}; choose from {', '.join(METHODS)} or add `base`"
            yield ("methods", name), about
        elif line[-1] not in METHODS and len(line) == 2:
            # An error in a base of the base is reported for that base.
            yield from _unknown(("methods", name, "base"), [line[-1]], [*METHODS, *study.methods])


def _has_own_selection(study: Study, name: str) -> bool:
    line = [study.methods[one] for one in study.lineage(name) if one in study.methods]
    return any(one.selection is not None for one in line)


def _titles(study: Study) -> Iterator[Problem]:
    """Report titles that another row of a table has, or that are those of another method of the suite."""
    rows = {BASE_TITLE: "the base model"}
    for name in dict.fromkeys(study.run.methods):
        if is_sound(study, name) and name.lower() not in RESERVED["methods"]:
            place, title, origin = (
                ("methods", name, "title"),
                study.title(name),
                study.origin_of(name),
            )
            if title in rows:
                yield place, f"{title!r} is also the title of {rows[title]}; choose another"
            elif name in METHODS and origin != name:
                about = f"is based on {origin}, but has the name of another method"
                yield ("methods", name, "base"), f"{about}; choose another name"
            elif other := _mistaken_for(title, origin):
                about = f"{title!r} has the title of {other}, but is based on {origin}"
                yield place, f"{about}; choose another"
            rows.setdefault(title, name)


def _mistaken_for(title: str, origin: str) -> str:
    """Return the method of `stapo.methods` other than `origin` whose title a title contains, or nothing."""

    def plain(text: str) -> str:
        return "".join(filter(str.isalnum, text.casefold()))

    own = {plain(origin), plain(METHODS[origin].title)}
    for other, method in METHODS.items():
        text = plain(method.title)
        # "JustRL-FullMask" is full-mask's own title, although it contains JustRL.
        is_own = any(text in one and one in plain(title) for one in own)
        if other != origin and text in plain(title) and not is_own:
            return other
    return ""


def _batches(study: Study) -> Iterator[Problem]:
    """Report batches that mini-batches do not divide, and penalties for every response."""
    yield from _batch(("training",), study.training)
    own = [name for name, given in study.methods.items() if given.training]
    # Includes methods without settings of their own, since they may inherit some.
    for name in dict.fromkeys([*own, *study.run.methods]):
        if is_sound(study, name) and (training := study.training_of(name)) != study.training:
            for place, about in _batch(("methods", name, "training"), training):
                # Batches are reported where they are set. A method that is not run need not fit a lower
                # max_response_tokens, but what it says may be inherited by one that is.
                is_buffer = place[-1] == "overlong_buffer_tokens"
                if name in (study.run.methods if is_buffer else own):
                    yield place, about


def _batch(place: Place, training: TrainingSettings) -> Iterator[Problem]:
    batch, mini, steps = (
        training.prompts_per_batch,
        training.prompts_per_mini_batch,
        training.steps,
    )
    if batch and mini and batch % mini:
        about = f"{mini} does not divide prompts_per_batch {batch}; choose a divisor"
        yield (*place, "prompts_per_mini_batch"), about
    if steps and mini and steps * mini > MAX_PROMPTS:
        about = f"{steps} steps of {mini} prompts are more than {MAX_PROMPTS} prompts; choose fewer"
        yield ("training", "steps"), about
    buffer, limit = training.overlong_buffer_tokens, training.max_response_tokens
    if buffer and limit and buffer >= limit:
        about = f"{buffer} are not below max_response_tokens {limit}; choose fewer"
        yield (*place, "overlong_buffer_tokens"), about


def _training(study: Study) -> Iterator[Problem]:
    """Report settings without what they belong to: a reward in a file, a verifier."""
    training, evaluation = study.training, study.evaluation
    if training.reward in REWARDS and training.reward_sha256:
        about = f"no file belongs to the reward {training.reward}; remove it"
        yield ("training", "reward_sha256"), about
    if evaluation.verdict == "verifier" and evaluation.verifier is None:
        yield ("evaluation", "verdict"), "verifier, but evaluation.verifier names none; add it"


def _interventions(study: Study) -> Iterator[Problem]:
    """Report interventions at unknown checkpoints, or with a method that silences no candidates."""
    section, place = study.interventions, ("interventions", "checkpoints")
    yield from _repeated(place, section.checkpoints)
    for name in dict.fromkeys(section.checkpoints):
        try:
            found = Checkpoint.parse(name)
        except ValueError:
            about = "expected size/base, size/method/seedK or size/method/seedK/stepN"
            yield place, f"{name!r}: {about}"
            continue
        yield from _unknown(place, [found.size], study.run.sizes)
        if found.run:
            yield from _unknown(place, [found.run.method], study.run.methods)
            yield from _unknown(place, [found.run.seed], study.run.seeds)
        if found.step is not None and study.training.steps and found.step not in study.kept_steps():
            about = "no weights of this step are kept; see training.evaluate_every"
            yield place, f"{name!r}: {about}"
    place = ("interventions", "method")
    if not section.method or section.model_fields_set == set():
        return
    if not is_sound(study, section.method):
        yield from _unknown(place, [section.method], [*METHODS, *study.methods])
        return
    method = study.method(section.method)
    if method.spec.silenced is None:
        silencing = [name for name, one in METHODS.items() if one.spec.silenced]
        yield place, f"{section.method} silences no candidates; choose from {', '.join(silencing)}"
    if method.kl_coefficient > 0:
        about = "has a KL term, whose reference model is no part of a checkpoint"
        yield place, f"{section.method} {about}; choose a method without it"


def size_problems(study: Study) -> Iterator[Problem]:
    """Report a study with more cells than Snakemake can handle."""
    run, curve = study.run, study.evaluation.curve
    trainings = len(run.methods) * len(run.seeds)
    full = len(study.full_steps()) + 1
    full_cells = (1 + trainings * full) * len(run.decodings) * len(study.evaluated())
    points = len(study.kept_steps()) + 1 - full
    curve_cells = trainings * points * len(curve.benchmarks) if curve else 0
    cells = len(run.sizes) * (full_cells + curve_cells)
    if cells > MAX_CELLS:
        about = f"{cells} score files, more than {MAX_CELLS}"
        yield ("run",), f"{about}; choose fewer, or keep weights less often"
