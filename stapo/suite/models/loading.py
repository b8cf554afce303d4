"""Loading of models and tokenizers as data: no code from the checkpoint is run, no pickle is read.

By default, Transformers asks on the terminal whether a model's own code may run. All models and
tokenizers are therefore loaded through these functions.

A checkpoint's `generation_config.json` is not read either: Transformers would take from it everything that
a rollout does not set itself, such as `min_p` or `suppress_tokens`.

Weights are loaded completely or not at all: Transformers draws missing tensors at random, with a warning.
What is absent, damaged or needs code of its own is a StudyError.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging

from stapo.core.files import json_of
from stapo.suite.study import StudyError
from stapo.suite.study.files import TOKENIZER
from stapo.suite.text import plain

GENERATION = "generation_config.json"
HARMLESS = {
    "transformers_version", "_from_model_config", "_commit_hash", "bos_token_id", "pad_token_id",
    "eos_token_id", "use_cache", "output_attentions", "output_hidden_states",
}  # fmt: skip
"""Fields of it that change no response, and the end tokens, which a study replaces by its own."""
NOT_FINITE = "{} has NaN or infinite values; copy the weights again, or train them again"
PRECISIONS = torch.float64, torch.float32, torch.float16, torch.bfloat16
UNKNOWN = (
    "not recognize this architecture",
    "Unrecognized model",
    "Unrecognized configuration class",
)
WEIGHTS = re.compile(r"[^\s/]+\.safetensors")


@contextmanager
def quiet() -> Iterator[None]:
    """Show no warnings of Transformers and torch."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.set_verbosity(before)


def load_tokenizer(path: Path | str, **settings: Any) -> Any:
    """Return the tokenizer of a checkpoint; `settings` are arguments of `from_pretrained`."""
    if Path(path).is_dir() and not any((Path(path) / name).exists() for name in TOKENIZER):
        raise StudyError([f"{path}: no {TOKENIZER[0]}; give the directory of a whole checkpoint"])
    tokenizer = _local(
        path, lambda: AutoTokenizer.from_pretrained(path, trust_remote_code=False, **settings)
    )
    chat = [{"role": "user", "content": "1"}]
    try:
        tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    except Exception as error:  # A template may raise anything.
        reason = f"{type(error).__name__}: {error}" if tokenizer.chat_template else "it has none"
        message = f"{path}: its chat template fails: {plain(reason)}; correct chat_template.jinja"
        raise StudyError([message]) from error
    return tokenizer


def end_token_ids(tokenizer: Any, end_tokens: Sequence[str]) -> tuple[int, ...]:
    """Return the ids that end a response, and no others: the tokenizer's, and a study's that it knows."""
    vocabulary = tokenizer.get_vocab()
    ends = {vocabulary[token] for token in end_tokens if token in vocabulary}
    ends |= {tokenizer.eos_token_id} - {None}
    if not ends:
        raise StudyError(["end_tokens: the tokenizer has none of these; add one that it has"])
    return tuple(sorted(ends))


def set_aside(path: Path | str) -> dict[str, Any]:
    """Return the fields of `generation_config.json` that training and evaluation ignore; none if damaged."""
    return {
        key: value
        for key, value in json_of(Path(path) / GENERATION).items()
        # Responses are always sampled.
        if value is not None and key not in HARMLESS and (key, value) != ("do_sample", True)
    }


def load_model(path: Path | str, dtype: torch.dtype) -> Any:
    """Return the weights of a checkpoint, from safetensors, as `dtype`, without its generation settings."""
    return _local(path, lambda: _from_safetensors(path, dtype))


def load_config(path: Path) -> Any:
    """Return the configuration of a checkpoint's language model."""
    load = partial(AutoConfig.from_pretrained, path, trust_remote_code=False)
    return _local(path, load).get_text_config()


def read_without_weights(path: Path) -> Any:
    """Return a model on the meta device: its configuration, and the headers of its safetensors, are read."""
    return _local(path, lambda: _complete(path, device_map="meta"))


def check_values(path: Path) -> None:
    """Check the numbers in the safetensors of a directory."""
    for file in sorted(path.glob("*.safetensors")):
        _local(path, partial(_check_values, file))


