"""One mini-batch through the trainer's update, and the same from plain logits and loops.

The policy is a real Qwen3 of two layers whose weights have moved since the rollout, so that the
probabilities and entropies of the behaviour policy and of the current one select other tokens.
"""

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import oracle
import pytest
import torch
from datasets import Dataset
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from stapo.core.config import StapoConfig
from stapo.core.methods import METHODS, Method, s2t_arguments
from stapo.core.step_record import as_line
from stapo.core.trainer import StapoTrainer
from stapo.suite.models.tiny import build_tokenizer
from stapo.suite.training.token_recorder import TokenRecorder

VOCABULARY, PROMPT, WIDTH, GROUP = 64, 5, 12, 6
# A group without advantage at the end; two responses without a token.
ADVANTAGES = [1.3, -0.7, 0.9, -1.4, 0.6, -0.7, 1.1, -0.5, 1.6, -1.2, -2.0, 1.0] + [0.0] * GROUP
MEAN_REWARD = 0.5
"""The advantages have the mean 0."""
LENGTHS = [12, 9, 7, 12, 0, 5, 11, 8, 12, 10, 0, 3, 6, 12, 4, 9, 2, 8]
ROWS = range(len(ADVANTAGES))
POSITIVE = [row for row in ROWS if ADVANTAGES[row] > 0 and LENGTHS[row]]
TOKENS = [row for row in ROWS if LENGTHS[row]]
ENDED = [1, 2, 6, 8, 15]
"""Responses that end with the end token."""
EOS = build_tokenizer().eos_token_id
# Rare enough that some positive tokens are candidates, and others not.
RARE = {"tau_p": 0.01, "quantile": 0.75}


def clipped(name: str, **changes: Any) -> Method:
    """Return a method with a clip that half of the tokens are beyond."""
    return replace(METHODS[name], clip_low=0.1, clip_high=0.15, **changes)


WHOLE = {
    "candidates": clipped("stapo", args={**RARE, "scope": "candidates"}),
    "all": clipped("stapo", args={**RARE, "quantile": 0.6, "scope": "all"}),
    "high entropy": clipped("high-entropy", args=RARE),
    "high entropy of all": clipped(
        "high-entropy", args={"tau_p": 0.01, "quantile": 0.45, "scope": "all"}
    ),
    "20-entropy": clipped("20-entropy"),
    "full mask": clipped("full-mask", args={"tau_p": 0.01}),
    "justrl": clipped("justrl"),
    "grpo": clipped("grpo", kl_coefficient=0.3),
    "by group": clipped("justrl", aggregation="group_token_mean"),
    "dual clip": clipped("justrl", dual_clip=1.05),
}
"""Methods whose tokens and losses follow from a mini-batch without a draw."""


def build(folder: Path, layout: str) -> tuple[StapoTrainer, dict[str, Tensor], Any]:
    """Return a trainer, a mini-batch and a copy of the policy that nothing wraps."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, initializer_range=0.3,
    )  # fmt: skip
    policy = Qwen3ForCausalLM(config)
    plain = copy.deepcopy(policy)
    args = StapoConfig(
        str(folder), per_device_train_batch_size=GROUP, num_generations=GROUP,
        packed=layout == "packed", shared_prompts=layout == "shared",
        steps_per_generation=2, micro_batch_tokens=60, use_cpu=True, bf16=False, report_to="none",
    )  # fmt: skip
    trainer = StapoTrainer(
        model=policy,
        args=args,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_dict({"prompt": ["1"] * GROUP}),
        processing_class=build_tokenizer(),
    )
    trainer.model.train()
    return trainer, mini_batch(plain), plain


def mini_batch(policy: Any) -> dict[str, Tensor]:
    """Return a mini-batch whose old and reference log-probs are those of other weights; it has a proxy."""
    generator = torch.Generator().manual_seed(1)
    prompts, lengths = torch.tensor([1, 3, 5]).repeat_interleave(GROUP), torch.tensor(LENGTHS)
    of_groups = torch.randint(3, VOCABULARY, (len(ROWS) // GROUP, PROMPT), generator=generator)
    batch = {
        "prompt_ids": of_groups.repeat_interleave(GROUP, dim=0),
        "prompt_mask": (torch.arange(PROMPT).flip(0) < prompts.unsqueeze(1)).long(),
        "completion_ids": torch.randint(3, VOCABULARY, (len(ROWS), WIDTH), generator=generator),
        "completion_mask": (torch.arange(WIDTH) < lengths.unsqueeze(1)).long(),
        "advantages": torch.tensor(ADVANTAGES),
        "rewards": torch.tensor(ADVANTAGES) + MEAN_REWARD,
    }
    for row in ENDED:
        batch["completion_ids"][row, LENGTHS[row] - 1] = EOS
    old, entropies = statistics_of(disturbed(policy, 2), batch)
    batch["old_per_token_logps"], batch["old_entropies"] = old, entropies
    batch["ref_per_token_logps"] = statistics_of(disturbed(policy, 3), batch)[0]
    batch["proxy_logps"] = old + 0.2
    return batch


def disturbed(policy: Any, seed: int) -> Any:
    other, generator = copy.deepcopy(policy), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 0.03 * torch.randn(parameter.shape, generator=generator)
    return other


def logits_of(policy: Any, batch: dict[str, Tensor]) -> Tensor:
    """Return plain logits (B, T, V) of whole padded sequences."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    logits: Tensor = policy(input_ids=ids, attention_mask=attention, use_cache=False).logits
    return logits[:, -WIDTH - 1 : -1]


