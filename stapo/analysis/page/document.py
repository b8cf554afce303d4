"""The page as one file: scripts and data inside it, its security policy, and static images."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from stapo.analysis.formats import TEMPLATES
from stapo.files import AGAIN, DamagedFileError

PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
SVG_START, SVG_END = b"<?xml", b"</svg>"
FORMS = {"svg": (SVG_START, SVG_END, "svg+xml"), "png": (PNG_START, PNG_END, "png")}
"""Suffix -> how the file begins and ends, and its media type."""


def script(name: str) -> Markup:
    """Return a script of the templates, to stand between script tags."""
    return Markup((TEMPLATES / name).read_text())


@cache
def plotly() -> Markup:
    """Return Plotly, to stand between script tags."""
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())


def policy(scripts: Iterable[str]) -> str:
    """Return the Content-Security-Policy of a page: only these scripts run, and nothing is fetched.

    Plotly sets styles of elements, and makes images of charts as data and blob addresses.
    """
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def json_block(value: Any) -> Markup:
    """Return a value as JSON to stand between script tags: without `<`, which could end the script."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def static_image(files: Mapping[str, Path]) -> str:
    """Return the smaller one of a figure's SVG and PNG as an address for an image.

    Raises:
        DamagedFileError: one of them is missing, truncated or corrupt.
    """
    images = {suffix: _image(path, suffix) for suffix, path in files.items() if suffix in FORMS}
    suffix = min(images, key=lambda found: len(images[found]))
    return f"data:image/{FORMS[suffix][2]};base64,{base64.b64encode(images[suffix]).decode()}"


def _image(path: Path, suffix: str) -> bytes:
    try:
        image = path.read_bytes()
    except FileNotFoundError as error:
        raise DamagedFileError(f"{path}: missing; run snakemake") from error
    start, end, _ = FORMS[suffix]
    if not (image.startswith(start) and image.rstrip().endswith(end)):
        raise DamagedFileError(f"{path}: truncated or corrupt, no {suffix.upper()}; {AGAIN}")
    return image
