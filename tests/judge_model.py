"""A tiny verifier model that always gives the same reply, on any engine."""

from pathlib import Path
from typing import ClassVar

import torch
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from stapo.core.files import write_json
from stapo.suite.paths import VERIFIER_TEMPLATE
from stapo.suite.study.schema import Verifier

PROMPT = "Problem:\n{question}\nReference:\n{gold_answer}\nResponse:\n{llm_response}\nLetter:"
CHARACTERS = sorted(
    {*PROMPT, *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\\{}[]%"}
)
WIDTH = 32
"""vLLM has no kernels for smaller heads."""


class Small(Verifier):
    """Limits of so small a model."""

    batch_size: ClassVar[int] = 3
    max_prompt_tokens: ClassVar[int] = 800
    max_response_tokens: ClassVar[int] = 4


SETTINGS = Small(revision="0" * 40)


def build(path: Path, reply: str) -> Path:
    """Write a model that replies with one letter to any prompt, and then ends; its template is `PROMPT`."""
    words = ["<pad>", "<eos>", "<unk>", *CHARACTERS]
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = Split("", behavior="isolated")
    backend.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
        chat_template="{% for message in messages %}{{ message['content'] }}{% endfor %}",
    )  # fmt: skip
    tokenizer.save_pretrained(path)
    config = Qwen3Config(
        vocab_size=len(words), hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=1,
        num_attention_heads=1, num_key_value_heads=1, head_dim=WIDTH, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    letter, end = words.index(reply), words.index("<eos>")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.model.norm.weight.fill_(1.0)
        # The embedding of the letter differs from all others, so that the end token follows it.
        model.model.embed_tokens.weight[:, 0] = 1.0
        model.model.embed_tokens.weight[letter] = torch.eye(WIDTH)[1]
        model.lm_head.weight[letter, 0] = 1.0
        model.lm_head.weight[end, 1] = 1.0
    model.save_pretrained(path)
    write_json(path / VERIFIER_TEMPLATE, {**Verifier.template, "text": PROMPT})
    return path
