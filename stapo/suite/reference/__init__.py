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
"""How sure a number of `paper.yaml` is, in words."""


@cache
def paper() -> Any:
    """Return the content of `paper.yaml`."""
    return yaml.safe_load((FOLDER / "paper.yaml").read_text(encoding="utf-8"))


@cache
def claims() -> Any:
    """Return the content of `claims.yaml`."""
    return yaml.safe_load((FOLDER / "claims.yaml").read_text(encoding="utf-8"))
