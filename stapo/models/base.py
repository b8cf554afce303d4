"""The base model of a size: built from scratch, or from the Hub at a pinned revision."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from stapo.artifacts import replace_directory
from stapo.schema import HubModel, Model, TinyModel

HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "merges.txt", "LICENSE*"]
"""Weights as safetensors only; nothing that could carry code."""


def write_base(config: dict[str, Any], path: Path) -> None:
    """Write a base model and its tokenizer to a directory, by one rename.

    Args:
        config: as `Study.models`: a builder's settings, or `hub` and `revision`.
        path: the directory.
    """
    model: HubModel | TinyModel = TypeAdapter(Model).validate_python(config)
    with replace_directory(path) as aside:
        if isinstance(model, TinyModel):
            from stapo.models.tiny import build_tiny

            build_tiny(model, aside)
        else:
            _download(model, aside)


def _download(model: HubModel, path: Path) -> None:
    from huggingface_hub import snapshot_download

    snapshot_download(
        model.hub,
        revision=model.revision,
        local_dir=path,
        allow_patterns=HUB_FILES,
    )
