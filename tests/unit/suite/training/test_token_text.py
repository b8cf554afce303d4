"""The text of tokens of tokenizers with other alphabets than the tiny ones."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from stapo.suite.training.token_text import text_of

PARTS = ["<|end|>", "Ġ", "Ã©", "ðŁ", "Ġâ", "âĤ¬"]
"""A special token, a blank, é, the first half of an emoji, a blank and a part, and €."""


def byte_level():
    """Return a byte-level BPE whose tokens are all bytes and some longer ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate([*alphabet, *PARTS[2:]])}
    model = Tokenizer(models.BPE(vocabulary, [("Ã", "©"), ("ð", "Ł"), ("Ġ", "â")]))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<|end|>")


def with_byte_fallback():
    """Return a tokenizer of whole characters, with bytes for all others, like Llama 2's."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁word", "word", "é", "▁"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    model = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    model.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    return PreTrainedTokenizerFast(tokenizer_object=model)


@pytest.mark.parametrize("make", [byte_level, with_byte_fallback])
def test_every_token_has_a_text_that_no_other_has(make):
    tokenizer = make()
    texts = [text_of(tokenizer)([token_id]) for token_id in range(len(tokenizer))]
    assert len({*texts}) == len(texts)
    assert not any("\ufffd" in text for text in texts)
    # Vocabularies of models are padded.
    assert text_of(tokenizer)([len(tokenizer)]) == ""


def test_a_part_of_a_character_is_its_bytes_and_whole_ones_are_text():
    tokenizer = byte_level()
    ids = tokenizer.convert_tokens_to_ids(PARTS)
    read = text_of(tokenizer)
    assert [*map(read, ([one] for one in ids))] == [
        "<|end|>", " ", "é", r"\xf0\x9f", r" \xe2", "€",
    ]  # fmt: skip
    assert read(ids) == r"<|end|> é\xf0\x9f \xe2€"
    # Bytes that complete each other are the character.
    assert read(tokenizer("x😀é")["input_ids"]) == "x😀é"
    assert read(tokenizer("\ufffd")["input_ids"]) == "\ufffd"


def test_a_blank_before_a_word_is_not_lost():
    tokenizer = with_byte_fallback()
    ids = tokenizer.convert_tokens_to_ids(["▁word", "word", "<0xE2>", "▁"])
    read = text_of(tokenizer)
    assert [*map(read, ([one] for one in ids))] == [" word", "word", r"\xe2", " "]
    assert read(ids) == r" wordword\xe2 "
