"""Settings of StapoTrainer: TRL's and ours, and those of TRL that it does not use.

TRL's own loss and advantages are not computed, so their settings would be ignored without a word.
"""

import os
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from pydantic import ValidationError, create_model
from trl import GRPOConfig

from stapo.methods import METHODS
from stapo.study.loader import Document, field_problems
from stapo.study.schema import EngineSettings, TrainingSettings

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
    "beta": "give the trainer a method with another kl_coefficient",
    "epsilon": "give the trainer a method with another clip_low",
    "epsilon_high": "give the trainer a method with another clip_high",
    "delta": "give the trainer a method with dual_clip, which is the same bound",
    "loss_type": "set method, or give the trainer one with another aggregation",
    "top_entropy_quantile": 'set method="20-entropy"',
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


@dataclass(repr=False)
class StapoConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's settings and ours; `per_device_train_batch_size` is the part of the mini-batch of one rank.

    Settings of TRL that the update does not use are refused, with what to set instead. A method with other
    settings than those of `stapo.methods` is an argument of StapoTrainer.

    Raises:
        ValueError: settings have no effect here, or are wrong; one line each.
    """

    method: str = field(default="stapo", metadata={"help": "Name in stapo.methods.METHODS"})
    statistics: str = field(
        default="behaviour",
        metadata={"help": "Policy whose statistics select tokens: behaviour or current"},
    )
    micro_batch_tokens: int = field(
        default=32768, metadata={"help": "Token budget of one forward and backward pass"}
    )
    packed: bool | None = field(
        default=None,
        metadata={
            "help": "Whether passes have no padding; by default on CUDA, where the model can"
        },
    )
    advantage_epsilon: float = field(default=1e-6, metadata={"help": "Added to the group's std"})
    decayed: str = field(default="matrices", metadata={"help": "Weight decay: matrices or all"})
    rollout_mismatch_limit: float | None = field(
        default=None, metadata={"help": "Mean mismatch with vLLM, in nats, above which it stops"}
    )
    rollout_correction: float | None = field(
        default=None, metadata={"help": "Cap of the importance weights of vLLM's tokens; None: off"}
    )
    token_records_mb: int = field(
        default=0, metadata={"help": "Size limit of the token records, in MB; 0 records no tokens"}
    )
    run_fingerprint: str = field(
        default="", metadata={"help": "Written into checkpoints, to skip those of other runs"}
    )

    def __post_init__(self) -> None:
        if self.use_cpu:
            # Otherwise the device of each of several processes is `cpu:0`, which torch.load cannot map to.
            os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
        super().__post_init__()
        check(self)

    __repr__ = GRPOConfig.__str__  # It shows no token of the Hub, unlike the one of a dataclass.


def check(args: StapoConfig) -> None:
    """Check the settings that StapoTrainer does not use, ours, and the name of the method.

    Raises:
        ValueError: one line for each setting that is wrong or would be ignored.
    """
    errors = [
        f"{name}: not used by StapoTrainer; {instead}"
        for name, instead in UNUSED.items()
        if getattr(args, name) not in (_default(name), *SAME.get(name, ()))
    ]
    if args.deepspeed_plugin is not None and args.deepspeed is None:
        errors.append(f"deepspeed: asked for by the launcher; {NO_DEEPSPEED}")
    optimiser = str(getattr(args.optim, "value", args.optim))
    if optimiser.startswith(OPTIMISERS):
        errors.append(f"optim: {optimiser} needs a training step of its own; choose another")
    ours = {name: getattr(args, name) for name in _Ours.model_fields}
    try:
        _Ours.model_validate(ours, strict=True)
    except ValidationError as error:
        problems = field_problems(error, ours, _Ours.model_json_schema())
        errors += Document().errors([*problems])
    if args.method not in METHODS:
        errors.append(f"method: unknown method {args.method!r}; choose from {', '.join(METHODS)}")
    if errors:
        raise ValueError("\n".join(errors))


def _default(name: str) -> Any:
    (one,) = [one for one in fields(GRPOConfig) if one.name == name]
    return one.default if one.default_factory is MISSING else one.default_factory()


_OURS: dict[str, Any] = {
    name: (one.annotation, one)
    for name, one in TrainingSettings.model_fields.items()
    if name in {own.name for own in fields(StapoConfig)} - {own.name for own in fields(GRPOConfig)}
}
_Ours = create_model("_Ours", **_OURS)
"""Our settings that a study has too, with its checks."""


def trainer_config(
    training: TrainingSettings,
    engine: EngineSettings,
    seed: int,
    output: Path,
    run_fingerprint: str,
    end_token_ids: Sequence[int],
) -> StapoConfig:
    """Return the settings of the trainer for the settings of a study.

    Raises:
        ValueError: the mini-batch cannot be divided among this number of processes.
    """
    num_processes, accelerator = PartialState().num_processes, torch.cuda.is_available()
    mini_batch = training.prompts_per_mini_batch * training.group_size
    if mini_batch % num_processes:
        raise ValueError(
            f"training: a mini-batch of {mini_batch} responses cannot be divided among {num_processes} "
            f"processes; start a number of processes that divides {mini_batch}"
        )
    return StapoConfig(
        output_dir=str(output),
        run_fingerprint=run_fingerprint,
        seed=seed,
        max_steps=training.steps,
        num_train_epochs=1,
        shuffle_dataset=False,
        per_device_train_batch_size=mini_batch // num_processes,
        gradient_accumulation_steps=1,
        **{name: getattr(training, name) for name in _OURS},
        # Optimiser
        learning_rate=training.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=training.warmup_steps,
        weight_decay=training.weight_decay,
        max_grad_norm=training.gradient_clip,
        disable_dropout=True,
        # Rollouts
        steps_per_generation=training.prompts_per_batch // training.prompts_per_mini_batch,
        num_generations=training.group_size,
        max_completion_length=training.max_response_tokens,
        temperature=training.temperature,
        top_p=training.top_p,
        top_k=0,
        repetition_penalty=1.0,
        **({} if training.rollouts == "transformers" else _vllm(training, engine, end_token_ids)),
        # Machine, checkpoints and logs
        trust_remote_code=False,  # Also applies to the reference model and to vLLM.
        bf16=accelerator,
        use_cpu=not accelerator,
        gradient_checkpointing=accelerator,
        dataloader_num_workers=0,
        ddp_find_unused_parameters=False,
        remove_unused_columns=False,
        save_strategy="steps",
        save_steps=training.checkpoint_every,
        save_total_limit=training.keep_checkpoints,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=[] if engine.tracker == "none" else [engine.tracker],
        disable_tqdm=True,
    )


def _vllm(
    training: TrainingSettings, engine: EngineSettings, end_token_ids: Sequence[int]
) -> dict[str, Any]:
    """Return TRL's settings of vLLM rollouts."""
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_enable_sleep_mode": True,
        "vllm_gpu_memory_utilization": engine.vllm_gpu_memory,
        "vllm_tensor_parallel_size": engine.vllm_tensor_parallel,
        "vllm_max_model_length": training.max_prompt_tokens + training.max_response_tokens,
        # Responses end as in evaluation: by the end tokens of the study, not those of the checkpoint.
        "generation_kwargs": {
            "stop_token_ids": list(end_token_ids),
            "ignore_eos": True,
            "detokenize": False,  # TRL reads ids and log-probs alone.
        },
        # That of TRL is in its loss, which is not used; ours is `rollout_correction`.
        "vllm_importance_sampling_correction": False,
    }
