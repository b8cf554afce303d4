"""Loading of models and tokenizers as data: no code from the checkpoint is run, no pickle is read.

By default, Transformers asks on the terminal whether a model's own code may run. All models and
tokenizers are therefore loaded through these functions.

A checkpoint's `generation_config.json` is not read either: Transformers would take from it everything that
a rollout does not set itself, such as `min_p` or `suppress_tokens`.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from stapo.study import StudyError
from stapo.study.files import TOKENIZER

GENERATION = "generation_config.json"
HARMLESS = {
    "transformers_version", "_from_model_config", "_commit_hash", "bos_token_id", "pad_token_id",
    "eos_token_id",
}  # fmt: skip
"""Fields of it that change no response, and the end tokens, which a study replaces by its own."""


def load_tokenizer(path: Path | str, **settings: Any) -> Any:
    """Return the tokenizer of a checkpoint; `settings` are arguments of `from_pretrained`.

    Raises:
        StudyError: the directory does not exist or has no tokenizer, the tokenizer needs its own code, or its
            chat template fails.
    """
    if Path(path).is_dir() and not any((Path(path) / name).exists() for name in TOKENIZER):
        raise StudyError([f"{path}: no {TOKENIZER[0]}; give the directory of a whole checkpoint"])
    found = _local(
        path, lambda: AutoTokenizer.from_pretrained(path, trust_remote_code=False, **settings)
    )
    try:
        found.apply_chat_template([{"role": "user", "content": "1"}], tokenize=False)
    except Exception as error:  # A template may raise anything.
        about = f"{path}: its chat template fails: {error}; choose another model, or mend it"
        raise StudyError([about]) from error
    return found


def end_token_ids(tokenizer: Any, end_tokens: Sequence[str]) -> tuple[int, ...]:
    """Return the ids that end a response: the tokenizer's end token, and a study's tokens that it knows.

    Training and evaluation use these ids and ignore any others in the checkpoint's configuration.

    Raises:
        StudyError: there are no such ids.
    """
    vocabulary = tokenizer.get_vocab()
    ends = {vocabulary[token] for token in end_tokens if token in vocabulary}
    ends |= {tokenizer.eos_token_id} - {None}
    if not ends:
        raise StudyError(["end_tokens: the tokenizer has none of these; add one that it has"])
    return tuple(sorted(ends))


def set_aside(path: Path | str) -> dict[str, Any]:
    """Return the fields of a checkpoint's `generation_config.json` that training and evaluation ignore.

    Empty without such a file, or if it is damaged, since nothing else reads it.
    """
    try:
        fields = json.loads((Path(path) / GENERATION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(fields, dict):
        return {}
    return {k: v for k, v in fields.items() if v is not None and k not in HARMLESS}


def load_model(path: Path | str, dtype: torch.dtype) -> Any:
    """Return the weights of a checkpoint, from safetensors, in memory as `dtype`.

    Its generation configuration is that of a model without `generation_config.json`.

    Raises:
        StudyError: the directory does not exist, or the model needs its own code.
    """
    return _local(path, lambda: _from_safetensors(path, dtype))


def load_again(model: Any, dtype: torch.dtype) -> Any:
    """Return the weights that a model of Transformers was loaded from, a directory or one of the Hub."""
    return _from_safetensors(model.config.name_or_path, dtype)


def _from_safetensors(name: Path | str, dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        name,
        dtype=dtype,
        use_safetensors=True,
        trust_remote_code=False,
        generation_config=GenerationConfig(),
    )


def _local(path: Path | str, load: Callable[[], Any]) -> Any:
    # Transformers would look on the Hub for a model with the name of the missing directory.
    if not Path(path).is_dir():
        about = "no such directory; give the directory of a model and its tokenizer"
        raise StudyError([f"{path}: {about}"])
    try:
        return load()
    except ValueError as error:
        # Transformers' message advises to trust the code.
        if "trust_remote_code" not in str(error):
            raise
        remedy = "choose a model whose architecture is part of Transformers"
        about = f"{path}: needs its own Python code, which is never run here; {remedy}"
        raise StudyError([about]) from error
