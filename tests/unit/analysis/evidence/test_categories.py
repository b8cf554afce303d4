"""Rules that sort tokens into the paper's three categories."""

import pytest

from stapo.analysis.evidence.categories import category_of


@pytest.mark.parametrize(
    ("token", "expected", "category"),
    [
        # Real text, tokens as Qwen3 has them.
        (" whereby", " where", "syntax"),
        (" the", " 5", "syntax"),
        (",", " and", "syntax"),
        (" can't", " cannot", "syntax"),
        (" nächste", " next", "syntax"),
        ("7", "8", "mathematics"),
        (" =", ",", "mathematics"),
        ("\\frac", "\\sqrt", "mathematics"),
        ("(7", "(8", "mathematics"),
        ("x", "2", "mathematics"),
        ("x", "y", "mathematics"),
        (" a", " the", "syntax"),
        ("\u2264", "<", "mathematics"),
        ("$", " the", "formatting"),
        (" $", "$", "formatting"),
        ("\\boxed", "5", "formatting"),
        ("\\[", "We", "formatting"),
        ("\n\n", " Then", "formatting"),
        (" so", "So", "formatting"),
        ("**", "The", "formatting"),
        ("```", "The", "formatting"),
        ("\\)", "$", "formatting"),
        # A dash and an asterisk.
        ("-", "+", "mathematics"),
        ("*", "+", "mathematics"),
        ("-", " and", "syntax"),
        # Special tokens, and characters of no rule.
        ("<|im_end|>", ".", "unsorted"),
        ("<eos>", ";", "unsorted"),
        ("\U0001f642", " the", "unsorted"),
        # The tiny arithmetic world.
        (" wait ", "3", "syntax"),
        ("3", " so ", "mathematics"),
        ("}", "3", "formatting"),
        (";", ".", "syntax"),
        ("chain:", " so ", "syntax"),
    ],
)
def test_tokens_are_sorted_by_the_rules(token, expected, category):
    assert category_of(token, [expected, "other"]) == category


def test_a_token_whose_alternatives_are_unknown_is_sorted_by_itself():
    assert category_of("7", None) == "mathematics"
    assert category_of("x", None) == "syntax"
    assert category_of("$", []) == "formatting"
