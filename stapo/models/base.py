"""The base model of a size: built from scratch, or copied from a folder or the Hub at a pinned revision."""

import shutil
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from stapo.files import replace_directory, write_json
from stapo.hub import with_retries
from stapo.models.template import RAW_TEMPLATE, template_text
from stapo.paths import VERIFIER_TEMPLATE
from stapo.provenance import write_sums
from stapo.study import StudyError
from stapo.study.files import FILES, SOURCE, model_checksum, model_files
from stapo.study.schema import Template
from stapo.study.sources import FolderModel, HubModel, Model, TinyModel
from stapo.text import plain

TEMPLATE_FILE = "chat_template.jinja"
"""File that Transformers prefers to the template in tokenizer_config.json."""


def write_base(config: dict[str, Any], path: Path, template: Template | None = None) -> None:
    """Write a base model and its tokenizer to a directory, atomically.

    Args:
        config: a value of `Study.models`: settings of a tiny model, `hub` and `revision`, or the absolute
            `path` of a folder and its `sha256`.
        path: the directory.
        template: prompt template of a verifier; it is written beside the weights.

    Raises:
        StudyError: a folder changed, or the chat template fails or leaves the question out.
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

    return Path(with_retries(download))


def _copy(model: FolderModel | HubModel, path: Path) -> None:
    """Copy the files of a model to a directory, and write its chat template if the study has one."""
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
    if isinstance(model, FolderModel) and model_checksum(path, known=None) != model.sha256:
        about = "its files changed since the study was read; run snakemake again"
        raise StudyError([f"{model.path}: {about}"])
    if model.chat_template:
        text = RAW_TEMPLATE if model.chat_template == "raw" else model.chat_template
        (path / TEMPLATE_FILE).write_text(text, encoding="utf-8")
        _require_template(path)


def _require_template(path: Path) -> None:
    from stapo.models.loading import load_tokenizer

    question = "1 + 1 = ?"
    chat = [{"role": "user", "content": question}]
    options = {"tokenize": False, "add_generation_prompt": True}
    try:
        shown = load_tokenizer(path).apply_chat_template(chat, **options)
    except Exception as error:  # A template may raise anything.
        reason = f"fails: {type(error).__name__}: {plain(str(error))}"
    else:
        reason = "" if question in shown else "leaves out the question"
    if reason:
        raise StudyError([f"models: chat_template {reason}; correct the template"])
