"""Models and tokenizers are data: no code that lies beside them is run, no pickle is read.

Left to its default, Transformers asks on a terminal whether a model's own code may run. Everything here
is loaded through these functions.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from stapo.study import StudyError


def load_tokenizer(path: Path | str, **settings: Any) -> Any:
    """Return the tokenizer of a checkpoint.

    Args:
        path: directory of the checkpoint.
        **settings: as `from_pretrained` takes them, such as `padding_side`.

    Raises:
        StudyError: it is not there, or needs code of its own.
    """
    return _local(
        path,
        lambda: AutoTokenizer.from_pretrained(path, trust_remote_code=False, **settings),
    )


def end_token_ids(tokenizer: Any, end_tokens: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of what ends a response: the tokenizer's own, and those of a study that it has.

    Training and evaluation end responses by these and by nothing that a checkpoint says beside them.

    Raises:
        StudyError: there is none.
    """
    vocabulary = tokenizer.get_vocab()
    ends = {vocabulary[token] for token in end_tokens if token in vocabulary}
    ends |= {tokenizer.eos_token_id} - {None}
    if not ends:
        raise StudyError(["end_tokens: the tokenizer has none of them; name one that it has"])
    return tuple(sorted(ends))


def load_model(path: Path | str, dtype: torch.dtype) -> Any:
    """Return the weights of a checkpoint, from safetensors.

    Args:
        path: directory of the checkpoint.
        dtype: of the weights in memory.

    Raises:
        StudyError: it is not there, or needs code of its own.
    """
    return _local(
        path,
        lambda: AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, use_safetensors=True, trust_remote_code=False
        ),
    )


def _local(path: Path | str, load: Callable[[], Any]) -> Any:
    # Transformers would ask the Hub for a model whose name is that of the missing directory.
    if not Path(path).is_dir():
        raise StudyError(
            [f"{path}: no such directory; a model and its tokenizer are expected there"]
        )
    try:
        return load()
    except ValueError as error:
        # Its advice is to trust the code.
        if "trust_remote_code" not in str(error):
            raise
        raise StudyError(
            [
                f"{path}: needs Python code of its own, which is not run here; choose a model whose "
                "architecture is one of Transformers' own"
            ]
        ) from error
