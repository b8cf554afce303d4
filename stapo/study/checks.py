"""Checks across the fields of a study: names that must exist or differ, values that must be compatible.

They work on raw input, so that their errors are reported together with those of single fields.
"""

import re
from collections.abc import Iterator, Mapping
from functools import reduce
from math import lcm, prod
from typing import Any

from stapo.methods import BASELINES, METHODS, TARGETS, compared, selection_arguments
from stapo.study.fields import REWARD, REWARDS
from stapo.study.raw import (
    SEED,
    STEPS,
    base_of,
    given_in,
    has_own_selection,
    lineage,
    list_in,
    names_in,
    number_of,
    repeated_names,
    section_of,
)
from stapo.study.validation import Problem, shown

RESERVED = {
    "methods": {"base": "the row of the base model"},
    "models": dict.fromkeys(("verifier", "verifier.json"), "the files of the verifier"),
}
"""Section -> reserved name in it -> use of that name."""
BASE_TITLE = "Base"
MAX_CELLS = 50_000
"""Maximum number of score files of a study; Snakemake keeps a job for each in memory."""
MAX_PROMPTS = 10**7
"""Maximum number of prompts of a training, with repetition; their order is kept in memory."""

Tasks = Mapping[str, Mapping[str, Any]]
"""Benchmark -> its lm-eval task."""


def slug(name: str) -> str:
    """Return a name in the form in which rule names contain it."""
    return re.sub(r"\W", "_", name)


def cross_problems(raw: Mapping[str, Any], tasks: Tasks) -> Iterator[Problem]:
    """Yield the problems between the fields of a study.

    Args:
        raw: the merged study, which may have any structure.
        tasks: the available benchmarks.
    """
    yield from _unknown_names(raw, tasks)
    yield from _unknown_sizes(raw)
    yield from _equal_names(raw)
    yield from _reserved_names(raw)
    yield from _few_samples(raw, tasks)
    yield from _selection(raw)
    yield from _curve(raw)
    yield from _verdict(raw)
    yield from _compare(raw)
    yield from method_problems(raw)
    yield from _equal_titles(raw)
    yield from _batches(raw)
    yield from _rewards(raw)
    yield from _rollouts(raw)
    yield from _amounts(raw)


