"""A trainer and random rollouts, for `gpu.loop`."""

import math
import tempfile
from dataclasses import dataclass

import torch
from datasets import Dataset
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

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
    micro_batch_tokens: int


CPU = Scale(
    model={
        "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 4096,
    },
    num_sequences=64, mean_length=162, longest=512, prompt_length=24,
    micro_batch_tokens=1024,
)  # fmt: skip
GPU = Scale(
    model={  # Qwen3-1.7B
        "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    },
    num_sequences=128, mean_length=1296, longest=4096, prompt_length=128,
    micro_batch_tokens=16384,
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
    }
    return {name: value.to(device) for name, value in batch.items()}


def trainer_of(scale: Scale, device: str) -> StapoTrainer:
    """Return a trainer of a random model."""
    args = StapoConfig(
        output_dir=tempfile.mkdtemp(),
        method="justrl",
        num_generations=GROUP_SIZE,
        per_device_train_batch_size=scale.num_sequences,
        steps_per_generation=1,
        micro_batch_tokens=scale.micro_batch_tokens,
        max_completion_length=scale.longest,
        use_cpu=device == "cpu",
        bf16=device != "cpu",
        gradient_checkpointing=device != "cpu",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = StapoTrainer(
        model=policy(scale, device),
        args=args,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_dict({"prompt": ["1"] * scale.num_sequences}),
        processing_class=build_tokenizer(),
    )
    if device != "cpu":
        # As Trainer.train() does, which is not called here.
        trainer.model.gradient_checkpointing_enable({"use_reentrant": False})
    trainer.model.train()
    return trainer


def with_statistics(trainer: StapoTrainer, batch: dict[str, Tensor]) -> None:
    """Add old log-probs and entropies, from the same policy."""
    logps, entropies, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model,
        torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
        torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
        batch["completion_ids"].shape[1],
    )
    batch["old_per_token_logps"], batch["old_entropies"] = logps, entropies
