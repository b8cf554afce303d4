"""One training run: from prompts and base model to published weights and metrics."""

import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback

from stapo.artifacts import (
    append_jsonl,
    read_jsonl,
    replace_directory,
    replace_file,
    work_directory,
    write_jsonl,
)
from stapo.methods import Method
from stapo.schema import Training
from stapo.training.prompts import prompt_order
from stapo.training.rewards import boxed_reward
from stapo.training.trainer import StapoConfig, StapoTrainer, checkpoints


class Progress(TrainerCallback):  # type: ignore[misc]
    """A progress bar with time left, reward, entropy and silenced tokens."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.bar: tqdm[Any] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start at the step that training resumes from."""
        # A log file gets a line every few seconds, not ten per second.
        interval = 0.2 if sys.stderr.isatty() else 10.0
        self.bar = tqdm(
            total=state.max_steps, initial=state.global_step, desc=self.title, mininterval=interval
        )

    def show(self, record: dict[str, Any]) -> None:
        """Advance by one step."""
        if self.bar is not None:
            self.bar.set_postfix_str(
                f"reward {record['reward']:+.2f}, entropy {record['entropy']:.3f}, "
                f"silenced {record['num_silenced']}",
                refresh=False,
            )
            self.bar.update()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the finished bar behind."""
        if self.bar is not None:
            self.bar.close()


class StopBetweenSteps(TrainerCallback):  # type: ignore[misc]
    """After SIGTERM or SIGINT, finish the step in progress, save where possible, and stop."""

    def __init__(self) -> None:
        self.asked = False
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._ask)

    def _ask(self, *_: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop here; a checkpoint only where the rollout is used up."""
        if self.asked:
            control.should_training_stop = True
            control.should_save = state.global_step % args.steps_per_generation == 0


def trainer_config(training: Training, seed: int, output: Path) -> StapoConfig:
    """Return the trainer's settings for a study's."""
    per_rollout = training.prompts_per_batch // training.prompts_per_mini_batch
    accelerator = torch.cuda.is_available()
    return StapoConfig(
        output_dir=str(output),
        seed=seed,
        data_seed=seed,
        max_steps=training.steps,
        num_train_epochs=1,
        shuffle_dataset=False,
        per_device_train_batch_size=training.prompts_per_mini_batch * training.group_size,
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
        micro_batch_tokens=training.micro_batch_tokens,
        disable_dropout=True,
        bf16=accelerator,
        use_cpu=not accelerator,
        gradient_checkpointing=accelerator,
        save_strategy="steps",
        # Only between rollouts: what is resumed there is the uninterrupted run, bit for bit.
        save_steps=per_rollout * training.checkpoint_every,
        save_total_limit=training.keep_checkpoints,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=[],
        disable_tqdm=True,
        dataloader_num_workers=0,
        remove_unused_columns=False,
    )


def train(
    *,
    config: dict[str, Any],
    training: Training,
    method: Method,
    seed: int,
    base: Path,
    prompts: Path,
    work: Path,
    model_path: Path,
    metrics_path: Path,
) -> None:
    """Train, resuming from the newest step checkpoint in `work`, and publish the result.

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

    Raises:
        BusyError: another process trains in `work`.
        ForeignDirectoryError: `work` holds another run.
        KeyboardInterrupt: stopped between two steps; resumable.
    """
    with work_directory(work, config):
        resume = next(reversed(checkpoints(work)), None)
        done = int(resume.name.removeprefix("checkpoint-")) if resume else 0
        log = work / "metrics.jsonl"
        # Steps after the checkpoint are done again: their records go.
        write_jsonl(log, [record for record in read_jsonl(log) if record["step"] <= done])
        progress = Progress(method.title)

        def on_metrics(record: dict[str, Any]) -> None:
            append_jsonl(log, record)
            progress.show(record)

        stop = StopBetweenSteps()
        tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
        trainer = StapoTrainer(
            model=AutoModelForCausalLM.from_pretrained(
                base, dtype=torch.float32, use_safetensors=True
            ),
            args=trainer_config(training, seed, work),
            reward_funcs=boxed_reward,
            train_dataset=_dataset(prompts, training, seed),
            processing_class=tokenizer,
            callbacks=[progress, stop],
            method=method,
            on_metrics=on_metrics,
        )
        trainer.remove_callback(PrinterCallback)
        if resume:
            print(f"resuming after step {done} of {training.steps}", flush=True)  # noqa: T201
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        if trainer.state.global_step < training.steps:
            raise KeyboardInterrupt
        with replace_file(metrics_path) as stream:
            stream.write(log.read_text())
        with replace_directory(model_path) as aside:
            trainer.model.save_pretrained(aside)
            tokenizer.save_pretrained(aside)
        # The published weights are what a later run resumes from; the full states may go.
        for path in checkpoints(work)[:-1]:
            shutil.rmtree(path)


def _dataset(prompts: Path, training: Training, seed: int) -> Dataset:
    records = read_jsonl(prompts)
    rollouts = training.steps * training.prompts_per_mini_batch // training.prompts_per_batch
    order = prompt_order(len(records), rollouts * training.prompts_per_batch, seed)
    rows = [
        {
            "prompt": [{"role": "user", "content": record["question"] + training.instruction}],
            "answer": record["answer"],
        }
        for record in records
    ]
    return Dataset.from_list(rows).select(order)
