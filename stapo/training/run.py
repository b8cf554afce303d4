"""One training run: trains a base model on prompts and publishes weights and metrics."""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback

from stapo.bars import only_ours
from stapo.canonical import fingerprint
from stapo.files import append_jsonl, link_or_copy, replace_directory, replace_file, write_json
from stapo.locks import work_directory
from stapo.methods import Method
from stapo.models.loading import end_token_ids, load_model, load_tokenizer
from stapo.paths import METRICS_FILE, RECORD_FILE, TOKENS_FILE, TOKENS_LOG
from stapo.provenance import file_sha256, require_whole, sums_of, write_sums
from stapo.records.step import StepRecord, as_line
from stapo.study import StudyError
from stapo.study.schema import EngineSettings, TrainingSettings
from stapo.training.config import StapoConfig
from stapo.training.kept_tokens import KeptTokens
from stapo.training.own_functions import traceback_kept
from stapo.training.progress import Progress, StopBetweenSteps
from stapo.training.prompts import chat_prompt, prompt_order, read_prompts, without_long
from stapo.training.record import run_provenance
from stapo.training.resume import say, train_from_newest
from stapo.training.rewards import reward_functions
from stapo.training.sharding import TIMEOUT, residual_dtype
from stapo.training.step_checkpoints import step_checkpoints
from stapo.training.token_file import write_tokens
from stapo.training.trainer import StapoTrainer


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """Inputs, settings and output paths of one training."""

    config: dict[str, Any]
    """Everything that determines the result; `work` can only be used with this configuration."""
    training: TrainingSettings
    """Settings that all methods share."""
    method: Method
    """Method of the run."""
    seed: int
    """Seed of everything random."""
    base: Path
    """Directory of the base model and its tokenizer."""
    prompts: Path
    """JSON lines with question and answer."""
    work: Path
    """Directory of the step checkpoints, used by this run alone."""
    model_path: Path
    """Output directory of the final weights, created by one rename."""
    metrics_path: Path
    """Output file of the metrics, written before the weights."""
    engine: EngineSettings = field(default_factory=EngineSettings)
    """Settings of the engine, which do not determine the result."""
    kept_steps: Sequence[int] = ()
    """Steps before the last whose weights are kept, and published at the end as `stepN` by `model_path`."""
    end_tokens: Sequence[str] = ()
    """End tokens of the study, in addition to the tokenizer's."""
    study: dict[str, Any] | None = None
    """The resolved study as JSON, for the record of attempts."""

    @property
    def metrics(self) -> Path:
        """File with the records of the completed steps."""
        return self.work / METRICS_FILE

    @property
    def tokens(self) -> Path:
        """File with the token records of the completed steps."""
        return self.work / TOKENS_LOG

    @property
    def tokens_path(self) -> Path:
        """Output file of the token records, beside the metrics."""
        return self.metrics_path.with_name(TOKENS_FILE)

    @property
    def kept(self) -> dict[int, Path]:
        """Step -> directory in which its weights are kept until they are published."""
        return {step: self.work / "weights" / f"step{step}" for step in self.kept_steps}


def trainer_config(
    training: TrainingSettings,
    engine: EngineSettings,
    seed: int,
    output: Path,
    run_fingerprint: str,
    end_token_ids: Sequence[int],
) -> StapoConfig:
    """Return the settings of the trainer for the settings of a study.

    Args:
        training: settings that all methods share.
        engine: settings of the engine, which do not determine the result.
        seed: seed of everything random.
        output: directory of the step checkpoints.
        run_fingerprint: fingerprint of everything that determines the result.
        end_token_ids: ids of the tokens that end a response.

    Raises:
        ValueError: the mini-batch cannot be divided among this number of processes.
    """
    num_processes = PartialState().num_processes
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
        statistics=training.statistics,
        micro_batch_tokens=training.micro_batch_tokens,
        advantage_epsilon=training.advantage_epsilon,
        rollout_mismatch_limit=training.rollout_mismatch_limit,
        rollout_correction=training.rollout_correction,
        token_records_mb=training.token_records_mb,
        disable_dropout=True,
        trust_remote_code=False,  # Also applies to the reference model and to vLLM.
        save_strategy="steps",
        save_steps=training.checkpoint_every,
        save_total_limit=training.keep_checkpoints,
        **_optimiser(training),
        **_rollouts(training),
        **_vllm(training, engine, end_token_ids),
        **_launch(engine),
    )


