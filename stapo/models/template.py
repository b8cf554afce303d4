"""The published wording of a verifier's prompt: fetched, checked, and read out of source that never runs."""

import ast
import os
from collections import Counter
from hashlib import sha256
from pathlib import Path
from string import Formatter

from stapo.files import replace_file
from stapo.hub import persistently
from stapo.study import StudyError
from stapo.study.schema import Template

ADDRESS = "https://raw.githubusercontent.com"
FIELDS = ("question", "gold_answer", "llm_response")
SECONDS = 30.0


def template_text(template: Template) -> str:
    """Return the wording, from the cache or from GitHub.

    Raises:
        StudyError: it cannot be had, is another than the study says, or is no template.
    """
    place = f"{template.github} at {template.revision[:8]}, {template.file}"
    source = _source(template, place)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise StudyError([f"{place}: no Python ({error}); name another file"]) from error
    texts = [
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(name, ast.Name) and name.id == template.name for name in node.targets)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    if len(texts) != 1:
        raise StudyError([f"{place}: {len(texts)} texts called {template.name}, expected one"])
    if _fields(texts[0]) != Counter((name, "", None) for name in FIELDS):
        raise StudyError([f"{place}: {template.name} has not {', '.join(FIELDS)}, each once"])
    return texts[0]


def _fields(text: str) -> Counter[tuple[str | None, str | None, str | None]]:
    """Return the fields of a format string, which may also reach into attributes; none of what is no such."""
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
                f"{place}: not to be had ({error}); run `stapo fetch` where there is a network, or set "
                "evaluation.verifier.template: own for the suite's own wording"
            ]
        ) from error
    if (found := sha256(content).hexdigest()) != template.sha256:
        raise StudyError([f"{place}: has SHA-256 {found}, the study says {template.sha256}"])
    with replace_file(kept, "wb") as stream:
        stream.write(content)
    return content


def _downloaded(template: Template) -> bytes:
    import httpx
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or os.environ.get("HF_DATASETS_OFFLINE"):
        raise FileNotFoundError("not in the cache, and the network is switched off")
    address = f"{ADDRESS}/{template.github}/{template.revision}/{template.file}"

    def get() -> bytes:
        return httpx.get(address, timeout=SECONDS).raise_for_status().content

    return persistently(get)
