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
from stapo.study.schema import HubModel, Model, Template, TinyModel

HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "merges.txt", "LICENSE*"]
"""Files to download: weights as safetensors only, nothing that could contain code."""
SOURCE = "source.json"
"""File with the origin of a Hub model: repository, requested revision, commit."""


def write_base(config: dict[str, Any], path: Path, template: Template | None = None) -> None:
    """Write a base model and its tokenizer to a directory, atomically.

    An SFT warm start that was killed resumes from a hidden file beside the directory.

    Args:
        config: a value of `Study.models`: settings of a tiny model, or `hub` and `revision`.
        path: the directory.
        template: prompt template of a verifier; it is written beside the weights.
    """
    model: HubModel | TinyModel = TypeAdapter(Model).validate_python(config)
    state = path.with_name(f".{path.name}.supervised")
    with replace_directory(path) as aside:
        if isinstance(model, TinyModel):
            from stapo.models.tiny import build_tiny

            build_tiny(model, aside, state)
        else:
            _download(model, aside)
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


def _download(model: HubModel, path: Path) -> None:
    # Copied from the cache: files that `stapo fetch` downloaded need no network.
    snapshot = cached(model)
    for source in sorted(snapshot.iterdir()):
        if source.is_file():
            shutil.copyfile(source, path / source.name)
    # The Hub's client names a snapshot by its commit, even if a branch was requested.
    write_json(path / SOURCE, {**model.model_dump(), "commit": snapshot.name})
