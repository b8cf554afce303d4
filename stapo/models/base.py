"""The base model of a size: built from scratch, or from the Hub at a pinned revision."""

import shutil
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from stapo.files import replace_directory, write_json
from stapo.hub import with_retries
from stapo.models.template import template_text
from stapo.paths import VERIFIER_TEMPLATE
from stapo.provenance import write_sums
from stapo.study import StudyError, model_folder
from stapo.study.model_folder import FILES
from stapo.study.schema import Template
from stapo.study.sources import FolderModel, HubModel, Model, TinyModel
from stapo.text import plain

HUB_FILES = [*FILES]
"""Files to download."""
SOURCE = model_folder.SOURCE
"""File with the origin of a Hub model: repository, requested revision, commit."""
RAW_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""Chat template that is the question alone."""
TEMPLATE_FILE = "chat_template.jinja"
"""File that Transformers prefers to the template in tokenizer_config.json."""


def write_base(config: dict[str, Any], path: Path, template: Template | None = None) -> None:
    """Write a base model and its tokenizer to a directory, atomically.

    An SFT warm start that was killed resumes from a hidden file beside the directory.

    Args:
        config: a value of `Study.models`: settings of a tiny model, `hub` and `revision`, or the absolute
            `path` of a folder and its `sha256`.
        path: the directory.
        template: prompt template of a verifier; it is written beside the weights.
    """
    model: HubModel | FolderModel | TinyModel = TypeAdapter(Model).validate_python(config)
    state = path.with_name(f".{path.name}.supervised")
    with replace_directory(path) as aside:
        if isinstance(model, TinyModel):
            from stapo.models.tiny import build_tiny

            build_tiny(model, aside, state)
        else:
            if isinstance(model, FolderModel):
                _copy(model, aside)
            else:
                _download(model, aside)
            if model.chat_template:
                raw = model.chat_template == "raw"
                text = RAW_TEMPLATE if raw else model.chat_template
                (aside / TEMPLATE_FILE).write_text(text, encoding="utf-8")
                _require_template(aside)
        if template:
            about = {**template.model_dump(), "text": template_text(template)}
            write_json(aside / VERIFIER_TEMPLATE, about)
        write_sums(aside)
    state.unlink(missing_ok=True)


def cached(model: HubModel) -> Path:
    """Return the directory of a model in the Hub's cache; missing files are downloaded first."""
    from huggingface_hub import snapshot_download

    def download() -> str:
        return snapshot_download(model.hub, revision=model.revision, allow_patterns=HUB_FILES)

    return Path(with_retries(download))


def _require_template(path: Path) -> None:
    """Raise an error if the chat template of a tokenizer fails, or leaves the question out."""
    from stapo.models.loading import load_tokenizer

    question = "1 + 1 = ?"
    chat = [{"role": "user", "content": question}]
    try:
        shown = load_tokenizer(path).apply_chat_template(
            chat, tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # A template may raise anything.
        reason = f"fails: {type(error).__name__}: {plain(str(error))}"
    else:
        reason = "" if question in shown else "leaves out the question"
    if reason:
        raise StudyError([f"models: chat_template {reason}; correct the template"])


def _copy(model: FolderModel, path: Path) -> None:
    """Copy the files of a model in a folder.

    Raises:
        StudyError: they are not those of the study.
    """
    for source in model_folder.model_files(Path(model.path)):
        shutil.copyfile(source, path / source.name)
    if model_folder.checksum(path, known=None) != model.sha256:
        about = "its files changed since the study was read; run snakemake again"
        raise StudyError([f"{model.path}: {about}"])


def _download(model: HubModel, path: Path) -> None:
    # Copied from the cache: files that `stapo fetch` downloaded need no network.
    snapshot = cached(model)
    for source in sorted(snapshot.iterdir()):
        if source.is_file():
            shutil.copyfile(source, path / source.name)
    # The Hub's client names a snapshot by its commit, even if a branch was requested.
    write_json(path / SOURCE, {**model.model_dump(), "commit": snapshot.name})
