"""The paper's own numbers and claims, with revision and confidence, and what is cited."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CONFIDENCE = {
    "H": "read in a primary text",
    "M": "from secondary copies that agree",
    "L": "inferred",
}


ENTRY = re.compile(r"^@\w+\{([^,\s]+),\n.*?^\}$", re.MULTILINE | re.DOTALL)


@cache
def bibliography() -> dict[str, str]:
    """Return key -> BibTeX entry of `references.bib`."""
    text = (Path(__file__).parent / "references.bib").read_text()
    return {found[1]: found[0] for found in ENTRY.finditer(text)}


@cache
def citations() -> dict[str, Any]:
    """Return the content of `citations.yaml`: what each entry of the bibliography is of."""
    path = Path(__file__).parent / "citations.yaml"
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    return content


@cache
def paper() -> dict[str, Any]:
    """Return the content of `paper.yaml`."""
    content: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "paper.yaml").read_text())
    return content


@cache
def claims() -> list[dict[str, Any]]:
    """Return the content of `claims.yaml`."""
    content: list[dict[str, Any]] = yaml.safe_load(
        (Path(__file__).parent / "claims.yaml").read_text()
    )
    return content


def stated_averages(decoding: str) -> dict[str, dict[str, float]]:
    """Return size -> method -> the average that the paper states, in percent."""
    return {
        size: {method: row[-1] for method, row in methods.items()}
        for size, methods in paper()["table"][decoding].items()
    }


def confidence(letter: str) -> str:
    """Return how sure a number of `paper.yaml` is, in words."""
    return CONFIDENCE[letter]
