"""The kind of a token follows from its text."""

import pytest

from stapo.suite.analysis.figures.token_frequencies import WORDS, kind_of

EXAMPLES = {
    "number": ["7", " 12", "3.14", "½", "٣"],
    "word": [" the", " Le", " don't", " été", " \\boxed", "\u3000字"],
    "word piece": ["Let", "ah", "'s", "字", "(x", "<b", "x2"],
    "sign": ["+", " =", "...", "\\", "€", "👍", "<>", "[]"],
    "blank": ["", " ", "\n\n", "\t", "\xa0", "\r\n    "],
    "special": ["<|im_end|>", "<eos>", "</s>", "[PAD]", "<end▁of▁sentence>", "<|endoftext|>\n"],
    "part of a character": [r"\xe2\x80", r" \xf0\x9f", "\ufffd", r"x\xe2"],
}


@pytest.mark.parametrize("name", WORDS)
def test_each_kind_by_examples(name):
    assert {kind_of(text) for text in EXAMPLES[name]} == {name}
    # A newline and LaTeX are no bytes.
    assert {kind_of(r"\xi"), kind_of(r"\xray")} == {"word piece"}
