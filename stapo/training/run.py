"""One training run: from prompts and base model to published weights and metrics."""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import ceil
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback

from stapo.canonical import fingerprint
from stapo.files import append_jsonl, link_or_copy, replace_directory, replace_file, write_json
from stapo.locks import work_directory
from stapo.methods import Method
from stapo.models.loading import end_token_ids, load_model, load_tokenizer
from stapo.provenance import damaged_file, file_sha256, require_whole, sums_of, write_sums
from stapo.records.step import StepRecord, as_line
from stapo.study import StudyError
from stapo.study.schema import EngineSettings, TrainingSettings
from stapo.training.checkpoints import (
    UnreadableCheckpointError,
    checkpoints,
    newest_whole,
    step_of,
)
from stapo.training.progress import Progress, StopBetweenSteps
from stapo.training.prompts import chat_prompt, prompt_order, read_prompts, without_long
from stapo.training.record import attempt, run_provenance
from stapo.training.rewards import reward_functions
from stapo.training.trainer import StapoConfig, StapoTrainer

METRICS = "metrics.jsonl"
"""Of the steps done, in the work directory; every checkpoint holds a copy."""


def trainer_config(
    training: TrainingSettings,
    engine: EngineSettings,
    seed: int,
    output: Path,
    run_fingerprint: str,
    end_token_ids: Sequence[int],
) -> StapoConfig:
    """Return the trainer's settings for a study's.

    Raises:
        ValueError: the mini-batch cannot be shared by this many processes.
    """
    per_rollout = training.prompts_per_batch // training.prompts_per_mini_batch
    accelerator = torch.cuda.is_available()
    num_processes = PartialState().num_processes
    mini_batch = training.prompts_per_mini_batch * training.group_size
    if mini_batch % num_processes:
        raise ValueError(
            f"training: {num_processes} processes cannot share a mini-batch of {mini_batch} responses; "
            f"start a number of processes that divides {mini_batch}"
        )
    return StapoConfig(
        output_dir=str(output),
        run_fingerprint=run_fingerprint,
        seed=seed,
        data_seed=seed,
        max_steps=training.steps,
        num_train_epochs=1,
        shuffle_dataset=False,
        per_device_train_batch_size=mini_batch // num_processes,
        steps_per_generation=per_rollout,
        gradient_accumulation_steps=1,
        num_generations=training.group_size,
        max_completion_length=training.max_response_tokens,
        temperature=training.temperature,
        top_p=training.top_p,
        top_k=0,
        repetition_penalty=1.0,
        learning_rate=training.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=training.warmup_steps,
        weight_decay=training.weight_decay,
        max_grad_norm=training.gradient_clip,
        advantage_epsilon=training.advantage_epsilon,
        statistics=training.statistics,
        micro_batch_tokens=training.micro_batch_tokens,
        disable_dropout=True,
        trust_remote_code=False,  # Also of the reference model and of vLLM.
        bf16=accelerator,
        use_cpu=not accelerator,
        gradient_checkpointing=accelerator,
        save_strategy="steps",
        save_steps=training.checkpoint_every,
        save_total_limit=training.keep_checkpoints,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=[] if engine.tracker == "none" else [engine.tracker],
        disable_tqdm=True,
        dataloader_num_workers=0,
        ddp_find_unused_parameters=False,
        remove_unused_columns=False,
        **_vllm(training, engine, end_token_ids),
    )


def _vllm(
    training: TrainingSettings, engine: EngineSettings, end_token_ids: Sequence[int]
) -> dict[str, Any]:
    """Return TRL's settings of vLLM rollouts."""
    if training.rollouts == "transformers":
        return {}
    return {
        "use_vllm": True,
        "vllm_mode": training.rollouts.removeprefix("vllm-"),
        "vllm_enable_sleep_mode": training.rollouts == "vllm-colocate",
        "vllm_gpu_memory_utilization": engine.vllm_gpu_memory,
        "vllm_tensor_parallel_size": engine.vllm_tensor_parallel,
        "vllm_server_base_url": engine.vllm_server,
        "vllm_max_model_length": training.max_prompt_tokens + training.max_response_tokens,
        # The ends are the study's, as in evaluation, not those of the checkpoint.
        "generation_kwargs": {"stop_token_ids": list(end_token_ids), "ignore_eos": True},
        # The paper's objective has no such factor; the mismatch is recorded instead.
        "vllm_importance_sampling_correction": False,
    }


