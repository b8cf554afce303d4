"""The trainer: token records, signals, and numbers that are not finite."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from training_jobs import TRAINING, job_in, run

from stapo.core import trainer as module
from stapo.core.files import read_jsonl
from stapo.suite.models.loading import load_tokenizer
from stapo.suite.records.tokens import read_token_file, rows_per_step
from stapo.suite.training.launch import NOTICE
from stapo.suite.training.prompts import chat_prompt, read_prompts
from stapo.suite.training.run import Watch

pytestmark = pytest.mark.rounding


def test_token_records_are_decoded_sorted_and_name_the_lines_of_their_prompts(world, reference):
    prompts, tokenizer = read_prompts(world / "prompts.jsonl"), load_tokenizer(world / "base")
    rows = read_token_file(reference / "tokens.parquet").to_pylist()
    assert len({row["prompt"] for row in rows}) > 8
    for row in rows:
        chat = chat_prompt(prompts[row["prompt"]]["question"], TRAINING.instruction)
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        assert row["before"].startswith(tokenizer.decode(ids))
        assert row["token"] == tokenizer.decode([row["token_id"]])
    keys = [(row["step"], row["prompt"], row["response"], row["position"]) for row in rows]
    assert keys == sorted(keys)
    sizes = [rows_per_step(*one) for one in ((50, 3000), (4, 96), (0, 96), (1000, 1))]
    assert sizes == [32, 81, 0, 1024]


@pytest.fixture
def watch(world, tmp_path):
    names = (signal.SIGTERM, signal.SIGINT, NOTICE)
    before = {name: signal.getsignal(name) for name in names}
    yield Watch(job_in(world, tmp_path, TRAINING, "stapo"))
    for name, handler in before.items():
        signal.signal(name, handler)


def after_step(watch: Watch) -> tuple[bool, bool]:
    """Return whether the training saves and stops after a step."""
    control = SimpleNamespace(should_training_stop=False, should_save=False)
    watch.on_step_end(None, SimpleNamespace(global_step=3), control)
    return control.should_save, control.should_training_stop


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT, NOTICE])
def test_a_signal_lets_the_step_end_and_a_second_one_but_no_notice_ends_it_at_once(watch, name):
    assert after_step(watch) == (False, False)
    os.kill(os.getpid(), name)
    os.kill(os.getpid(), NOTICE)
    assert after_step(watch) == (True, True)
    assert watch.asked
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def poisoned(number: float, where: str, seen: dict[str, Any]) -> Any:
    """An update whose loss or gradient is not finite in the third step."""
    original = module.StapoTrainer._accumulate_gradients

    def poison(self: Any, model: Any, batch: Any) -> Any:
        loss = original(self, model, batch)
        if self.state.global_step == 2:
            seen.update(model=model, weights=[p.detach().clone() for p in model.parameters()])
            if where == "loss":
                return loss * number
            next(model.parameters()).grad[0, 0] = number
        return loss

    return patch.object(module.StapoTrainer, "_accumulate_gradients", poison)


@pytest.mark.parametrize(("where", "number"), [("loss", "nan"), ("gradient norm", "inf")])
def test_what_is_not_finite_stops_the_run_before_the_weights_change(
    world, tmp_path: Path, where: str, number: str
):
    before: dict[str, Any] = {}
    with (
        poisoned(float(number), where, before),
        pytest.raises(FloatingPointError, match=f"step 3: the {where} is {number}"),
    ):
        run(world, tmp_path)
    after = before["model"].parameters()
    assert all(torch.equal(a, b) for a, b in zip(after, before["weights"], strict=True))
    assert len(read_jsonl(tmp_path / "work" / "metrics.jsonl")) == 2
