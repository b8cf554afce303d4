"""Types of single settings in a study: allowed text and numbers, with their descriptions in errors."""

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
)

from stapo.suite.answers import READERS_IN_WORDS, is_built_in
from stapo.suite.text import escape, visible


class Strict(BaseModel):
    """Settings in which unknown keys, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean(cls, value: Any) -> Any:
        if isinstance(value, bool) or (
            isinstance(value, list) and any(item is True or item is False for item in value)
        ):
            raise ValueError("no setting is true or false; put text in quotes")
        return value

    def constants(self) -> dict[str, Any]:
        """Return what no study can set and results depend on like on settings: the class variables."""
        return {name: getattr(self, name) for name in sorted(self.__class_vars__)}


def off(description: str, **bounds: Any) -> Any:
    """Return an optional setting that is off by default; it is then in no fingerprint."""
    return Field(None, exclude_if=lambda value: value is None, description=description, **bounds)


def checksum(content: str) -> Any:
    """Return a checksum that a study may state, with which that of some content is compared."""
    message = f"Expected SHA-256 of {content}, as printed by `stapo check`; default: any"
    return Field(None, description=message)


def _visible(text: str) -> str:
    if hidden := [character for character in text if visible(character) != character]:
        raise ValueError(f"the character {escape(hidden[0])} is not allowed; remove it")
    return text


def _visible_lines(text: str) -> str:
    """Return text of one or several lines; raise an error if it has invisible characters."""
    _visible(text.replace("\n", "").replace("\t", ""))
    return text


def in_list(value: Any) -> Any:
    """Return a single text as a list; other values unchanged."""
    return [value] if isinstance(value, str) else value


def unit(name: str) -> Any:
    """Return the unit of a number, as metadata of its type; it is `unit` in the JSON schema."""
    return Field(json_schema_extra={"unit": name})


Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""A seed: NumPy allows 32 bits, and each process of a training adds its rank."""
Steps = Annotated[int, Field(ge=1, le=10**6), unit("optimiser steps")]
Tokens = Annotated[int, Field(ge=1, le=2**20), unit("tokens")]
Rows = Annotated[int, Field(ge=1, le=10**6)]
"""Number of prompts, responses or sequences."""
Prompts = Annotated[int, Field(ge=1, le=10**5), unit("prompts")]
GroupSize = Annotated[int, Field(ge=2, le=1024), unit("responses")]
Gpus = Annotated[int, Field(ge=1, le=1024), unit("GPUs")]
OpenUnit = Annotated[float, Field(gt=0, lt=1)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Temperature = Annotated[float, Field(ge=0.01, le=100)]
"""Temperature: below 0.01 vLLM samples at 0.01, and tiny values divide by zero in float32."""
LearningRate = Annotated[float, Field(ge=1e-12, le=1)]

IN_WORDS: dict[str, str] = {}
"""Pattern of a text -> what it is, for errors."""


def form(pattern: str, words: str, longest: int | None = None) -> Any:
    """Return the form of a text, as metadata of its type."""
    IN_WORDS[pattern] = words
    return StringConstraints(pattern=pattern, max_length=longest)


Visible = AfterValidator(_visible)
_HUB_WORD = "[A-Za-z0-9_]([A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_GGUF = r"^[^\x00-\x1f]*[^\x00-\x1f/]\.gguf$"
PYTHON_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
IN_WORDS[PYTHON_NAME] = "a Python name"
CODE = r"^[^\x00-\x1f]+\.py:[A-Za-z_][A-Za-z0-9_]*$"

Name = Annotated[
    str,
    form(
        r"^[A-Za-z0-9][A-Za-z0-9.+-]*$",
        "letters, digits, dots, plus and minus signs, beginning with a letter or digit",
        120,
    ),
]
"""A name that becomes a directory and a wildcard; no underscore, which separates words in rule names.

It is short enough for a file name (255 bytes) with every prefix and suffix."""
Names = Annotated[list[Name], Field(min_length=1, max_length=1000)]
Line = Annotated[str, StringConstraints(min_length=1, max_length=100), Visible]
TITLE_IN_WORDS = "1 to 40 characters in one line, without spaces at its ends"
Title = Annotated[str, form(r"^\S(.{0,38}\S)?$", TITLE_IN_WORDS), Visible]
HUB_IN_WORDS = (
    "a repository of the Hub as owner/name; of your own, `path:` is a model, `file:` data"
)
HubId = Annotated[str, form(f"^{_HUB_WORD}/{_HUB_WORD}$", HUB_IN_WORDS)]
Revision = Annotated[str, form(r"^([0-9a-f]{40}|main)$", "a commit, 40 hex digits, or main")]
"""A commit; or `main` if it is not known yet, with a warning from `check`."""
Split = Annotated[
    str, form(r"^[A-Za-z0-9_.+:%\[\]-]{1,100}$", "a split, such as train or train[:50%]")
]
LocalFile = Annotated[str, StringConstraints(min_length=1, max_length=4000), Visible]
"""A path; a relative one means the folder of the study file that contains it."""
GgufFile = Annotated[str, form(_GGUF, "a file with the ending .gguf", 4000), Visible]
"""A path like `LocalFile`."""
MemberOfWheel = Annotated[str, StringConstraints(pattern=_GGUF, max_length=500), Visible]
Package = Annotated[
    str, form(r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$", "the name of a package")
]
Version = Annotated[
    str, form(r"^[0-9][A-Za-z0-9.+!_-]{0,98}$", "the version of a package, such as 0.1.2")
]
Code = Annotated[str, form(CODE, "FILE.py:function", 4000), Visible]
"""A function of a study's own; a relative path means the folder of the study file that contains it."""


def _reader(value: Any) -> Any:
    """Return a reader as it is set; raise an error for what names none."""
    if not is_built_in(value) and not (
        isinstance(value, str) and len(value) <= 4000 and re.fullmatch(CODE, value)
    ):
        raise ValueError(f"expected {READERS_IN_WORDS}")
    _visible(value if isinstance(value, str) else "".join(value.values()))
    return value


Reader = Annotated[str | dict[str, str], BeforeValidator(_reader)]
"""How answers are read out of responses: see `stapo.suite.answers`."""
Instruction = Annotated[str, Field(max_length=10_000), AfterValidator(_visible_lines)]
Value = Annotated[
    Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True)] | Line,
    Field(union_mode="left_to_right"),
]
"""A number or a text."""
Flag = Annotated[bool, Field(strict=True)]
PythonName = Annotated[str, form(PYTHON_NAME, "a Python name", 100)]
Domains = Annotated[
    dict[PythonName, dict[PythonName, Flag | Value | list[Value]]],
    Field(
        min_length=1,
        max_length=100,
        description="Tasks of reasoning-gym that give a problem in turn, each with its settings: "
        "{countdown: {min_numbers: 3}, spell_backward: {}}",
    ),
]
Sha256 = Annotated[str, form(r"^[0-9a-f]{64}$", "a SHA-256, 64 hex digits")]
EndTokens = Annotated[
    list[Line],
    Field(
        max_length=100,
        description="Tokens that end a response, in training and evaluation, in addition to the tokenizer's "
        "end token; tokens that the tokenizer lacks are ignored",
    ),
]
Buffer = Annotated[
    Annotated[int, Field(ge=0, le=2**20), unit("tokens")] | None,
    Field(
        description="Number of tokens before the limit over which a penalty falls from 0 to -1; 0: off. "
        "null: off, or inherited in a method"
    ),
]
