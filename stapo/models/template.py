"""The published prompt template of a verifier: downloaded, checked, and parsed; its source never runs."""

import ast
import os
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

RAW_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""Chat template that is the question alone."""


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
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    named = [node for node in assigned if template.name in map(ast.unparse, node.targets)]
    values = [node.value.value for node in named if isinstance(node.value, ast.Constant)]
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) != 1:
        raise StudyError([f"{place}: {len(texts)} strings named {template.name}, expected one"])
    try:
        # Each field by its name alone: an attribute of it would be more than its text.
        fields = [field[1:] for field in Formatter().parse(texts[0]) if field[1] is not None]
    except ValueError:
        fields = []
    if sorted(fields, key=str) != sorted(((name, "", None) for name in FIELDS), key=str):
        names = ", ".join(FIELDS)
        raise StudyError([f"{place}: {template.name} must have the fields {names}, each once"])
    return texts[0]


def _source(template: Template, place: str) -> bytes:
    from httpx import HTTPError
    from huggingface_hub import constants

    kept = Path(constants.HF_HOME) / "stapo" / f"{template.sha256}.py.txt"
    if kept.is_file() and sha256(content := kept.read_bytes()).hexdigest() == template.sha256:
        return content
    try:
        content = _downloaded(template)
    except (OSError, HTTPError) as error:
        remedy = (
            "run `stapo fetch` on a machine with network access, or set evaluation.verifier.template: own "
            "for the suite's own template"
        )
        raise StudyError([f"{place}: cannot be downloaded ({error}); {remedy}"]) from error
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
    return with_retries(lambda: httpx.get(address, timeout=SECONDS).raise_for_status().content)
