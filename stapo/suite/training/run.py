"""One training run: trains a base model on prompts and publishes weights, metrics and token records."""

import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from datasets import Dataset
from tqdm import tqdm
from transformers import PrinterCallback, TrainerCallback

from stapo.core.attempts import attempts, joules_of
from stapo.core.checkpoints import step_checkpoints, train_from_newest
from stapo.core.checksums import checksums, file_sha256, require_whole, sums_of, write_sums
from stapo.core.files import (
    append_jsonl,
    fingerprint,
    link_tree,
    read_jsonl,
    replace_directory,
    write,
    write_json,
)
from stapo.core.methods import Args, Method, s2t_arguments
from stapo.core.ranks import TIMEOUT, residual_dtype, say
from stapo.core.step_record import StepRecord, as_line, gpu_seconds, step_seconds
from stapo.core.trainer import StapoTrainer
from stapo.suite.bars import bar, only_ours
from stapo.suite.locks import work_directory
from stapo.suite.models.loading import end_token_ids, load_model, load_tokenizer
from stapo.suite.paths import METRICS_FILE, RECORD_FILE, TOKENS_FILE, TOKENS_LOG
from stapo.suite.provenance import environment
from stapo.suite.study import StudyError
from stapo.suite.study.schema import EngineSettings, TrainingSettings
from stapo.suite.text import visible
from stapo.suite.training.launch import NOTICE
from stapo.suite.training.prompts import chat_rows, prompt_order
from stapo.suite.training.rewards import reward_functions
from stapo.suite.training.selections import with_selection
from stapo.suite.training.settings import trainer_config
from stapo.suite.training.shorter import adopt_shorter
from stapo.suite.training.token_recorder import recorder, write_tokens


@dataclass(frozen=True, kw_only=True)
class TrainerJob:
    """Inputs, settings and output paths of a training, or of single updates."""

    config: dict[str, Any]
    """Everything that determines the result; `work` can only be used with this configuration."""
    training: TrainingSettings
    method: Method
    """Of single updates, that whose selection is S2T."""
    prompts: Path
    """JSON lines with question and answer."""
    s2t: Args = field(default_factory=dict)
    """Arguments with which S2T would silence tokens under a method without it; empty: STAPO's."""
    work: Path
    """Directory of logs and of what a later start goes on with, used by this job alone."""
    out: Path
    """Directory of the results: weights, metrics, token records, provenance. Of single updates, a JSON file,
    beside which the tokens are, as parquet."""
    engine: EngineSettings = field(default_factory=EngineSettings)
    """Settings of the engine, which do not determine the result."""
    end_tokens: Sequence[str] = ()
    """End tokens of the study, in addition to the tokenizer's."""

    @property
    def measured(self) -> Args:
        """Arguments of S2T by which tokens are counted and recorded."""
        return s2t_arguments(self.method, self.s2t)


@dataclass(frozen=True, kw_only=True)
class TrainingJob(TrainerJob):
    """One training."""

    seed: int
    """Seed of everything random."""
    base: Path
    """Directory of the base model and its tokenizer."""
    kept_steps: Sequence[int] = ()
    """Steps before the last whose weights are kept, and published at the end as `stepN`."""
    study: dict[str, Any] | None = None
    """The resolved study as JSON, for the record of attempts."""

    @property
    def kept(self) -> dict[int, Path]:
        """Step -> directory in which its weights are kept until they are published."""
        return {step: self.work / "weights" / f"step{step}" for step in self.kept_steps}

    def input_fingerprint(self, config: Mapping[str, Any]) -> str:
        """Return a fingerprint of a configuration with this base model and these prompts.

        With checksums, since the same configuration may give a base model or prompts with other bits.
        """
        return fingerprint([config, sums_of(self.base), file_sha256(self.prompts)])