def train(
    *,
    config: dict[str, Any],
    training: TrainingSettings,
    method: Method,
    seed: int,
    base: Path,
    prompts: Path,
    work: Path,
    model_path: Path,
    metrics_path: Path,
    engine: EngineSettings | None = None,
    kept_steps: Sequence[int] = (),
    end_tokens: Sequence[str] = (),
) -> None:
    """Train, resuming from the newest whole step checkpoint in `work`, and publish the result.

    Started by `accelerate launch`, all its processes call this with the same arguments and see the same
    file system.

    Args:
        config: all that determines the result; `work` is bound to it.
        training: what the methods share.
        method: objective of the run.
        seed: of data order, rollouts and everything else.
        base: directory of the base model and its tokenizer.
        prompts: JSON lines with question and answer.
        work: directory for step checkpoints, of this run alone.
        model_path: where the final weights appear, by one rename.
        metrics_path: where the metrics appear, before the weights.
        engine: how it runs; nothing in it determines the result.
        kept_steps: steps before the last after which the weights are kept, and published beside
            `model_path` as `stepN` with the rest.
        end_tokens: of the study; the tokenizer's own always ends a response.

    Raises:
        BusyError: another process trains in `work`.
        ForeignDirectoryError: `work` holds another run.
        DamagedFileError: the base model is not what was written.
        FloatingPointError: a loss or gradient that is not finite.
        KeyboardInterrupt: stopped between two steps; resumable.
    """
    engine = engine or EngineSettings()
    state = PartialState(cpu=not torch.cuda.is_available())
    with ExitStack() as stack:
        if state.is_main_process:
            stack.enter_context(work_directory(work, config))
            require_whole(base)
        state.wait_for_everyone()
        log = work / METRICS
        progress = Progress(method.title)

        def on_metrics(record: StepRecord) -> None:
            append_jsonl(log, as_line(record))
            progress.show(record)

        stop = StopBetweenSteps()
        # The configuration says how base model and prompts are made; not everywhere to the same bits.
        made_from = [config, sums_of(base), file_sha256(prompts)]
        tokenizer = load_tokenizer(base, padding_side="left")
        if tokenizer.eos_token_id is None:  # TRL needs one.
            raise StudyError(
                [f"{base}: the tokenizer has no end token of its own; choose another model"]
            )
        ends = end_token_ids(tokenizer, end_tokens)
        model = load_model(base, torch.float32)
        # TRL ends responses, and masks what follows, by what the model declares.
        model.generation_config.eos_token_id = list(ends)
        records, too_long = _records(prompts, training, tokenizer)
        trainer = StapoTrainer(
            model=model,
            args=trainer_config(training, engine, seed, work, fingerprint(made_from), ends),
            reward_funcs=reward_functions(training, tokenizer, ends),
            train_dataset=_dataset(records, training, seed),
            processing_class=tokenizer,
            callbacks=[progress, stop],
            method=method,
            on_metrics=on_metrics,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.logs = (log,)
        kept = {step: work / "weights" / f"step{step}" for step in kept_steps}
        trainer.add_callback(KeepWeights(trainer, kept))
        _train_from_newest(trainer, work, kept)
        if stop.asked and trainer.state.global_step < training.steps:
            raise KeyboardInterrupt
        if trainer.state.global_step < training.steps:
            raise RuntimeError(
                f"the training ended after step {trainer.state.global_step} of {training.steps} "
                "although nobody asked it to; nothing was published"
            )
        published = _publish(trainer, work, model_path, metrics_path, kept)
        if state.is_main_process:
            record = run_provenance(config, base, prompts, work, published, too_long)
            write_json(metrics_path.with_name("provenance.json"), record)


def _train_from_newest(trainer: StapoTrainer, work: Path, kept: Mapping[int, Path]) -> None:
    """Train from the newest checkpoint that can be loaded, or from the base model where there is none.

    Raises:
        RuntimeError: there are whole checkpoints, and none of them can be loaded.
    """
    resume = _newest(trainer, work, before=_again(kept, work))
    while True:
        _announce(resume, work, trainer.args.max_steps)
        try:
            with attempt(work, step_of(resume) if resume else 0):
                trainer.train(resume_from_checkpoint=str(resume) if resume else None)
            return
        except UnreadableCheckpointError as error:
            assert resume is not None
            _say(f"{resume}: passed over, {error}")
            older = _newest(trainer, work, before=step_of(resume))
            if older is None:
                # Its checksums are right: other packages wrote it, or the machine cannot read it now.
                # Days of training are not started again for that.
                raise RuntimeError(
                    f"{resume}: {error}; no older checkpoint is left: run it again with the packages that "
                    "wrote it, or remove it to train from step 0"
                ) from error
            resume = older


def _again(kept: Mapping[int, Path], work: Path) -> int | None:
    """Return the first step that must be done again, since its weights are wanted and not there."""
    if not PartialState().is_main_process:
        return None
    for step, path in sorted(kept.items()):
        fault = f"{path} is missing"
        if path.exists():
            name = damaged_file(path)
            fault = f"{path / name} is truncated or corrupt" if name else ""
        if fault:
            if any(step_of(checkpoint) >= step for checkpoint in checkpoints(work)):
                which = f"{work}: checkpoints from step {step} on"
                _say(f"{which}: passed over, step {step} must be done again: {fault}")
            return step
    return None


def _newest(trainer: StapoTrainer, work: Path, before: int | None) -> Path | None:
    """Return the checkpoint to continue from, the main process's choice for all."""
    found: list[Path | None] = [None]
    if trainer.accelerator.is_main_process:
        found = [newest_whole(work, trainer.checkpoint_identity(), _say, before)]
    broadcast_object_list(found)
    return found[0]


def _announce(resume: Path | None, work: Path, steps: int) -> None:
    """Say from where the training goes on, and take back the records of steps that are done again."""
    if not PartialState().is_main_process:
        return
    if resume is None:
        (work / METRICS).unlink(missing_ok=True)
        if checkpoints(work):
            _say("no checkpoint is left to continue from: training starts at step 0")
        return
    with replace_file(work / METRICS, "wb") as stream:
        stream.write((resume / METRICS).read_bytes())
    done = step_of(resume)
    _say(
        f"resuming after step {done} of {steps}"
        if done < steps
        else f"all {done} steps were done before: nothing to train, publishing their result"
    )


class KeepWeights(TrainerCallback):  # type: ignore[misc]
    """Writes the weights after certain steps, before the step's checkpoint is sealed."""

    def __init__(self, trainer: StapoTrainer, paths: Mapping[int, Path]) -> None:
        self.trainer, self.paths = trainer, paths

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write them, all ranks together."""
        if state.global_step in self.paths:
            _write_weights(self.trainer, self.paths[state.global_step])


def _write_weights(trainer: StapoTrainer, path: Path) -> None:
    """Write weights and tokenizer as a directory that appears whole, from the main process."""
    # Sharded weights are gathered by all processes together.
    weights = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None
    if trainer.accelerator.is_main_process:
        with replace_directory(path) as aside:
            model = trainer.accelerator.unwrap_model(trainer.model)
            if weights is not None and model.config.tie_word_embeddings:
                # Gathered one by one, tied weights look like several.
                weights = {k: v for k, v in weights.items() if k not in model._tied_weights_keys}
            model.save_pretrained(aside, state_dict=weights)
            trainer.processing_class.save_pretrained(aside)
            write_sums(aside)


def _publish(
    trainer: StapoTrainer,
    work: Path,
    model_path: Path,
    metrics_path: Path,
    kept: Mapping[int, Path],
) -> list[Path]:
    """Write metrics and weights where the pipeline expects them, from the main process; return the paths."""
    steps = {model_path.with_name(path.name): path for path in kept.values()}
    if trainer.accelerator.is_main_process:
        for target, path in steps.items():
            with replace_directory(target) as aside:
                shutil.copytree(path, aside, dirs_exist_ok=True, copy_function=link_or_copy)
        with replace_file(metrics_path) as stream:
            stream.write((work / METRICS).read_text())
    _write_weights(trainer, model_path)
    if trainer.accelerator.is_main_process:
        # The published weights are what a later run starts from; the full states may go.
        for path in checkpoints(work)[:-1]:
            shutil.rmtree(path)
    trainer.accelerator.wait_for_everyone()
    return [model_path, metrics_path, *steps]


def _say(line: str) -> None:
    if PartialState().is_main_process:
        print(line, flush=True)  # noqa: T201


def _records(
    prompts: Path, training: TrainingSettings, tokenizer: Any
) -> tuple[list[dict[str, Any]], int]:
    """Return the prompts that are short enough, and how many are not."""
    found = read_prompts(prompts)
    limit = training.max_prompt_tokens
    kept = without_long(found, training.instruction, tokenizer, limit)
    too_long = len(found) - len(kept)
    _say(f"{len(kept)} prompts; {too_long} left out, longer than {limit} tokens")
    return kept, too_long


def _dataset(records: Sequence[dict[str, Any]], training: TrainingSettings, seed: int) -> Dataset:
    # Of the last rollout the steps may need a part only.
    rollouts = ceil(training.steps * training.prompts_per_mini_batch / training.prompts_per_batch)
    order = prompt_order(len(records), rollouts * training.prompts_per_batch, seed)
    rows = [
        {
            "prompt": chat_prompt(record["question"], training.instruction),
            "answer": record["answer"],
        }
        for record in records
    ]
    return Dataset.from_list(rows).select(order)
