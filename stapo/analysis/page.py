"""A page as one file: scripts and data inside it, and its security policy."""

import base64
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from markupsafe import Markup

from stapo.analysis.formats import TEMPLATES


def script(name: str) -> Markup:
    """Return a script of the templates, to stand between script tags."""
    return Markup((TEMPLATES / name).read_text())


@cache
def vega() -> Markup:
    """Return Vega, Vega-Lite and vegaEmbed, to stand between script tags."""
    import vl_convert

    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def policy(scripts: Iterable[str]) -> str:
    """Return the Content-Security-Policy of a page: only these scripts run, and nothing is fetched.

    vegaEmbed sets styles of elements.
    """
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def json_block(value: Any) -> Markup:
    """Return a value as JSON to stand between script tags: without `<`, which could end the script."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
