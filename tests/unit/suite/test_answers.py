r"""Readers of answers other than \boxed{}, whose tests are those of the grader."""

import time

import pytest

from stapo.suite.answers import NUMBER, built_in, same

AFTER = {"after": "####"}
WORDS = {"after": "The answer is"}


@pytest.mark.parametrize(
    ("setting", "response", "answer"),
    [
        ("last_number", "16 - 3 = 13 eggs, so 13 * 2 = 26.", "26"),
        ("last_number", "It is $1,234,567.50, or so.", "1234567.50"),
        ("last_number", "x = -5, not 5 - 4", "4"),
        ("last_number", "x = -5", "-5"),
        ("last_number", "a loss of \u2212$1,000.", "-1000"),
        ("last_number", "between 16-3", "3"),
        ("last_number", "f(2)-7", "7"),
        ("last_number", "+.5", ".5"),
        ("last_number", "1, 234 and 12,34", "34"),
        ("last_number", "1,2345", "2345"),
        ("last_number", "three", None),
        ("last_number", "", None),
        (AFTER, "#### 3\nNo:\n#### $1,450.\nbecause 7", "1,450"),
        (AFTER, "####\t\\$18.00 \r\n", "18.00"),
        (AFTER, "#### $18.$", "18"),
        (AFTER, "#### 18 dollars", "18 dollars"),
        (AFTER, "18 ####", None),
        (AFTER, "#### \n18", None),
        (AFTER, "18", None),
        (WORDS, "The answer is 1. The answer is 2", "2"),
        (WORDS, "the answer is 2", None),
        *(
            (WORDS, text, "2")
            for text in ("**The answer is** 2", "**The answer is 2.**", "The answer is `2`")
        ),
        (WORDS, "The answer is *", "*"),
        (
            "python_function",
            "```python\n1\n```\nor\n```python\n2\n3\n```\n```\nits output\n```",
            "2\n3",
        ),
        ("python_function", "```python\n1\n```\nor\n```python\n2", "1"),
        ("python_function", "```\n1\n```", None),
        ("python_function", "```Python3 block\r\n1\n```", "1"),
        ("python_function", "1. So:\n   ```python\n   if x:\n       y\n   ```", "if x:\n    y"),
        ("python_function", "```python\n```\nor\n```python\n1\n```", "1"),
    ],
)
def test_what_a_reader_finds(setting, response, answer):
    assert built_in(setting).read("7", response) == answer


SOLUTION = "She has 9 * 2 = $<<9*2=1800>>1,800\n#### 1,800"


@pytest.mark.parametrize(
    ("setting", "row", "response", "right"),
    [
        (AFTER, SOLUTION, "#### 1800", True),
        (AFTER, SOLUTION, "#### 1800.00", True),
        (AFTER, SOLUTION, "1800", False),
        (AFTER, SOLUTION, "#### 180", False),
        (AFTER, "$18", "#### 18", True),
        (AFTER, "Paris", "####  Paris.", True),
        (AFTER, "Paris", "#### paris", False),
        (AFTER, "####", "####", False),
        ("last_number", SOLUTION, "so 1,800.", True),
        ("last_number", "1800", "so 1800.0", True),
        ("last_number", "0.1", "0.10000000000000000001", False),
        ("last_number", "1/2", "so 1/2", False),
        ("last_number", "two", "two", False),
        # As strings, with JustRL's box.
        ("boxed", "1800", r"\boxed{1800}", True),
        ("boxed", "1800", r"\boxed{1,800}", False),
        ("boxed", " 1800", r"\boxed{1800}", False),
    ],
)
def test_what_earns_the_reward(setting, row, response, right):
    reader = built_in(setting)
    assert reader.is_right(reader.gold(row), response) == right


def test_hostile_responses_take_linear_time():
    start = time.process_time()
    for text in ("1" * 400_000, "1," * 200_000, "1,111" * 80_000, *(400_000 * c for c in "-#.*")):
        for setting in ("last_number", AFTER, WORDS):
            reader = built_in(setting)
            reader.is_right("1" * 400_000, text)
            reader.is_right("1", f"The answer is #### {text} {text}")
    assert same("1" * 400_000, "1" * 400_000 + ".0")
    # Measured: 1 s in all. Anything quadratic takes minutes.
    assert time.process_time() - start < 20.0
    assert not NUMBER.fullmatch("")
