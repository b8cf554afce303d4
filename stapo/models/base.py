"""The base model of a size: built from scratch, or copied from a folder or the Hub at a pinned revision.

The published prompt template of a verifier is downloaded, checked, and parsed; its source never runs.
"""

import ast
import shutil
from hashlib import sha256
from pathlib import Path
from string import Formatter
from typing import Any

from pydantic import TypeAdapter

from stapo.files import replace_directory, replace_file, write_json
from stapo.hub import from_hub
from stapo.paths import VERIFIER_TEMPLATE
from stapo.provenance import write_sums
from stapo.study import StudyError
from stapo.study.files import FILES, SOURCE, model_checksum, model_files
from stapo.study.schema import Template
from stapo.study.sources import FolderModel, HubModel, Model, TinyModel

ADDRESS = "https://raw.githubusercontent.com"
FIELDS = ("question", "gold_answer", "llm_response")
"""Of a verifier's template."""
SECONDS = 30.0


def write_base(config: dict[str, Any], path: Path, template: Template | None = None) -> None:
    """Write a base model and its tokenizer to a directory, atomically.

    Args:
        config: a value of `Study.models`: settings of a tiny model, `hub` and `revision`, or the absolute
            `path` of a folder and its `sha256`.
        path: the directory.
        template: prompt template of a verifier; it is written beside the weights.

    Raises:
        StudyError: a folder changed.
    """
    model: HubModel | FolderModel | TinyModel = TypeAdapter(Model).validate_python(config)
    with replace_directory(path) as aside:
        if isinstance(model, TinyModel):
            from stapo.models.tiny import build_tiny

            build_tiny(model, aside)
        else:
            _copy(model, aside)
        if template:
            about = {**template.model_dump(), "text": template_text(template)}
            write_json(aside / VERIFIER_TEMPLATE, about)
        write_sums(aside)


def cached(model: HubModel) -> Path:
    """Return the directory of a model in the Hub's cache; missing files are downloaded first."""
    from huggingface_hub import snapshot_download

    def download() -> str:
        return snapshot_download(model.hub, revision=model.revision, allow_patterns=[*FILES])

    return Path(from_hub(download))


def _copy(model: FolderModel | HubModel, path: Path) -> None:
    """Copy the files of a model to a directory."""
    if isinstance(model, FolderModel):
        files = model_files(Path(model.path))
    else:
        # Copied from the cache: files that `stapo fetch` downloaded need no network.
        snapshot = cached(model)
        files = sorted(file for file in snapshot.iterdir() if file.is_file())
        # The Hub's client names a snapshot by its commit, even if a branch was requested.
        write_json(path / SOURCE, {**model.model_dump(), "commit": snapshot.name})
    for source in files:
        shutil.copyfile(source, path / source.name)
    if isinstance(model, FolderModel) and model_checksum(path) != model.sha256:
        about = "its files changed since the study was read; run snakemake again"
        raise StudyError([f"{model.path}: {about}"])


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
    import httpx
    from huggingface_hub import constants

    kept = Path(constants.HF_HOME) / "stapo" / f"{template.sha256}.py.txt"
    if kept.is_file() and sha256(content := kept.read_bytes()).hexdigest() == template.sha256:
        return content
    try:
        if constants.HF_HUB_OFFLINE:
            raise FileNotFoundError("not in the cache, and offline mode is on")
        address = f"{ADDRESS}/{template.github}/{template.revision}/{template.file}"
        content = from_hub(lambda: httpx.get(address, timeout=SECONDS).raise_for_status().content)
    except (OSError, RuntimeError, httpx.HTTPError) as error:
        remedy = (
            "run `stapo fetch` where there is a network, or set evaluation.verifier.template: own"
        )
        raise StudyError([f"{place}: cannot be downloaded ({error}); {remedy}"]) from error
    if (found := sha256(content).hexdigest()) != template.sha256:
        raise StudyError([f"{place}: SHA-256 is {found}, expected {template.sha256} (study)"])
    with replace_file(kept, "wb") as stream:
        stream.write(content)
    return content