def train(job: TrainingJob) -> None:
    """Train, resuming from the newest complete step checkpoint, and publish the result.

    All processes of `accelerate launch` call this with the same job, and share a file system.

    Raises:
        ForeignDirectoryError: the work directory belongs to another run.
        DamagedFileError: the base model differs from its checksums.
        FloatingPointError: a loss or gradient is not finite.
        TypeError: a token selection or reward of the study's own raised an error.
        KeyboardInterrupt: the training was stopped between two steps, and can be resumed.
    """
    only_ours()
    state = PartialState(cpu=not torch.cuda.is_available(), timeout=TIMEOUT)
    with ExitStack() as stack:
        if state.is_main_process:
            stack.enter_context(work_directory(job.work, job.config))
            require_whole(job.base)
        state.wait_for_everyone()
        watch = Watch(job)
        model, tokenizer, ends = policy(job.base, job.end_tokens)
        rows, lines, too_long = chat_rows(job.prompts, job.training, tokenizer)
        limit = job.training.max_prompt_tokens
        say(f"{len(rows)} prompts; {too_long} left out, longer than {limit} tokens")
        order = prompt_order(len(rows), job.training, job.seed)
        prompts = Dataset.from_list(rows).select(order)
        trainer = watch.trainer = _trainer(job, watch, model, tokenizer, ends, prompts)
        if state.is_main_process:
            identity = trainer.checkpoint_identity()
            adopt_shorter(job.work, job.config, job.kept, identity, job.input_fingerprint)
        train_from_newest(trainer, job.work, job.kept, job.study)
        done, steps = trainer.state.global_step, job.training.steps
        if watch.asked and done < steps:
            raise KeyboardInterrupt
        if done < steps:
            raise RuntimeError(
                f"the training ended after step {done} of {steps} for an unknown reason; "
                "nothing was published"
            )
        published = _publish(trainer, job, [lines[index] for index in order])
        if state.is_main_process:
            # The type of the residual stream differs between one GPU and several.
            dtype = str(residual_dtype(trainer.model, trainer.accelerator)).removeprefix("torch.")
            record = _provenance(job, published) | {"prompts_too_long": too_long}
            write_json(job.out / RECORD_FILE, record | {"residual_stream": dtype})


def leave() -> None:
    """Wait for all ranks, then close their connections: otherwise the first to end may make others fail."""
    state = PartialState()
    state.wait_for_everyone()
    state.destroy_process_group()


def policy(path: Path, end_tokens: Sequence[str]) -> tuple[Any, Any, tuple[int, ...]]:
    """Return a model that ends its responses as in evaluation, its tokenizer, and the ids that end them.

    Raises:
        StudyError: the tokenizer has no end token.
    """
    tokenizer = load_tokenizer(path, padding_side="left")
    if tokenizer.eos_token_id is None:  # TRL needs it.
        raise StudyError([f"{path}: the tokenizer has no end token; choose another model"])
    ends = end_token_ids(tokenizer, end_tokens)
    model = load_model(path, torch.float32)
    # TRL ends responses at the end tokens of the generation configuration, and masks what follows.
    model.generation_config.eos_token_id = list(ends)
    return model, tokenizer, ends


