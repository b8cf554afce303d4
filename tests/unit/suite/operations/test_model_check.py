"""A model's folder is read before a training, as the training will."""

import os
from typing import Any

import pytest
from damaged import INCOMPLETE, INFINITE, UNREADABLE, settings
from programs import python
from studies import lines_of, own_study

from stapo.suite.operations.check import check_document


def check(**changes: Any) -> list[str]:
    """Return what is said of the model."""
    found: list[str] = check_document(own_study(**changes))["models"]
    return found


@pytest.mark.parametrize("case", [*INCOMPLETE, *INFINITE, *UNREADABLE])
def test_a_damaged_folder_is_one_line(folder, case):
    damage, words = (INCOMPLETE | INFINITE | UNREADABLE)[case]
    damage(folder / "weights")
    (line,) = lines_of(check)
    assert line.startswith("models.own")
    assert ": weights: " in line
    assert words in line
    assert "; " in line  # A remedy.


def test_settings_that_do_not_fit_the_model_are_lines_all_at_once(folder):
    limits = {"max_prompt_tokens": 2, "max_response_tokens": 40000}
    lines = lines_of(check, training=limits, end_tokens=["<|nope|>"])
    wanted = (
        "has 96 positions, and training.max_prompt_tokens + max_response_tokens is 40,002",
        "end_tokens: the tokenizer has none of <|nope|>",
        "prompts are longer than 2 tokens (training.max_prompt_tokens); increase it",
    )
    assert len(lines) == len(wanted)
    assert all(words in line for words, line in zip(wanted, lines, strict=True))


def test_a_sound_folder_says_what_ends_a_response_and_what_has_no_effect(folder):
    place = "models.own: weights: "
    settings(folder / "weights", "generation_config.json", min_p=0.5, do_sample=None)
    said = [
        f"{place}a response ends with <eos>",
        f"{place}its generation_config.json has no effect on responses (min_p 0.5)",
    ]
    assert check() == said
    (folder / "weights/generation_config.json").unlink()
    os.mkfifo(folder / "weights/generation_config.json")
    assert check() == said[:1]
    prompts = [*range(10), "0" * 40]
    rows = [f'{{"question": "{one}+1?", "answer": 1}}\n' for one in prompts]
    (folder / "rows.jsonl").write_text("".join(rows))
    about = "1 of 11 prompts are longer than 32 tokens (training.max_prompt_tokens)"
    data = {"file": str(folder / "rows.jsonl")}
    training = {"max_prompt_tokens": 32}
    assert check(data=data, training=training)[1] == f"{place}{about} and are left out"


def test_a_model_that_is_not_here_is_said_to_be_unchecked_and_torch_is_not_loaded(folder):
    own_study("hub: a/b, revision: main")
    code = "import sys; from stapo.suite.cli import app; app(['check', 'own.yaml'], standalone_mode=False)"
    done = python("-c", f"{code}; sys.exit('torch' in sys.modules)", at=folder)
    assert "models.own: a/b: not checked, since there is no folder of it yet" in done.stdout
