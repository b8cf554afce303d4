"""The training rewards: the paper's, a string in the last box, and one's own."""

import hashlib
from copy import deepcopy
from pathlib import Path
from random import getstate
from threading import Thread

import numpy as np
import pytest
import torch
import training_jobs

from stapo.suite.answers import box_content
from stapo.suite.models.tiny import build_tokenizer
from stapo.suite.study import StudyError, functions
from stapo.suite.study.schema import TrainingSettings
from stapo.suite.training.rewards import boxed_reward, reward_functions

TRAINING = training_jobs.TRAINING.model_copy(update={"max_response_tokens": 8})


@pytest.mark.parametrize(
    ("response", "content"),
    [
        (r"\boxed{5} and \boxed{7", None),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\boxed{5}", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\frac{1}{2}", None),
        (r"\boxed{ 5}", " 5"),
    ],
)
def test_right_only_with_the_exact_string_in_the_last_box(response, content):
    """As JustRL's and veRL's `last_boxed_only_string` and `remove_boxed` read them, run on each response."""
    assert box_content(response) == content
    completion = [{"role": "assistant", "content": response}]
    assert boxed_reward([completion], answer=["5"]) == [1.0 if content == "5" else -1.0]
    # The box must begin in the last hundred characters.
    ends = [boxed_reward([r"\boxed{42}" + "." * n], answer=["42"]) for n in (90, 91)]
    assert ends == [[1.0], [-1.0]]


OWN = """
def length(completions, completion_ids, answer, **columns):
    return [len(ids) + len(one) for ids, one in zip(completion_ids, answer)]
def lazy(completions, **columns):
    return [None] * len(completions)
def leaving(completions, **columns):
    raise SystemExit(0)
def endless(completions, **columns):
    while True:
        pass
def stubborn(completions, **columns):
    while True:
        try:
            while True:
                pass
        except Exception:
            pass
def careless(completions, **columns):
    import os, random, numpy, torch
    os.chdir("/")
    for one in (random.seed, numpy.random.seed, torch.manual_seed):
        one(0)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    return [1.0] * len(completions)
def short(completions, **columns):
    return [1.0]
def changing(completions, completion_ids, answer, **columns):
    rewards = [float(len(one)) for one in answer]
    completions.clear()
    answer.clear()
    completion_ids[0].clear()
    return rewards
"""


@pytest.fixture
def own(tmp_path):
    """A study's training settings with a reward of one's own, by the name of its function."""
    (tmp_path / "rewards.py").write_text(OWN)
    sha256 = hashlib.sha256(OWN.encode()).hexdigest()

    def settings(name: str, sha256: str = sha256) -> TrainingSettings:
        given = {"reward": f"{tmp_path}/rewards.py:{name}", "reward_sha256": sha256}
        return TRAINING.model_copy(update=given)

    return settings


def test_one_of_ones_own_has_trls_signature_and_gets_copies(own):
    """Otherwise the penalty, which TRL calls next, would count the tokens of other responses."""
    columns = {"completions": ["3", "345"], "completion_ids": [[5, 1], [5, 6, 7]]}
    columns["answer"] = ["a", "bc"]
    before = deepcopy(columns)
    log = {"log_metric": Thread().is_alive}  # As TRL's, a method of what cannot be copied.
    for name, values in (("length", [3.0, 5.0]), ("changing", [1.0, 2.0])):
        (reward,) = reward_functions(own(name), build_tokenizer(), [1])
        assert reward(**columns, **log) == values
        assert columns == before


def test_another_file_or_a_wrong_result_is_refused(own, monkeypatch):
    for settings, error in (
        (own("missing"), "AttributeError: .*missing.*; fix the module"),
        (own("length", sha256="0" * 64), r"rewards\.py: changed since the study was read"),
    ):
        with pytest.raises(StudyError, match=error):
            reward_functions(settings, build_tokenizer(), [1])
    for name in ("lazy", "short"):
        (reward,) = reward_functions(own(name), build_tokenizer(), [1])
        with pytest.raises(ValueError, match=r"training\.reward: expected 2 finite numbers, found"):
            reward(completions=["a", "b"], completion_ids=[[5], [6]])
    monkeypatch.setattr(functions, "OWN_SECONDS", 0.1)
    for name, error in (
        ("leaving", r"SystemExit\(0\)"),
        ("endless", "TimeoutError.*after 0.1 s.*"),
        ("stubborn", "TimeoutError.*after 0.1 s.*"),
    ):
        (reward,) = reward_functions(own(name), build_tokenizer(), [1])
        with pytest.raises(
            TypeError, match=rf"rewards\.py:{name}, line [0-9]+: {error}; fix the function"
        ):
            reward(completions=["a"], completion_ids=[[5]])


def test_what_it_changes_for_all_is_put_back(own):
    def state():
        random = torch.get_rng_state().tolist(), str(np.random.get_state()), getstate()
        return *random, Path.cwd(), torch.get_default_dtype(), torch.is_grad_enabled()

    before = state()
    (reward,) = reward_functions(own("careless"), build_tokenizer(), [1])
    assert reward(completions=["a"], completion_ids=[[5]]) == [1.0]
    assert state() == before


def test_the_penalty_falls_over_the_buffer_to_minus_one_at_the_limit():
    settings = TRAINING.model_copy(update={"overlong_buffer_tokens": 4})
    _, penalty = reward_functions(settings, build_tokenizer(), [1])
    lengths = [[0] * length for length in (1, 4, 5, 6, 8)]
    assert penalty(completion_ids=lengths) == [0.0, 0.0, -0.25, -0.5, -1.0]
