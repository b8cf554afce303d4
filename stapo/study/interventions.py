"""The section `interventions` of a study file."""

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from stapo.study.fields import Name, Rows, Strict, unit


class Interventions(Strict):
    """Single updates of checkpoints with and without silencing, by `stapo run intervene`."""

    seed: ClassVar[int] = 0
    """Seed of rollouts and prompts."""
    checkpoints: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=400)]],
        Field(max_length=1000),
    ] = Field(
        [], description="size/base, size/method/seedK or size/method/seedK/stepN; default: none"
    )
    method: Name = Field("stapo", description="Method whose selection silences tokens")
    repetitions: Annotated[int, Field(ge=2, le=1000), unit("rollouts")] = Field(
        8, description="Rollouts with other prompts and seeds, with one update of each arm"
    )
    prompts: Annotated[Rows, unit("prompts")] = Field(
        32, description="Prompts of a repetition on which entropy and reward are measured"
    )