def _check_values(file: Path) -> None:
    with safe_open(file, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118
            values, fault = tensors.get_tensor(name), NOT_FINITE
            if name.endswith("weight") and values.dtype not in PRECISIONS:
                kind = str(values.dtype).removeprefix("torch.")
                fault = f"{{}} is quantised ({kind}); choose the model that it was made of"
            elif _is_finite(values):
                continue
            raise StudyError([f"{file.parent}: {fault.format(plain(name))}"])


def _is_finite(values: torch.Tensor) -> bool:
    # Not `isfinite`, which would need memory for each number.
    return bool(values.sum(dtype=torch.float64).isfinite())


def _from_safetensors(name: Path | str, dtype: torch.dtype) -> Any:
    model = _complete(name, dtype=dtype)
    if wrong := [key for key, weight in model.named_parameters() if not _is_finite(weight)]:
        raise StudyError([f"{name}: {NOT_FINITE.format(wrong[0])}"])
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if model.config.tie_word_embeddings and head and head.weight is not embedding.weight:
        message = "config.json says that head and embedding are the same tensor, but they differ"
        raise StudyError([f"{name}: {message}; set tie_word_embeddings to false"])
    return model


def _complete(name: Path | str, **settings: Any) -> Any:
    """Return a model of which every tensor is in the safetensors, and no other tensor."""
    with quiet():  # Transformers reports the same in many lines.
        model, loading_info = AutoModelForCausalLM.from_pretrained(
            name,
            use_safetensors=True,
            trust_remote_code=False,
            generation_config=GenerationConfig(),
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **settings,
        )
    if faults := [*_differences(loading_info)]:
        kind, remedy = type(model).__name__, "correct config.json, or save the weights again"
        cause = f"its weights are not those of a {kind} ({', '.join(faults)})"
        raise StudyError([f"{name}: {cause}; {remedy}"])
    return model


def _differences(loading_info: dict[str, Any]) -> Iterator[str]:
    """Yield what Transformers says of tensors that do not fit."""
    for kind, words in {"missing_keys": "missing", "unexpected_keys": "unknown"}.items():
        if names := sorted(loading_info[kind]):
            yield f"{len(names)} tensors {words}, such as {plain(names[0])}"
    for name, given, expected in sorted(loading_info["mismatched_keys"])[:1]:
        shapes = " instead of ".join("x".join(map(str, shape)) for shape in (given, expected))
        yield f"{len(loading_info['mismatched_keys'])} of another shape, such as {plain(name)}, {shapes}"


def _local(path: Path | str, load: Callable[[], Any]) -> Any:
    # Transformers would look on the Hub for a model with the name of the missing directory.
    if not Path(path).is_dir():
        message = "no such directory; give the directory of a model and its tokenizer"
        raise StudyError([f"{path}: {message}"])
    try:
        return load()
    except (StudyError, MemoryError):
        raise
    except Exception as error:  # A damaged file makes Transformers raise anything.
        raise StudyError([f"{path}: {_reason(error)}"]) from error


def _reason(error: Exception) -> str:
    """Return cause and remedy; Transformers' own messages advise to trust code, or to install packages."""
    text, other = str(error), "choose a model whose architecture is part of Transformers"
    if "trust_remote_code" in text:
        return f"needs its own Python code, which is never run here; {other}"
    if any(words in text for words in UNKNOWN):
        return f"the architecture in its config.json is unknown as a language model; {other}"
    if isinstance(error, SafetensorError):
        return f"damaged or truncated weights ({plain(text)}); copy them again"
    if isinstance(error, OSError) and (absent := WEIGHTS.search(text)):
        remedy = "save them as safetensors, pickled ones could run code"
        return f"no weights: {absent[0]} cannot be read; {remedy}"
    if "instantiate the backend tokenizer" in text:
        return f"no {TOKENIZER[0]}; save the tokenizer into the folder"
    said = f"{type(error).__name__}: {text}"
    if "validation error" in text:  # Of a configuration: the reason is in the last line.
        said = text.splitlines()[-1]
    said = plain(said)
    return f"cannot be loaded ({said}); correct its JSON files, or copy it again"
