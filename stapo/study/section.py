"""What all sections of a study file have in common. No torch here."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Settings in which unknown keys, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def unset(value: Any) -> bool:
    """Return whether an optional setting is off; it is then in no fingerprint."""
    return value is None
