"""Settings of GRPOConfig that StapoTrainer does not use, each with what to set instead.

TRL's own loss and advantages are not computed, so their settings would be ignored without a word.
"""

from dataclasses import MISSING, Field, fields
from typing import Any

from trl import GRPOConfig

NO_DEEPSPEED = "DeepSpeed would step in every micro-batch; use FSDP2 (workflows/accelerate)"
CORRECTION = "set rollout_correction, the cap of each token's factor"
NO_EFFECT = """
    importance_sampling_level off_policy_mask_threshold use_bias_correction_kl router_aux_loss_coef
    label_smoothing_factor average_tokens_across_devices sapo_temperature_neg sapo_temperature_pos
    vespo_k_pos vespo_lambda_pos vespo_k_neg vespo_lambda_neg entropy_coef use_adaptive_entropy
    entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target sync_ref_model
    ref_model_mixup_alpha ref_model_sync_steps multi_objective_aggregation max_tool_calling_iterations
    pad_to_multiple_of parallelism_config save_on_each_node
"""
"""Settings of losses, schedules and tools that do not exist here."""

UNUSED: dict[str, str] = {
    **dict.fromkeys(
        NO_EFFECT.split(), "it would have no effect; leave it out, and choose a method"
    ),
    # The loss and the advantages
    "beta": "set kl_coefficient",
    "epsilon": "set clip_low",
    "epsilon_high": "set clip_high",
    "delta": "set dual_clip, which is the same bound",
    "loss_type": "set method, or aggregation for its divisor",
    "top_entropy_quantile": 'set method="20-entropy" and fraction',
    "scale_rewards": "advantages are divided by their group's standard deviation plus advantage_epsilon",
    # The rollout
    "num_iterations": "every rollout is used once, in steps_per_generation mini-batches",
    "data_seed": "prompts are shuffled by seed",
    "train_sampling_strategy": "prompts come in data order or shuffled; set shuffle_dataset",
    "vllm_importance_sampling_correction": CORRECTION,
    "vllm_importance_sampling_mode": CORRECTION,
    "vllm_importance_sampling_clip_max": CORRECTION,
    "vllm_importance_sampling_clip_min": CORRECTION,
    "vllm_importance_sampling_cap": CORRECTION,
    # The pass
    "gradient_accumulation_steps": "a step takes the whole mini-batch, ranks x "
    "per_device_train_batch_size; set micro_batch_tokens for memory",
    "torch_empty_cache_steps": "set PYTORCH_ALLOC_CONF=expandable_segments:True for fragmentation",
    "fp16": "its first gradients overflow, which stops a training; set bf16",
    "deepspeed": NO_DEEPSPEED,
    "ds3_gather_for_generation": NO_DEEPSPEED,
    # Checkpoints, which are written aside, sealed and renamed
    "save_only_model": "a checkpoint is for resuming; save the weights at the end by save_model",
    "enable_jit_checkpoint": "set save_steps; a stopped training resumes from the last checkpoint",
    "load_best_model_at_end": "older checkpoints are removed; choose among kept weights yourself",
    "push_to_hub": "call trainer.push_to_hub() after the training",
}
"""Name -> what to set instead, or what the trainer does in any case."""

SAME: dict[str, tuple[Any, ...]] = {
    "use_bias_correction_kl": (False,),
    "vllm_importance_sampling_correction": (False,),
    "router_aux_loss_coef": (0.0,),
    "pad_to_multiple_of": (None,),
}
"""Values besides the default that say what the trainer does in any case."""

OPTIMISERS = ("lomo", "adalomo", "schedule_free")
"""Starts of the names of optimisers that TRL's training step, which is replaced, treats separately."""


def unused_settings(args: GRPOConfig) -> list[str]:
    """Return a line for each setting that differs from its default and would be ignored."""
    lines = [
        f"{one.name}: not used by StapoTrainer; {UNUSED[one.name]}"
        for one in fields(GRPOConfig)
        if one.name in UNUSED
        and getattr(args, one.name) not in (default(one), *SAME.get(one.name, ()))
    ]
    if args.deepspeed_plugin is not None and args.deepspeed is None:
        lines.append(f"deepspeed: asked for by the launcher; {NO_DEEPSPEED}")
    optimiser = getattr(args.optim, "value", args.optim)
    if str(optimiser).startswith(OPTIMISERS):
        lines.append(f"optim: {optimiser} needs a training step of its own; choose another")
    return lines


def default(one: "Field[Any]") -> Any:
    """Return the default of a field of a dataclass."""
    return one.default if one.default_factory is MISSING else one.default_factory()
