"""The training reward is the paper's: a string in the last box, at the end of the response."""

import pytest

from stapo.training.rewards import boxed_reward


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        (r"so \boxed{42}", 1.0),
        (r"\boxed{41} no, \boxed{42}.", 1.0),
        (r"\boxed{42} no, \boxed{41}", -1.0),
        (r"\boxed{42.0}", -1.0),
        (r"\boxed{ 42}", -1.0),
        ("42", -1.0),
        (r"\boxed{42", -1.0),
        (r"\boxed{42}" + "." * 91, -1.0),
        (r"\boxed{42}" + "." * 90, 1.0),
        ("", -1.0),
    ],
)
def test_right_only_with_the_exact_string_in_the_last_box(response, reward):
    completion = [{"role": "assistant", "content": response}]
    assert boxed_reward([completion], answer=["42"], prompts=None) == [reward]
