"""The published prompt template of a verifier: downloaded, checked, and parsed; its source never runs."""

import ast
import os
from collections import Counter
from hashlib import sha256
from pathlib import Path
from string import Formatter

from stapo.files import replace_file
from stapo.hub import with_retries
from stapo.study import StudyError
from stapo.study.schema import Template

ADDRESS = "https://raw.githubusercontent.com"
FIELDS = ("question", "gold_answer", "llm_response")
SECONDS = 30.0


def template_text(template: Template) -> str:
    """Return the text of a template, from the cache or from GitHub.

    Raises:
        StudyError: it cannot be downloaded, its checksum differs from the study's, or it is no template.
    """
    place = f"{template.github} at {template.revision[:8]}, {template.file}"
    source = _source(template, place)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise StudyError([f"{place}: not Python ({error}); name another file"]) from error
    texts = [
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(name, ast.Name) and name.id == template.name for name in node.targets)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    if len(texts) != 1:
        raise StudyError([f"{place}: {len(texts)} strings named {template.name}, expected one"])
    if _fields(texts[0]) != Counter((name, "", None) for name in FIELDS):
        raise StudyError(
            [f"{place}: {template.name} must have the fields {', '.join(FIELDS)}, each once"]
        )
    return texts[0]


def _fields(text: str) -> Counter[tuple[str | None, str | None, str | None]]:
    """Return the fields of a format string, with attribute access as written; empty if it is invalid."""
    try:
        parsed = list(Formatter().parse(text))
    except ValueError:
        return Counter()
    return Counter((name, spec, how) for _, name, spec, how in parsed if name is not None)


def _source(template: Template, place: str) -> bytes:
    from httpx import HTTPError
    from huggingface_hub import constants

    kept = Path(constants.HF_HOME) / "stapo" / f"{template.sha256}.py.txt"
    if kept.is_file() and sha256(content := kept.read_bytes()).hexdigest() == template.sha256:
        return content
    try:
        content = _downloaded(template)
    except (OSError, HTTPError) as error:
        raise StudyError(
            [
                f"{place}: cannot be downloaded ({error}); run `stapo fetch` on a machine with network "
                "access, or set evaluation.verifier.template: own for the suite's own template"
            ]
        ) from error
    if (found := sha256(content).hexdigest()) != template.sha256:
        raise StudyError([f"{place}: SHA-256 is {found}, expected {template.sha256} (study)"])
    with replace_file(kept, "wb") as stream:
        stream.write(content)
    return content


def _downloaded(template: Template) -> bytes:
    import httpx
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or os.environ.get("HF_DATASETS_OFFLINE"):
        raise FileNotFoundError("not in the cache, and offline mode is on")
    address = f"{ADDRESS}/{template.github}/{template.revision}/{template.file}"

    def get() -> bytes:
        return httpx.get(address, timeout=SECONDS).raise_for_status().content

    return with_retries(get)
