"""The paper's own numbers and claims, with revision and confidence."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
CONFIDENCE = {
    "H": "read in a primary text",
    "M": "from secondary copies that agree",
    "L": "inferred",
}


@cache
def paper() -> Any:
    """Return the content of `paper.yaml`."""
    return yaml.safe_load(_text("paper.yaml"))


@cache
def claims() -> Any:
    """Return the content of `claims.yaml`."""
    return yaml.safe_load(_text("claims.yaml"))


def _text(name: str) -> str:
    return (FOLDER / name).read_text()


def confidence(letter: str) -> str:
    """Return how sure a number of `paper.yaml` is, in words."""
    return CONFIDENCE[letter]
