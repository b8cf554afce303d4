"""The types of single settings in a study: what text and numbers may be, and how errors call it."""

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from stapo.text import refused

NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+\s*", re.ASCII)
"""Text to YAML 1.1, a number to YAML 1.2 and to everybody who writes it, such as 1e-6."""
PERIODIC = re.compile(r"(.+)\1{19}$")
"""Snakemake takes such a wildcard for an endless recursion."""
NOT_IN_HUB_IDS = ("--", "..")


def _numeric(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return float(value) if isinstance(value, str) and NUMBER.fullmatch(value[:40]) else value


def _visible(text: str) -> str:
    if character := refused(text):
        raise ValueError(f"the character U+{ord(character):04X} is not allowed; remove it")
    return text


def visible_lines(text: str) -> str:
    """Return text that may have several lines, all of it visible; otherwise an error."""
    _visible(text.replace("\n", "").replace("\t", ""))
    return text


def _hub_id(text: str) -> str:
    if any(part in text for part in NOT_IN_HUB_IDS) or text.endswith(".git"):
        raise ValueError("the Hub allows no --, no .. and no .git at the end")
    return text


def _not_periodic(name: str) -> str:
    if PERIODIC.search(name):
        raise ValueError("Snakemake takes no name that ends with 20 repetitions; choose another")
    return name


def address(text: str) -> str:
    """Return the address of a server; otherwise an error."""
    found = urlsplit(text)
    if found.scheme not in ("http", "https") or not found.hostname or found.port == 0:
        raise ValueError("expected an address such as http://127.0.0.1:8000")
    return text


def in_list(value: Any) -> Any:
    """Return a list of one text for the text."""
    return [value] if isinstance(value, str) else value


def even_heads(heads: int) -> int:
    """Return a number of query heads of which half can be key-value heads; otherwise an error."""
    if heads % max(heads // 2, 1):
        raise ValueError("half of the heads are key-value heads; choose an even number")
    return heads


_HUB_WORD = "[A-Za-z0-9_]([A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"

Whole = Annotated[int, BeforeValidator(_numeric)]
Real = Annotated[float, BeforeValidator(_numeric)]
Seed = Annotated[Whole, Field(ge=0, le=2**31 - 1)]
"""NumPy takes 32 bits, and each process of a training adds its number."""
Steps = Annotated[Whole, Field(ge=1, le=10**6)]
Tokens = Annotated[Whole, Field(ge=1, le=2**20)]
Rows = Annotated[Whole, Field(ge=1, le=10**6)]
"""Prompts, responses or sequences that are held together."""
Gpus = Annotated[Whole, Field(ge=1, le=1024)]
OpenUnit = Annotated[Real, Field(gt=0, lt=1)]
Fraction = Annotated[Real, Field(gt=0, le=1)]
Temperature = Annotated[Real, Field(ge=0.01, le=100)]
"""Below 0.01 vLLM samples at 0.01, and far below float32 divides by zero."""
LearningRate = Annotated[Real, Field(ge=1e-12, le=1)]

NAME = r"^[A-Za-z0-9][A-Za-z0-9.+-]*$"
TITLE = r"^\S(.{0,38}\S)?$"
HUB_ID = f"^{_HUB_WORD}/{_HUB_WORD}$"
REVISION = r"^([0-9a-f]{40}|main)$"
SPLIT = r"^[A-Za-z0-9_.+:%\[\]-]{1,100}$"
COMMIT = r"^[0-9a-f]{40}$"
SHA256 = r"^[0-9a-f]{64}$"
REPOSITORY_FILE = r"^\w[\w.-]*(/\w[\w.-]*)*$"
PYTHON_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
REWARDS = ("boxed", "dapo")
"""Training rewards of our own: +1 for a right answer, -1 for any other response."""
_WORD = PYTHON_NAME.strip("^$")
REWARD = rf"^({'|'.join(REWARDS)}|{_WORD}(\.{_WORD})*:{_WORD})$"
IN_WORDS = {
    NAME: "letters, digits, dots, plus and minus signs, beginning with a letter or digit",
    TITLE: "1 to 40 characters in one line, without spaces at its ends",
    HUB_ID: "a repository of the Hub as owner/name",
    REVISION: "a commit, 40 hex digits, or main",
    SPLIT: "a split, such as train or train[:50%]",
    COMMIT: "a commit, 40 hex digits",
    SHA256: "a SHA-256, 64 hex digits",
    REPOSITORY_FILE: "a file's path in its repository, such as src/prompts.py",
    PYTHON_NAME: "a name of Python's",
    REWARD: f"{', '.join(REWARDS)}, or package.module:function",
}
"""What the patterns say, for errors."""

Name = Annotated[
    str, StringConstraints(pattern=NAME, max_length=120), AfterValidator(_not_periodic)
]
"""Becomes a directory and a wildcard; no underscore, which separates the words of rule names.

So short that a file system takes it with every prefix and suffix (255 bytes)."""
Line = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_visible)]
Title = Annotated[str, StringConstraints(pattern=TITLE), AfterValidator(_visible)]
HubId = Annotated[str, StringConstraints(pattern=HUB_ID), AfterValidator(_hub_id)]
Revision = Annotated[str, StringConstraints(pattern=REVISION)]
"""A commit; `main` where none is known yet, of which `check` and `doctor` warn."""
Sha256 = Annotated[str, StringConstraints(pattern=SHA256)]
EndTokens = Annotated[
    list[Line],
    Field(
        max_length=100,
        description="Tokens that end a response, in training and evaluation, besides the tokenizer's "
        "own, where it has them",
    ),
]
Buffer = Annotated[
    Annotated[Whole, Field(ge=0, le=2**20)] | None,
    Field(
        description="Last tokens below the limit over which a penalty falls from 0 to -1; 0 is off. "
        "null: off, or of a method what it inherits"
    ),
]
