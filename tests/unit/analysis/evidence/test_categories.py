"""Rules that sort tokens into the paper's three categories."""

import pytest

from stapo.analysis.evidence.categories import category_of

# Category -> tokens with the most likely one: real text, tokens as Qwen3 has them; then the tiny world.
SORTED = {
    "syntax": [
        (" whereby", " where"), (" the", " 5"), (",", " and"), (" can't", " cannot"), (" nächste", " next"),
        (" a", " the"), ("-", " and"), (" wait ", "3"), (";", "."), ("chain:", " so "),
    ],
    "mathematics": [
        ("7", "8"), (" =", ","), ("\\frac", "\\sqrt"), ("(7", "(8"), ("x", "2"), ("x", "y"), ("\u2264", "<"),
        ("-", "+"), ("*", "+"), ("3", " so "),
    ],
    "formatting": [
        ("$", " the"), (" $", "$"), ("\\boxed", "5"), ("\\[", "We"), ("\n\n", " Then"), (" so", "So"),
        ("**", "The"), ("```", "The"), ("\\)", "$"), ("}", "3"),
    ],
    "unsorted": [("<|im_end|>", "."), ("<eos>", ";"), ("\U0001f642", " the")],
}  # fmt: skip


@pytest.mark.parametrize(("category", "pairs"), SORTED.items())
def test_tokens_are_sorted_by_the_rules(category, pairs):
    for token, expected in pairs:
        assert category_of(token, [expected, "other"]) == category, token


def test_a_token_whose_alternatives_are_unknown_is_sorted_by_itself():
    assert category_of("7", None) == "mathematics"
    assert category_of("x", None) == "syntax"
    assert category_of("$", []) == "formatting"