def _optimiser(training: TrainingSettings) -> dict[str, Any]:
    """Return the Trainer's settings of the optimiser and its schedule."""
    return {
        "learning_rate": training.learning_rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": training.warmup_steps,
        "weight_decay": training.weight_decay,
        "decayed": training.decayed,
        "max_grad_norm": training.gradient_clip,
    }


def _rollouts(training: TrainingSettings) -> dict[str, Any]:
    """Return TRL's settings of rollouts that do not depend on the engine."""
    return {
        "steps_per_generation": training.prompts_per_batch // training.prompts_per_mini_batch,
        "num_generations": training.group_size,
        "max_completion_length": training.max_response_tokens,
        "temperature": training.temperature,
        "top_p": training.top_p,
        "top_k": 0,
        "repetition_penalty": 1.0,
    }


def _launch(engine: EngineSettings) -> dict[str, Any]:
    """Return the Trainer's settings of machine and logging."""
    accelerator = torch.cuda.is_available()
    return {
        "bf16": accelerator,
        "use_cpu": not accelerator,
        "gradient_checkpointing": accelerator,
        "dataloader_num_workers": 0,
        "ddp_find_unused_parameters": False,
        "remove_unused_columns": False,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": [] if engine.tracker == "none" else [engine.tracker],
        "disable_tqdm": True,
    }


def _vllm(
    training: TrainingSettings, engine: EngineSettings, end_token_ids: Sequence[int]
) -> dict[str, Any]:
    """Return TRL's settings of vLLM rollouts."""
    if training.rollouts == "transformers":
        return {}
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


def train(job: TrainingJob) -> None:
    """Train, resuming from the newest complete step checkpoint, and publish the result.

    All processes of `accelerate launch` call this with the same job, and share a file system.

    Raises:
        BusyError: another process uses the work directory.
        ForeignDirectoryError: the work directory belongs to another run.
        DamagedFileError: the base model differs from its checksums.
        FloatingPointError: a loss or gradient is not finite.
        ValueError: the token selection has never kept a token.
        OwnFunctionError: a token selection or reward of the study's own raised an error.
        KeyboardInterrupt: the training was stopped between two steps, and can be resumed.
    """
    only_ours()
    state = PartialState(cpu=not torch.cuda.is_available(), timeout=TIMEOUT)
    with ExitStack() as stack:
        if state.is_main_process:
            stack.enter_context(work_directory(job.work, job.config))
            require_whole(job.base)
        state.wait_for_everyone()
        # A file for each rank: rewards of their own responses may fail for different reasons.
        stack.enter_context(traceback_kept(job.work / f"traceback-rank{state.process_index}.txt"))
        stop = StopBetweenSteps()
        records, too_long = _records(job)
        trainer = _trainer(job, records, stop)
        train_from_newest(trainer, job.work, job.kept, job.study)
        done, steps = trainer.state.global_step, job.training.steps
        if stop.asked and done < steps:
            raise KeyboardInterrupt
        if done < steps:
            raise RuntimeError(
                f"the training ended after step {done} of {steps} for an unknown reason; "
                "nothing was published"
            )
        published = _publish(trainer, job, records)
        if state.is_main_process:
            record = run_provenance(
                job.config, job.base, job.prompts, job.work, published, too_long
            )
            # It differs between one GPU and several.
            dtype = residual_dtype(trainer.model, trainer.accelerator)
            record["residual_stream"] = str(dtype).removeprefix("torch.")
            write_json(job.metrics_path.with_name(RECORD_FILE), record)


def leave() -> None:
    """Wait for all ranks, then close their connections: otherwise the first to end may make others fail."""
    state = PartialState()
    state.wait_for_everyone()
    state.destroy_process_group()


