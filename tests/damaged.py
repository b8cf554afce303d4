"""Damages of a model's folder, as functions that change a copy of it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

WEIGHTS, NORM = "model.safetensors", "model.norm.weight"
Damage = Callable[[Path], None]


def settings(folder: Path, name: str = "config.json", **changes: Any) -> None:
    """Change settings of a JSON file."""
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def text(folder: Path, name: str, content: str) -> None:
    """Write a file."""
    (folder / name).write_text(content)


def weights(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Write other tensors."""
    save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})


def cut(folder: Path, end: int) -> None:
    """Keep the first bytes of the weights."""
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:end])


def huge_header(folder: Path) -> None:
    """Let the weights begin with the length of a header of exabytes."""
    (folder / WEIGHTS).write_bytes(b"\xff" * 8 + (folder / WEIGHTS).read_bytes()[8:])


def norm(value: torch.Tensor) -> Damage:
    """Return a damage that replaces the last norm."""
    return partial(weights, change=lambda held: held | {NORM: value})


INCOMPLETE: dict[str, tuple[Damage, str]] = {
    "missing tensor": (
        partial(weights, change=lambda held: {k: v for k, v in held.items() if k != NORM}),
        f"not those of a Qwen3ForCausalLM (1 tensors missing, such as {NORM})",
    ),
    "other prefix": (
        partial(weights, change=lambda held: {f"policy.{k}": v for k, v in held.items()}),
        "tensors unknown, such as policy.model.embed_tokens.weight)",
    ),
    "extra tensor": (
        partial(weights, change=lambda held: held | {"score.weight": torch.ones(2)}),
        "(1 tensors unknown, such as score.weight)",
    ),
    "wrong shape": (norm(torch.ones(3)), f"1 of another shape, such as {NORM}, 3 instead of 64"),
    "no layers": (
        partial(settings, num_hidden_layers=0),
        "cannot be loaded (ValueError: `num_hidden_layers` (0) must be equal to",
    ),
    "another architecture": (partial(settings, model_type="bert"), "not those of a Bert"),
    "truncated weights": (partial(cut, end=-99), "damaged or truncated weights"),
    "empty weights": (partial(cut, end=0), "damaged or truncated weights"),
    "huge header": (huge_header, "damaged or truncated weights"),
}
"""Damages of the weights that their headers show -> what is said of each."""
NOT_FINITE = f"{NORM} has NaN or infinite values"
INFINITE: dict[str, tuple[Damage, str]] = {
    "NaN": (norm(torch.full((64,), torch.nan)), NOT_FINITE),
    "infinite": (norm(torch.tensor([torch.inf, -torch.inf] * 32)), NOT_FINITE),
}
"""Damages of their values."""


def vocabulary(folder: Path, tokens: int | None = None, **more: int) -> None:
    """Give the tokenizer the first tokens of its vocabulary, and others."""
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"] = dict([*content["model"]["vocab"].items()][:tokens]) | more
    (folder / "tokenizer.json").write_text(json.dumps(content))


def without(folder: Path, name: str) -> None:
    """Remove a file."""
    (folder / name).unlink()


TEMPLATE = "chat_template.jinja"
UNREADABLE: dict[str, tuple[Damage, str]] = {
    "gptq": (
        partial(settings, quantization_config={"quant_method": "gptq", "bits": 4}),
        "quantised weights cannot be trained",
    ),
    "unknown architecture": (
        partial(settings, model_type="own"),
        "the architecture in its config.json is unknown",
    ),
    "wrong type": (partial(settings, hidden_size="wide"), "Field 'hidden_size' expected int"),
    "encoder and decoder": (
        partial(settings, model_type="t5"),
        "the architecture in its config.json is unknown as a language model",
    ),
    "too many layers": (
        partial(settings, num_hidden_layers=10**9, layer_types=None),
        "1,000,000,000 layers, more than 10,000",
    ),
    "quantised weights": (norm(torch.ones(64, dtype=torch.int8)), f"{NORM} is quantised (int8)"),
    "no tokenizer": (partial(without, name="tokenizer.json"), "no tokenizer.json; save the"),
    "empty tokenizer": (partial(text, name="tokenizer.json", content="{}"), "cannot be loaded ("),
    "no template of Jinja": (
        partial(text, name=TEMPLATE, content="{% if %}"),
        "its chat template fails",
    ),
    "no template": (partial(without, name=TEMPLATE), "its chat template fails: it has none"),
    "empty template": (
        partial(text, name=TEMPLATE, content=""),
        "its chat template leaves out the question",
    ),
    "larger vocabulary": (
        partial(vocabulary, beyond=10**4),
        "the tokenizer has the id 10,000, and the embedding",
    ),
    "smaller vocabulary": (partial(vocabulary, tokens=6), "the tokenizer cannot read 'chain:"),
    "no end token": (
        partial(settings, name="tokenizer_config.json", eos_token=None),
        "the tokenizer has no end token",
    ),
}
"""Other damages of a folder -> what is said of each."""