def _trainer(
    job: TrainingJob, watch: "Watch", model: Any, tokenizer: Any, ends: Sequence[int], rows: Dataset
) -> StapoTrainer:
    """Return the trainer of a job, for the rows of its prompts in their order."""
    training, metrics, tokens = job.training, job.work / METRICS_FILE, job.work / TOKENS_LOG
    run_fingerprint = job.input_fingerprint(job.config)

    def on_metrics(record: StepRecord) -> None:
        append_jsonl(metrics, as_line(record))
        watch.show(record)

    trainer = StapoTrainer(
        model=model,
        args=trainer_config(training, job.engine, job.seed, job.work, run_fingerprint, ends),
        reward_funcs=reward_functions(training, tokenizer, ends),
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=[watch],
        method=with_selection(job.method),
        tau_p=float(job.measured["tau_p"]),
        on_metrics=on_metrics,
        on_tokens=partial(append_jsonl, tokens),
        recorder=recorder(training.token_records_mb, training.steps, tokenizer, job.measured),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.logs = (metrics, tokens)
    return trainer


class Watch(TrainerCallback):  # type: ignore[misc]
    """Shows the progress of a training, keeps weights, and ends it after a signal to any rank.

    SIGTERM and SIGINT, of which a second one ends it at once, and the notice of a time limit let it finish
    the current step and save a checkpoint.
    """

    trainer: StapoTrainer
    asked = False
    """Whether all ranks stop after this step."""
    _signalled = False
    _bar: "tqdm[Any] | None" = None

    def __init__(self, job: TrainingJob) -> None:
        self.kept, self.title = job.kept, visible(job.method.title)
        self.by_time = job.training.checkpoint_every is None
        for name in (signal.SIGTERM, signal.SIGINT, NOTICE):
            signal.signal(name, self._signal)

    def _signal(self, number: int, _: Any) -> None:
        if self._signalled and number != NOTICE:  # A scheduler may send its notice more than once.
            raise KeyboardInterrupt
        self._signalled = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the bar at the step that training resumes from; one bar for all ranks."""
        if state.is_world_process_zero:
            self._bar = bar(self.title, state.max_steps, "step", state.global_step)
        self.trainer.is_checkpoint_due()  # The time starts now.

    def show(self, record: StepRecord) -> None:
        """Advance the bar by one step, with numbers of the step."""
        if self._bar is not None:
            kept = f"kept {record.kept_fraction:.1%}, silenced {record.num_silenced}"
            self._bar.set_postfix_str(f"reward {record.reward:+.2f}, {kept}", refresh=False)
            self._bar.update()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the weights of this step, before its checkpoint; save or stop all ranks if one asks for it."""
        if state.global_step in self.kept:
            _write_weights(self.trainer, self.kept[state.global_step])
        # Ranks may get a signal at different steps, or not at all, and each has a clock of its own.
        due = self.by_time and state.is_world_process_zero and self.trainer.is_checkpoint_due()
        flags = torch.tensor([float(self._signalled), float(due)], device=PartialState().device)
        if PartialState().num_processes > 1:
            torch.distributed.all_reduce(flags)
        self.asked, control.should_save = bool(flags[0] > 0), control.should_save or bool(flags[1])
        if self.asked:
            control.should_training_stop = control.should_save = True
            say(f"told to stop: saving step {state.global_step}")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Close the bar, which stays visible, and let all ranks save before the launcher kills the others."""
        if self._bar is not None:
            self._bar.close()
        if self.asked:
            PartialState().wait_for_everyone()


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


def _publish(trainer: StapoTrainer, job: TrainingJob, prompts: Sequence[int]) -> list[Path]:
    """Write metrics, tokens and weights to their output paths on the main process; return the paths.

    `prompts` are the lines, in the file of prompts, of the prompts of the training in its order.
    """
    training, out = job.training, job.out
    if trainer.accelerator.is_main_process:
        for path in job.kept.values():
            link_tree(path, out / path.name)
        write(out / METRICS_FILE, (job.work / METRICS_FILE).read_bytes())
        sizes = training.prompts_per_mini_batch, training.group_size
        log, tokenizer = job.work / TOKENS_LOG, trainer.processing_class
        write_tokens(log, out / TOKENS_FILE, tokenizer, prompts, *sizes)
    _write_weights(trainer, out / "model")
    if trainer.accelerator.is_main_process:
        # The results are published, so the older checkpoints are not needed any more.
        for path in step_checkpoints(job.work)[:-1]:
            shutil.rmtree(path)
    trainer.accelerator.wait_for_everyone()
    names = ("model", METRICS_FILE, TOKENS_FILE, *(path.name for path in job.kept.values()))
    return [out / name for name in names]


def _provenance(job: TrainingJob, outputs: list[Path]) -> dict[str, Any]:
    """Return a run's inputs, environment, costs, and checksums of outputs, relative to their directory."""
    metrics = read_jsonl(job.work / METRICS_FILE)
    environment_now, tried = environment(), attempts(job.work)
    return {
        "fingerprint": fingerprint(job.config),
        "config": job.config,
        "environment": environment_now,
        "base": checksums([job.base], job.base),
        "prompts": file_sha256(job.prompts),
        "outputs": checksums(outputs, job.out),
        "attempts": tried,
        "steps": len(metrics),
        # Only of steps in the result; steps that were lost by a kill count only in the attempts.
        "seconds": sum(map(step_seconds, metrics)),
        "gpu_seconds": gpu_seconds(metrics, tried) if environment_now["gpus"] else 0.0,
        "joules": joules_of(tried),
    }
