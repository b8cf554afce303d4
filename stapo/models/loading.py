"""Loading of models and tokenizers as data: no code from the checkpoint is run, no pickle is read.

By default, Transformers asks on the terminal whether a model's own code may run. All models and
tokenizers are therefore loaded through these functions.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from stapo.files import DamagedFileError
from stapo.provenance import require_whole
from stapo.study import StudyError
from stapo.text import plain

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "tokenizer.model",
)
"""Of which a checkpoint has at least one; without any, the library asks for packages that would not help."""


def load_tokenizer(path: Path | str, **settings: Any) -> Any:
    """Return the tokenizer of a checkpoint.

    Args:
        path: directory of the checkpoint.
        **settings: arguments of `from_pretrained`, such as `padding_side`.

    Raises:
        StudyError: the directory does not exist or has no tokenizer, or the tokenizer needs its own code.
    """
    if Path(path).is_dir() and not any((Path(path) / name).exists() for name in TOKENIZER_FILES):
        raise StudyError(
            [f"{path}: no {TOKENIZER_FILES[0]}; give the directory of a whole checkpoint"]
        )
    return _local(
        path,
        lambda: AutoTokenizer.from_pretrained(path, trust_remote_code=False, **settings),
    )


def checkpoint_fault(path: Path) -> str | None:
    """Return why a directory of weights cannot be evaluated; None if nothing is seen without loading them.

    Args:
        path: directory with `*.safetensors`.
    """
    if not (path / "config.json").is_file():
        return f"{path}: no config.json; give the directory of a whole checkpoint"
    part = "config.json"
    try:
        require_whole(path)
        _local(path, lambda: AutoConfig.from_pretrained(path, trust_remote_code=False))
        part = "tokenizer"
        load_tokenizer(path)
        for file in sorted(path.glob("*.safetensors")):
            part = file.name
            with safe_open(file, "pt"):  # A file that is cut off does not agree with its header.
                pass
    except (StudyError, DamagedFileError) as error:
        return str(error)
    except Exception as error:
        # Whatever is in these files: the libraries have no common class of errors.
        return f"{path}: {part} cannot be read ({plain(str(error))}); copy the checkpoint again"
    return None


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
        raise StudyError(
            ["end_tokens: the tokenizer has none of these tokens; add one that it has"]
        )
    return tuple(sorted(ends))


def load_model(path: Path | str, dtype: torch.dtype) -> Any:
    """Return the weights of a checkpoint, from safetensors.

    Args:
        path: directory of the checkpoint.
        dtype: type of the weights in memory.

    Raises:
        StudyError: the directory does not exist, or the model needs its own code.
    """
    return _local(path, lambda: _from_safetensors(path, dtype))


def load_again(model: Any, dtype: torch.dtype) -> Any:
    """Return the weights that a model was loaded from, a directory or a model of the Hub.

    Args:
        model: model of Transformers.
        dtype: type of the weights in memory.
    """
    return _from_safetensors(model.config.name_or_path, dtype)


def _from_safetensors(name: Path | str, dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        name, dtype=dtype, use_safetensors=True, trust_remote_code=False
    )


def _local(path: Path | str, load: Callable[[], Any]) -> Any:
    # Transformers would look on the Hub for a model with the name of the missing directory.
    if not Path(path).is_dir():
        raise StudyError(
            [f"{path}: no such directory; give the directory of a model and its tokenizer"]
        )
    try:
        return load()
    except ValueError as error:
        # Transformers' message advises to trust the code.
        if "trust_remote_code" not in str(error):
            raise
        raise StudyError(
            [
                f"{path}: needs its own Python code, which is never run here; choose a model whose "
                "architecture is part of Transformers"
            ]
        ) from error
