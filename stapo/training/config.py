"""Settings of StapoTrainer: TRL's and ours, and those of TRL that it does not use.

TRL's own loss and advantages are not computed, so their settings would be ignored without a word.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from trl import GRPOConfig

from stapo.methods import METHODS
from stapo.study.schema import EngineSettings, TrainingSettings

UNUSED = (
    "beta", "epsilon", "epsilon_high", "delta", "loss_type", "top_entropy_quantile", "scale_rewards",
    "importance_sampling_level", "off_policy_mask_threshold", "entropy_coef", "use_adaptive_entropy",
    "sync_ref_model", "label_smoothing_factor", "num_iterations", "gradient_accumulation_steps",
    "data_seed", "train_sampling_strategy", "fp16", "deepspeed", "parallelism_config", "eval_strategy",
    "save_only_model", "load_best_model_at_end", "push_to_hub", "enable_jit_checkpoint",
    "sapo_temperature_neg", "sapo_temperature_pos", "vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg",
    "vespo_lambda_neg", "entropy_coef_min", "entropy_coef_max", "entropy_coef_delta", "entropy_target",
    "ref_model_mixup_alpha", "ref_model_sync_steps", "multi_objective_aggregation",
    "vllm_importance_sampling_mode", "vllm_importance_sampling_cap", "max_tool_calling_iterations",
    "torch_empty_cache_steps", *(MAY_BE_OFF := (
        "use_bias_correction_kl", "vllm_importance_sampling_correction", "router_aux_loss_coef",
        "pad_to_multiple_of",
    )),
)  # fmt: skip
"""Settings of losses, schedules and checkpoints that do not exist here; those of `MAY_BE_OFF` are on
by default, and may be switched off."""


@dataclass(repr=False)
class StapoConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's settings and ours; `per_device_train_batch_size` is the part of the mini-batch of one rank.

    Settings of TRL that the update does not use are refused: the loss is that of a method, which may be an
    argument of StapoTrainer, a step is one mini-batch, and every rollout is used once.

    Raises:
        ValueError: settings have no effect here, or are wrong; one line each.
    """

    method: str = "stapo"
    """Name in `stapo.methods.METHODS`."""
    statistics: str = "behaviour"
    """Policy whose statistics select tokens: behaviour or current."""
    micro_batch_tokens: int = 32768
    """Token budget of one forward and backward pass."""
    packed: bool | None = None
    """Whether passes have no padding; by default on CUDA, where the model can."""
    shared_prompts: bool | None = None
    """Whether the responses to a prompt share the pass over it; by default on a CPU, where the model can."""
    advantage_epsilon: float = 1e-6
    """Added to the standard deviation of a group."""
    decayed: str = "matrices"
    """Parameters with weight decay: matrices or all."""
    token_records_mb: int = 0
    """Size of the token records, about, in MB; 0 records no tokens."""
    run_fingerprint: str = ""
    """Written into checkpoints, to skip those of other runs."""

    def __post_init__(self) -> None:
        if self.use_cpu:
            # Otherwise the device of each of several processes is `cpu:0`, which torch.load cannot map to.
            os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
        super().__post_init__()
        check(self)

    __repr__ = GRPOConfig.__str__  # It shows no token of the Hub, unlike the one of a dataclass.


def check(args: StapoConfig) -> None:
    """Check that no setting is given that StapoTrainer does not use, and the names of ours.

    Raises:
        ValueError: one line for each setting that is wrong or would be ignored.
    """
    defaults = {one.name: one.default for one in fields(GRPOConfig)}
    errors = [
        f"{name}: not used by StapoTrainer; leave it out"
        for name in UNUSED
        if (found := getattr(args, name)) != defaults[name] and (found or name not in MAY_BE_OFF)
    ]
    policies, parameters = ("behaviour", "current"), ("matrices", "all")
    known = {"method": METHODS, "statistics": policies, "decayed": parameters}
    for name, values in known.items():
        if (found := getattr(args, name)) not in values:
            errors.append(f"{name}: expected {', '.join(values)}, found {found!r}")
    if errors:
        raise ValueError("\n".join(errors))


OF_A_STUDY = (
    "micro_batch_tokens", "advantage_epsilon", "statistics", "decayed", "token_records_mb",
    "learning_rate", "warmup_steps", "weight_decay", "temperature", "top_p",
)  # fmt: skip
"""Settings with the same name in a study."""


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
        **{name: getattr(training, name) for name in OF_A_STUDY},
        # Optimiser
        lr_scheduler_type="constant_with_warmup",  # `stapo.training.shorter` relies on it.
        max_grad_norm=training.gradient_clip,
        disable_dropout=True,
        # Rollouts
        steps_per_generation=training.prompts_per_batch // training.prompts_per_mini_batch,
        num_generations=training.group_size,
        max_completion_length=training.max_response_tokens,
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
        # The last step has a checkpoint in any case; without a number, `Watch` asks for those before it.
        save_steps=training.checkpoint_every or training.steps,
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
        "vllm_importance_sampling_correction": False,
    }
