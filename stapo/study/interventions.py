"""The section `interventions` of a study file, and its checks on raw input."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from stapo.methods import METHODS
from stapo.study.checkpoint import Checkpoint
from stapo.study.fields import Name, Rows, Seed, Whole, unit
from stapo.study.raw import (
    SEED,
    STEPS,
    base_of,
    has_own_selection,
    lineage,
    list_in,
    names_in,
    number_of,
    repeated_names,
    section_of,
)
from stapo.study.section import Strict
from stapo.study.validation import Problem


class Interventions(Strict):
    """Single updates of checkpoints with and without silencing, by `stapo intervene`."""

    checkpoints: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=400)]],
        Field(max_length=1000),
    ] = Field(
        [], description="size/base, size/method/seedK or size/method/seedK/stepN; default: none"
    )
    method: Name = Field("stapo", description="Method whose selection silences tokens")
    repetitions: Annotated[Whole, Field(ge=2, le=1000), unit("rollouts")] = Field(
        8, description="Rollouts with other prompts and seeds, with one update of each arm"
    )
    prompts: Annotated[Rows, unit("prompts")] = Field(
        32, description="Prompts of a repetition on which entropy and reward are measured"
    )
    seed: Seed = Field(0, description="Seed of rollouts and prompts")


def intervention_problems(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield interventions at unknown checkpoints, or with a method that silences no candidates.

    Args:
        raw: the merged study, which may have any structure.
    """
    section = section_of(raw, "interventions")
    place, names = ("interventions", "checkpoints"), names_in(section, "checkpoints")
    yield from repeated_names(place, names, str, "")
    for name in dict.fromkeys(names):
        if fault := _checkpoint_fault(raw, name):
            yield place, f"{name!r}: {fault}"
    method = section.get("method", "stapo")
    if not section or not isinstance(method, str):
        return
    place, line = ("interventions", "method"), lineage(raw, method)
    known = [one for one in line if isinstance(one, str)]
    origin = next((one for one in known if one in METHODS and base_of(raw, one) == one), None)
    if origin is None:
        yield place, f"unknown method {method!r}; choose from {', '.join(METHODS)}"
    elif METHODS[origin].spec.silenced is None or has_own_selection(raw, line):
        silencing = [name for name, one in METHODS.items() if one.spec.silenced]
        yield place, f"{method} silences no candidates; choose from {', '.join(silencing)}"
    own = [section_of(raw, "methods", one).get("kl_coefficient") for one in known]
    shared = section_of(raw, "all_methods").get("kl_coefficient")
    kl = next((one for one in [*own, shared] if one is not None), 0)
    if isinstance(kl, int | float) and kl > 0:
        about = "has a KL term, whose reference model is no part of a checkpoint"
        yield place, f"{method} {about}; choose a method without it"


def _checkpoint_fault(raw: Mapping[str, Any], name: str) -> str | None:
    """Return why a text does not name weights that the study keeps, None if it does."""
    run, training = section_of(raw, "run"), section_of(raw, "training")
    try:
        found = Checkpoint.parse(name)
    except ValueError:
        return "expected size/base, size/method/seedK or size/method/seedK/stepN"
    seeds = [number_of(seed, SEED) for seed in list_in(raw, "run", "seeds")]
    parts: dict[str, tuple[Any, list[Any]]] = {
        "size": (found.size, names_in(run, "sizes")),
        "method": (found.method, names_in(run, "methods")),
        "seed": (found.seed, seeds),
    }
    for part, (value, known) in parts.items():
        if value is not None and value not in known:
            return f"unknown {part}; known: {', '.join(map(str, known))}"
    every = training.get("evaluate_every"), section_of(raw, "evaluation", "curve").get("every")
    periods = [period for value in every if (period := number_of(value, STEPS))]
    steps = number_of(training.get("steps"), STEPS)
    if found.step is not None and steps is not None:
        kept = 0 < found.step < steps and any(found.step % period == 0 for period in periods)
        if not kept:
            return "no weights of this step are kept; see training.evaluate_every"
    return None