def forward(policy: Any, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return log-probs and entropies (B, T) from plain logits."""
    log_probs = logits_of(policy, batch).log_softmax(dim=-1)
    entropies = -(log_probs.exp() * log_probs).sum(dim=-1)
    return log_probs.gather(2, batch["completion_ids"].unsqueeze(2)).squeeze(2), entropies


def statistics_of(policy: Any, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return forward(policy, batch)


class Update:
    """One run of the update: what it gave, and the rows of every pass through the model."""

    def __init__(
        self, base: Any, method: Method, step: int, statistics: str, tokens: int = 0, **args: Any
    ) -> None:
        shell, self.batch, _ = base
        trainer = copy.copy(shell)
        trainer.args, trainer.method, trainer._step = copy.copy(shell.args), method, step
        trainer.args.statistics, marks = statistics, args.pop("marks", None)
        for name, value in args.items():
            setattr(trainer.args, name, value)
        if tokens:
            trainer.recorder = partial(
                TokenRecorder, size=tokens, s2t=s2t_arguments(method), marks=marks
            )
        self.for_statistics: list[list[int]] = []
        self.for_gradient: list[list[int]] = []

        def counted(model: Any, sequences: Any, rows: Tensor) -> Any:
            passes = self.for_gradient if torch.is_grad_enabled() else self.for_statistics
            passes.append(rows.tolist())
            return StapoTrainer.forward(trainer, model, sequences, rows)

        trainer.forward = counted
        trainer.model.zero_grad()
        self.loss = trainer._accumulate_gradients(trainer.model, self.batch).item()
        self.record = as_line(trainer._record)
        self.tokens = trainer._tokens
        self.gradients = {name: p.grad.clone() for name, p in trainer.model.named_parameters()}


def kept(method: Method, statistics: tuple[Tensor, Tensor], batch: dict[str, Tensor]) -> list:
    """Return the tokens that the loops keep."""
    logps, entropies = (values.tolist() for values in statistics)
    mask, advantages = batch["completion_mask"].bool().tolist(), batch["advantages"].tolist()
    tables = logps, entropies, advantages, mask
    return oracle.SELECTIONS[method.selection](*tables, **method.arguments_of("selection"))


def plain_update(
    policy: Any, method: Method, batch: dict[str, Tensor], keep: list
) -> tuple[float, dict[str, Tensor]]:
    """Return loss and gradients of a mini-batch: loops to the log-probs of plain logits, then autograd."""
    policy.zero_grad()
    logps, _ = forward(policy, batch)
    old, ref, advantages = (
        batch[name].tolist()
        for name in ("old_per_token_logps", "ref_per_token_logps", "advantages")
    )
    size = {"token_mean": len(keep), "group_token_mean": GROUP, "sequence_mean": 1}
    clip = method.clip_low, method.clip_high, method.dual_clip
    loss, slopes = oracle.loss_and_gradient(
        logps.tolist(), old, advantages, keep, clip, size[method.aggregation], ref,
        method.kl_coefficient,
    )  # fmt: skip
    logps.backward(torch.tensor(slopes))
    return loss, {name: p.grad.clone() for name, p in policy.named_parameters()}


def assert_same_update(update: Update, expected: tuple[float, dict[str, Tensor]]) -> None:
    # Single precision through two layers, trimmed and padded differently: some 1e-6 of each log-prob.
    assert update.loss == pytest.approx(expected[0], rel=1e-4, abs=1e-6)
    for name, gradient in expected[1].items():
        assert gradient.norm() > 0, name
        error = (update.gradients[name] - gradient).norm() / gradient.norm()
        assert error < 1e-4, (name, error.item())