def _trainer(
    job: TrainingJob, records: Sequence[dict[str, Any]], stop: StopBetweenSteps
) -> StapoTrainer:
    """Return the trainer of a job.

    Args:
        job: the training.
        records: its prompts.
        stop: callback that stops it after a signal.

    Raises:
        StudyError: the tokenizer has no end token.
    """
    training = job.training
    # With checksums, since the same configuration may give a base model or prompts with other bits.
    made_from = [job.config, sums_of(job.base), file_sha256(job.prompts)]
    tokenizer = load_tokenizer(job.base, padding_side="left")
    if tokenizer.eos_token_id is None:  # TRL needs it.
        raise StudyError([f"{job.base}: the tokenizer has no end token; choose another model"])
    ends = end_token_ids(tokenizer, job.end_tokens)
    model = load_model(job.base, torch.float32)
    # TRL ends responses at the end tokens of the generation configuration, and masks what follows.
    model.generation_config.eos_token_id = list(ends)
    progress = Progress(job.method.title)

    def on_metrics(record: StepRecord) -> None:
        append_jsonl(job.metrics, as_line(record))
        progress.show(record)

    made_of = fingerprint(made_from)
    trainer = StapoTrainer(
        model=model,
        args=trainer_config(training, job.engine, job.seed, job.work, made_of, ends),
        reward_funcs=reward_functions(training, tokenizer, ends),
        train_dataset=_dataset(records, training, job.seed),
        processing_class=tokenizer,
        callbacks=[progress, stop, KeptTokens(job.method.selection)],
        method=job.method,
        on_metrics=on_metrics,
        on_tokens=partial(append_jsonl, job.tokens),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.logs = (job.metrics, job.tokens)
    trainer.add_callback(KeepWeights(trainer, job.kept))
    return trainer


class KeepWeights(TrainerCallback):  # type: ignore[misc]
    """Writes the weights after certain steps, before the checkpoint of the step is written.

    Args:
        trainer: trainer of the run.
        paths: step -> directory of its weights.
    """

    def __init__(self, trainer: StapoTrainer, paths: Mapping[int, Path]) -> None:
        self.trainer, self.paths = trainer, paths

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the weights if they are kept after this step; all ranks must call this."""
        if state.global_step in self.paths:
            _write_weights(self.trainer, self.paths[state.global_step])


def _write_weights(trainer: StapoTrainer, path: Path) -> None:
    """Write weights and tokenizer atomically on the main process; all processes must call this."""
    # All processes together gather sharded weights.
    weights = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None
    if trainer.accelerator.is_main_process:
        with replace_directory(path) as aside:
            model = trainer.accelerator.unwrap_model(trainer.model)
            if weights is not None and model.config.tie_word_embeddings:
                # Gathering copies each tied weight; without this, it would be saved several times.
                weights = {k: v for k, v in weights.items() if k not in model._tied_weights_keys}
            model.save_pretrained(aside, state_dict=weights)
            trainer.processing_class.save_pretrained(aside)
            write_sums(aside)


def _publish(
    trainer: StapoTrainer, job: TrainingJob, records: Sequence[dict[str, Any]]
) -> list[Path]:
    """Write metrics, tokens and weights to their output paths on the main process; return the paths."""
    steps = {job.model_path.with_name(path.name): path for path in job.kept.values()}
    if trainer.accelerator.is_main_process:
        for target, path in steps.items():
            with replace_directory(target) as aside:
                shutil.copytree(path, aside, dirs_exist_ok=True, copy_function=link_or_copy)
        with replace_file(job.metrics_path) as stream:
            stream.write(job.metrics.read_text())
        training = job.training
        write_tokens(
            job.tokens,
            job.tokens_path,
            trainer.processing_class,
            [records[i]["line"] for i in _order(records, training, job.seed)],
            training.prompts_per_mini_batch,
            training.group_size,
            training.token_records_mb * 10**6,
        )
    _write_weights(trainer, job.model_path)
    if trainer.accelerator.is_main_process:
        # The results are published, so the older checkpoints are not needed any more.
        for path in step_checkpoints(job.work)[:-1]:
            shutil.rmtree(path)
    trainer.accelerator.wait_for_everyone()
    return [job.model_path, job.metrics_path, job.tokens_path, *steps]


def _records(job: TrainingJob) -> tuple[list[dict[str, Any]], int]:
    """Return the prompts that are short enough, with their lines in the file, and how many are not."""
    found = [{**record, "line": line} for line, record in enumerate(read_prompts(job.prompts))]
    limit = job.training.max_prompt_tokens
    tokenizer = load_tokenizer(job.base, padding_side="left")
    kept = without_long(found, job.training.instruction, tokenizer, limit)
    too_long = len(found) - len(kept)
    say(f"{len(kept)} prompts; {too_long} left out, longer than {limit} tokens")
    return kept, too_long


def _order(records: Sequence[dict[str, Any]], training: TrainingSettings, seed: int) -> list[int]:
    """Return the indices of the prompts of all rollouts, in the order of the training."""
    # Rounded up, since the steps may need only a part of the last rollout.
    rollouts = ceil(training.steps * training.prompts_per_mini_batch / training.prompts_per_batch)
    return prompt_order(len(records), rollouts * training.prompts_per_batch, seed)


def _dataset(records: Sequence[dict[str, Any]], training: TrainingSettings, seed: int) -> Dataset:
    rows = [
        {
            "prompt": chat_prompt(record["question"], training.instruction),
            "answer": record["answer"],
        }
        for record in records
    ]
    return Dataset.from_list(rows).select(_order(records, training, seed))
