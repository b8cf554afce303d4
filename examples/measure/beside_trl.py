"""Rollouts and updates beside those of TRL's own trainer: `python examples/measure/beside_trl.py MODEL`.

Both train the same model with the same prompts, reward and settings (word problems, JustRL's clipping, four
updates for each rollout), in turn, in one process with one thread, so that other programs disturb both alike.
"""

import argparse
import tempfile
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from stapo.core.config import StapoConfig
from stapo.core.trainer import StapoTrainer
from stapo.suite.answers import last_number
from stapo.suite.models.word_problems import KINDS, mixed
from stapo.suite.training.prompts import chat_prompt

UPDATES = 4
"""Of each rollout."""


class Clock(TrainerCallback):  # type: ignore[misc]
    """The seconds of each rollout with its updates."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if state.global_step % UPDATES == 0:
            self.start = perf_counter()

    def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if state.global_step % UPDATES == 0:
            self.seconds.append(perf_counter() - self.start)


def reward(completions: Any, answer: Any, **_: Any) -> list[float]:
    """Return 1 where the last number is the answer, otherwise -1."""
    texts = [conversation[-1]["content"] for conversation in completions]
    return [
        1.0 if last_number(text) == gold else -1.0 for text, gold in zip(texts, answer, strict=True)
    ]


def seconds_of(
    trainer: type[GRPOTrainer], config: type[GRPOConfig], given: Any, **others: Any
) -> list[float]:
    """Train once, and return the seconds of each rollout with its updates."""
    clock, folder = Clock(), tempfile.mkdtemp()
    tokenizer = AutoTokenizer.from_pretrained(given.model, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    problems = [mixed(KINDS, rng) for rng in map(Random, range(given.rollouts * given.prompts))]
    rows = [
        {"prompt": chat_prompt(one.question, ""), "answer": str(one.answer)} for one in problems
    ]
    args = config(
        output_dir=folder, max_steps=given.rollouts * UPDATES, steps_per_generation=UPDATES,
        per_device_train_batch_size=given.prompts * given.group // UPDATES, num_generations=given.group,
        max_completion_length=given.tokens, learning_rate=2e-5, lr_scheduler_type="constant",
        weight_decay=0.1, max_grad_norm=1.0, temperature=1.0, top_p=1.0, top_k=0, use_cpu=True,
        bf16=False, gradient_checkpointing=False, save_strategy="no", report_to=[], disable_tqdm=True,
        shuffle_dataset=False, remove_unused_columns=False, **others,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    running = trainer(
        model, reward, args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
        callbacks=[clock],
    )  # fmt: skip
    running.remove_callback(PrinterCallback)
    running.train()
    return clock.seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--rollouts", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    given = parser.parse_args()
    torch.set_num_threads(1)
    clip = {"epsilon": 0.2, "epsilon_high": 0.28, "beta": 0.0, "loss_type": "bnpo"}
    theirs, ours = [], []
    for _ in range(2):
        theirs += seconds_of(GRPOTrainer, GRPOConfig, given, **clip)
        ours += seconds_of(
            StapoTrainer, StapoConfig, given, method="justrl", micro_batch_tokens=1024
        )
        print(f"TRL {theirs}\nours {ours}", flush=True)
    print(f"TRL's time: {median(theirs) / median(ours):.2f} times ours")


if __name__ == "__main__":
    main()