def _known(raw: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the known names for each list of `run`."""
    return {
        "sizes": names_in(section_of(raw, "models")),
        "methods": list(dict.fromkeys([*METHODS, *names_in(section_of(raw, "methods"))])),
        "decodings": names_in(section_of(raw, "decodings")),
        "benchmarks": names_in(section_of(raw, "benchmarks")),
    }


def _unknown_sizes(raw: Mapping[str, Any]) -> Iterator[Problem]:
    known = names_in(section_of(raw, "models"))
    for size in names_in(section_of(section_of(raw, "engine"), "sizes")):
        if size not in known:
            yield ("engine", "sizes", size), f"unknown size {size!r}; known: {', '.join(known)}"


def _unknown_names(raw: Mapping[str, Any], tasks: Tasks) -> Iterator[Problem]:
    known = _known(raw)
    for key, choices in known.items():
        for name in dict.fromkeys(names_in(section_of(raw, "run"), key)):
            if name not in choices:
                yield ("run", key), f"unknown name {name!r}; known: {', '.join(choices)}"
    for name in known["benchmarks"]:
        settings = section_of(raw, "benchmarks")[name]
        if not isinstance(settings, Mapping):
            continue  # Reported as no section.
        if name not in tasks and settings.get("file") is None:
            about = f"no task of this name in benchmarks/; known: {', '.join(tasks)}"
            yield ("benchmarks", name), f"{about}; or name a `file` of your own"


def _equal_names(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Report names that give the same path, or the same rule of Snakemake."""
    run = section_of(raw, "run")
    file = "are the same name on a file system that ignores case; rename one"
    rule = "become the same rule name, where . + and - are _ and case is ignored; rename one"
    for key in ("sizes", "benchmarks"):
        yield from repeated_names(("run", key), names_in(run, key), str.lower, file)
    for key in ("methods", "decodings"):
        yield from repeated_names(
            ("run", key), names_in(run, key), lambda name: slug(name).lower(), rule
        )
    for place in (("evaluation", "development"), ("evaluation", "curve", "benchmarks")):
        yield from repeated_names(
            place, names_in(section_of(raw, *place[:-1]), place[-1]), str.lower, file
        )
    seeds = [number_of(seed, SEED) for seed in list_in(raw, "run", "seeds")]
    yield from repeated_names(
        ("run", "seeds"), [str(one) for one in seeds if one is not None], str, ""
    )


def _reserved_names(raw: Mapping[str, Any]) -> Iterator[Problem]:
    for section, owners in RESERVED.items():
        for name in names_in(section_of(raw, section)):
            if owner := owners.get(name.lower()):
                yield (section, name), f"this name is reserved for {owner}; choose another"
    own = raw.get("name")
    if isinstance(own, str) and own.lower() == "readme.md":
        yield ("name",), "this name is reserved for results/README.md; choose another"


def _few_samples(raw: Mapping[str, Any], tasks: Tasks) -> Iterator[Problem]:
    """Report numbers of samples that are too small for a benchmark with few problems."""
    for name in names_in(section_of(raw, "benchmarks")):
        samples = number_of(section_of(raw, "benchmarks", name).get("samples"))
        least = tasks.get(name, {}).get("metadata", {}).get("minimum_samples", 1)
        if samples is not None and 0 < samples < least:
            about = f"{samples} are too few for its number of problems; use at least {least}"
            yield ("benchmarks", name, "samples"), about


def _selection(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Report settings with which checkpoints cannot be chosen, or are chosen on test benchmarks."""
    evaluation, training = section_of(raw, "evaluation"), section_of(raw, "training")
    if not (evaluation and training):
        return
    known, tested = _known(raw)["benchmarks"], names_in(section_of(raw, "run"), "benchmarks")
    development = names_in(evaluation, "development")
    for name in dict.fromkeys(development):
        place = ("evaluation", "development")
        if name not in known:
            yield place, f"unknown name {name!r}; known: {', '.join(known)}"
        if name.lower() in map(str.lower, tested):
            about = (
                f"{name!r} is also in run.benchmarks; no table may show what chose its checkpoints"
            )
            yield place, about
    place, select = ("evaluation", "select"), evaluation.get("select", "last")
    every, steps = (number_of(training.get(key), STEPS) for key in ("evaluate_every", "steps"))
    if select == "development" and not development:
        yield place, "development, but evaluation.development is empty; fill it"
    if select != "last" and not every:
        yield place, "needs training.evaluate_every; add it"
    step = number_of(select, STEPS)
    if step and every and steps:
        kept = step == steps or step in range(every, steps, every)
        if not kept:
            about = f"choose a multiple of {every} below {steps}, or last"
            yield place, f"no weights of step {step} are kept; {about}"


def _curve(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Report benchmarks or decodings of the curve with which other checkpoints are not evaluated."""
    curve, run = section_of(raw, "evaluation", "curve"), section_of(raw, "run")
    answered = [
        *names_in(run, "benchmarks"),
        *names_in(section_of(raw, "evaluation"), "development"),
    ]
    for name in dict.fromkeys(names_in(curve, "benchmarks")):
        if name not in answered:
            about = f"{name!r} is neither in run.benchmarks nor in evaluation.development"
            yield ("evaluation", "curve", "benchmarks"), f"{about}; add it, or set curve: null"
    decoding = curve.get("decoding")
    if isinstance(decoding, str) and decoding not in names_in(run, "decodings"):
        about = f"{decoding!r} is not in run.decodings; add it, or set curve: null"
        yield ("evaluation", "curve", "decoding"), about


def _verdict(raw: Mapping[str, Any]) -> Iterator[Problem]:
    evaluation = section_of(raw, "evaluation")
    # An empty section is a verifier with default settings.
    if evaluation.get("verdict") == "verifier" and evaluation.get("verifier") is None:
        yield (
            ("evaluation", "verdict"),
            "verifier, but evaluation.verifier names none; add it",
        )


def _compare(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Report comparisons of methods that are not run, without a baseline, or of a method with itself."""
    if "compare" in raw and raw["compare"] is None:
        return
    section, run = section_of(raw, "compare"), names_in(section_of(raw, "run"), "methods")
    target = section.get("target")
    targets = [target] if isinstance(target, str) else names_in(section, "target")
    baselines = names_in(section, "baselines")
    for key, names in (("target", targets), ("baselines", baselines)):
        yield from repeated_names(("compare", key), names, str, "")
        for name in dict.fromkeys(names):
            if name not in run:
                about = f"{name!r} is not in run.methods ({', '.join(run)}); add it there"
                yield ("compare", key), f"{about}, or choose another"
    ours, theirs = compared(run, targets, baselines)
    for name in dict.fromkeys(ours):
        if theirs == [name] and name in run:
            yield (("compare", "baselines"), f"{name!r} has no baseline but itself; add another")
    if targets and run and not theirs:
        about = f"run.methods has none of {', '.join(BASELINES)} beside the target; name baselines"
        yield ("compare", "baselines"), about
    if baselines and run and not ours:
        yield ("compare", "target"), f"run.methods has none of {', '.join(TARGETS)}; name a target"


def method_problems(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of `methods`: unknown ones, cycles, arguments of another selection."""
    cyclic: set[str] = set()
    for name in names_in(section_of(raw, "methods")):
        settings = section_of(raw, "methods", name)
        base = settings.get("base")
        place: tuple[str, ...] = ("methods", name) if base is None else ("methods", name, "base")
        line = lineage(raw, name)
        if line[-1] in line[:-1]:
            # Once for a cycle, and not for the methods that only lead into it.
            if line[-1] == name and name not in cyclic:
                yield place, f"is in a cycle: {' -> '.join(line)}; choose another base"
                cyclic.update(line)
            continue
        if not isinstance(line[-1], str) or line[-1] not in METHODS:
            # An error in a base of the base is reported for that base.
            if len(line) <= 2:
                hint = " or add `base`" if base is None else ""
                about = f"unknown method {shown(line[-1])}; choose from {', '.join(METHODS)}{hint}"
                yield place, about
            continue
        origin = next(one for one in line if one in METHODS and base_of(raw, one) == one)
        takes = METHODS[origin].spec.arguments
        own = has_own_selection(raw, line)
        for key in selection_arguments():
            if settings.get(key) is not None and (own or key not in takes):
                about = f"{origin} has no such setting; it takes {', '.join(takes) or 'none'}"
                if own:
                    about = "its selection is your own; set its arguments under selection_args"
                yield ("methods", name, key), about


def _equal_titles(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Report equal titles, with which the rows of a table could not be distinguished."""
    rows = {BASE_TITLE: "the base model"}
    for name in dict.fromkeys(names_in(section_of(raw, "run"), "methods")):
        settings = section_of(raw, "methods", name)
        title = settings.get("title") or (METHODS[name].title if name in METHODS else name)
        if settings.get("base") not in (None, name) and not settings.get("title"):
            title = name
        if not isinstance(title, str) or name.lower() in RESERVED["methods"]:
            continue
        if title in rows:
            about = f"{title!r} is also the title of {rows[title]}; choose another"
            yield ("methods", name, "title"), about
        rows.setdefault(title, name)


def _batches(raw: Mapping[str, Any]) -> Iterator[Problem]:
    shared = section_of(raw, "training")
    yield from _batch_problems(("training",), shared)
    yield from _overlong_problems(("training",), shared)
    run = names_in(section_of(raw, "run"), "methods")
    # Includes methods that are run without settings of their own, since they may inherit some.
    for name in dict.fromkeys([*names_in(section_of(raw, "methods")), *run]):
        line = [one for one in reversed(lineage(raw, name)) if isinstance(one, str)]
        own = [given_in(section_of(raw, "methods", one, "training")) for one in line]
        training = reduce(lambda base, update: {**base, **update}, own, {**shared})
        place = ("methods", name, "training")
        if own[-1]:
            yield from _batch_problems(place, training)
        # A method that is not run need not fit a lower max_response_tokens.
        if name in run and any("overlong_buffer_tokens" in one for one in own):
            yield from _overlong_problems(place, training)


def _batch_problems(place: tuple[str, ...], training: Mapping[str, Any]) -> Iterator[Problem]:
    keys = ("prompts_per_batch", "prompts_per_mini_batch", "steps")
    batch, mini, steps = (number_of(training.get(key), STEPS) for key in keys)
    if batch is None or mini is None:
        return
    if batch % mini:
        about = f"{mini} does not divide prompts_per_batch {batch}; choose a divisor"
        yield (*place, "prompts_per_mini_batch"), about
    if steps is not None and steps * mini > MAX_PROMPTS:
        about = f"{steps} steps of {mini} prompts are more than {MAX_PROMPTS} prompts; choose fewer"
        yield ("training", "steps"), about


def _overlong_problems(place: tuple[str, ...], training: Mapping[str, Any]) -> Iterator[Problem]:
    """Report a buffer with which all responses would get a penalty."""
    keys = ("overlong_buffer_tokens", "max_response_tokens")
    buffer, limit = (number_of(training.get(key)) for key in keys)
    if buffer is not None and limit is not None and buffer >= limit > 0:
        about = f"{buffer} are not below max_response_tokens {limit}; choose fewer"
        yield (*place, "overlong_buffer_tokens"), about


def _rewards(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Report a reward function without checksum, which could change unnoticed."""
    training = section_of(raw, "training")
    reward, sha256 = training.get("reward"), training.get("reward_sha256")
    if isinstance(reward, str) and ":" in reward and re.fullmatch(REWARD, reward):
        if sha256 is None:
            # Not where reward_sha256 is missing: the file that names the reward may be another.
            about = f"{reward}: not found; install its package"
            yield ("training", "reward"), f"{about}, or give what sha256sum prints as reward_sha256"
    elif sha256 is not None and reward in (None, *REWARDS):
        place = ("training", "reward_sha256")
        yield place, f"no file belongs to the reward {reward or REWARDS[0]}; remove it"


def _rollouts(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Report settings for the log-probs of vLLM in a study whose rollouts have none."""
    training = section_of(raw, "training")
    if training.get("rollouts", "transformers") == "transformers":
        for key in ("rollout_mismatch_limit", "rollout_correction"):
            if training.get(key) is not None:
                yield (
                    ("training", key),
                    "only for rollouts with vLLM; remove it, or change rollouts",
                )


def _amounts(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Report a study with more cells than Snakemake can handle."""
    training, run = section_of(raw, "training"), section_of(raw, "run")
    curve = section_of(raw, "evaluation", "curve")
    every, steps = (number_of(training.get(key), STEPS) for key in ("evaluate_every", "steps"))
    full = -(-steps // every) if steps and every else 1
    points = _curve_points(steps, every, number_of(curve.get("every"), STEPS))
    counts = {key: len(list_in(raw, "run", key)) for key in run}
    runs = prod(counts.get(key, 0) for key in ("methods", "seeds"))
    tests = counts.get("benchmarks", 0) + len(list_in(raw, "evaluation", "development"))
    full_cells = (1 + runs * full) * counts.get("decodings", 0) * tests
    curve_cells = runs * points * len(list_in(raw, "evaluation", "curve", "benchmarks"))
    cells = counts.get("sizes", 0) * (full_cells + curve_cells)
    if cells > MAX_CELLS:
        about = (
            f"{cells} score files, more than {MAX_CELLS}; choose fewer, or keep weights less often"
        )
        yield ("run",), about


def _curve_points(steps: int | None, every: int | None, curve_every: int | None) -> int:
    """Return the number of steps before the last whose weights are kept only for the curve."""
    if not (steps and curve_every):
        return 0
    both = (steps - 1) // lcm(curve_every, every) if every else 0
    return (steps - 1) // curve_every - both
