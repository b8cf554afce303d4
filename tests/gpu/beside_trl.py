"""Our update and TRL's on identical rollouts, for `gpu.loop`.

TRL's update is `GRPOTrainer._compute_loss` with its "dapo" loss, micro-batch by micro-batch, padded to the
longest response of the rollout as its trainer hands them over.
"""

import copy
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from stapo.models.tiny import build_tokenizer
from stapo.training.config import StapoConfig
from stapo.training.trainer import StapoTrainer

GROUP_SIZE = 8
LOG_NORMAL_SIGMA = 0.8


@dataclass(frozen=True)
class Scale:
    """Sizes of model and rollout on one kind of device."""

    model: dict[str, int]
    num_sequences: int
    mean_length: int
    longest: int
    prompt_length: int
    trl_micro_batches: tuple[int, ...]
    """TRL's default, and its best."""
    micro_batch_tokens: int
    dtype: str = "float32"


CPU = Scale(
    model={
        "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 4096,
    },
    num_sequences=64, mean_length=162, longest=512, prompt_length=24, trl_micro_batches=(8, 2),
    micro_batch_tokens=1024,
)  # fmt: skip
GPU = Scale(
    model={  # Qwen3-1.7B
        "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    },
    num_sequences=128, mean_length=1296, longest=4096, prompt_length=128, trl_micro_batches=(8, 2),
    micro_batch_tokens=16384, dtype="bfloat16",
)  # fmt: skip


def policy(scale: Scale, device: str) -> Qwen3ForCausalLM:
    """Return a random model of that shape."""
    torch.manual_seed(0)
    config = Qwen3Config(
        **scale.model,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        initializer_range=0.06,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config).to(device)


def rollout(scale: Scale, device: str, zero_variance: float) -> dict[str, Tensor]:
    """Return one mini-batch: log-normal lengths, a share of the groups without reward variance."""
    generator = torch.Generator().manual_seed(1)
    count, width = scale.num_sequences, scale.longest
    centre = math.log(scale.mean_length) - LOG_NORMAL_SIGMA**2 / 2
    lengths = torch.exp(centre + LOG_NORMAL_SIGMA * torch.randn(count, generator=generator))
    lengths = lengths.round().long().clamp(8, width)
    lengths[0] = width
    mask = torch.arange(width) < lengths.unsqueeze(1)
    words = (3, scale.model["vocab_size"])
    prompts = torch.randint(*words, (count, scale.prompt_length), generator=generator)
    responses = torch.randint(*words, (count, width), generator=generator).masked_fill(~mask, 0)
    rewards = (torch.rand(count, generator=generator) < 0.5).float().view(-1, GROUP_SIZE)
    rewards[:, 0], rewards[:, 1] = 0.0, 1.0
    rewards[: round(zero_variance * len(rewards))] = 1.0
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    advantages = (centred / (rewards.std(dim=1, keepdim=True) + 1e-6)).view(-1)
    batch = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": responses,
        "completion_mask": mask.long(),
        "advantages": advantages,
        "rewards": rewards.view(-1),
        "num_items_in_batch": mask.sum(),
    }
    return {name: value.to(device) for name, value in batch.items()}


def trainers(scale: Scale, device: str) -> tuple[GRPOTrainer, StapoTrainer]:
    """Return TRL's and our trainer, each with its own copy of the policy."""
    common: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(),
        "num_generations": GROUP_SIZE,
        "max_completion_length": scale.longest,
        "temperature": 1.0,
        "use_cpu": device == "cpu",
        "bf16": scale.dtype == "bfloat16",
        "gradient_checkpointing": device != "cpu",
        "report_to": "none",
        "disable_tqdm": True,
    }
    per_step = scale.trl_micro_batches[0]
    num_micro_batches = scale.num_sequences // per_step
    theirs = GRPOConfig(
        **common,
        loss_type="dapo",
        epsilon=0.2,
        epsilon_high=0.28,
        beta=0.0,
        per_device_train_batch_size=per_step,
        gradient_accumulation_steps=num_micro_batches,
        steps_per_generation=num_micro_batches,
    )
    ours = StapoConfig(
        **common,
        method="justrl",
        per_device_train_batch_size=scale.num_sequences,
        steps_per_generation=1,
        micro_batch_tokens=scale.micro_batch_tokens,
    )
    model = policy(scale, device)
    shared: dict[str, Any] = {
        "reward_funcs": lambda completions, **_: [0.0] * len(completions),
        "train_dataset": Dataset.from_dict({"prompt": ["1"] * scale.num_sequences}),
        "processing_class": build_tokenizer(),
    }
    trl = GRPOTrainer(model=copy.deepcopy(model), args=theirs, **shared)
    trl.current_gradient_accumulation_steps = num_micro_batches
    stapo = StapoTrainer(model=model, args=ours, **shared)
    if common["gradient_checkpointing"]:
        # As Trainer.train() does, which is not called here.
        for one in (trl.model, stapo.model):
            one.gradient_checkpointing_enable({"use_reentrant": False})
    return trl, stapo


def trl_update(trainer: GRPOTrainer, batch: dict[str, Tensor], parts: Sequence[Tensor]) -> None:
    """Accumulate TRL's gradient over micro-batches."""
    for rows in parts:
        part = {k: v if v.dim() == 0 else v[rows] for k, v in batch.items()}
        trainer.accelerator.backward(trainer._compute_loss(trainer.model, part))


def gradient(model: Any) -> Tensor:
    """Return the whole gradient as one vector."""
    return torch.cat([p.grad.detach().float().flatten() for p in model.parameters()])


def with_statistics(trainer: StapoTrainer, batch: dict[str, Tensor]) -> None:
    """Add old log-probs and entropies, from the same policy."""
    logps, entropies, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model,
        torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
        torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
        batch["completion_ids"].shape[1],
    )
    batch["old_per_token_logps"], batch["old_entropies"] = logps, entropies
