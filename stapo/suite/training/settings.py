"""The settings of StapoTrainer for those of a study."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState

from stapo.core.config import StapoConfig
from stapo.suite.study.schema import EngineSettings, TrainingSettings

STUDY_SETTINGS = (
    "micro_batch_tokens", "advantage_epsilon", "statistics", "decayed", "learning_rate",
    "warmup_steps", "weight_decay", "temperature", "top_p",
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
        **{name: getattr(training, name) for name in STUDY_SETTINGS},
        # Optimiser
        lr_scheduler_type="constant_with_warmup",  # `stapo.suite.training.shorter` relies on it.
        max_grad_norm=training.gradient_clip,
        disable_dropout=True,
        # Rollouts
        steps_per_generation=training.prompts_per_batch // training.prompts_per_mini_batch,
        num_generations=training.group_size,
        max_completion_length=training.max_response_tokens,
        top_k=0,
        repetition_penalty=1.0,
        **(_vllm(training, engine, end_token_ids) if training.use_vllm else {}),
        bfloat16_rollouts=training.rollouts == "transformers-bfloat16",
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
