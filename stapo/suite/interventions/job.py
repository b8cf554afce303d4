"""What interventions at one checkpoint are given, and the trainer that generates their responses."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback

from stapo.core.files import fingerprint
from stapo.core.methods import Method
from stapo.core.trainer import StapoTrainer
from stapo.suite.study.schema import Interventions
from stapo.suite.training.prompts import chat_rows
from stapo.suite.training.rewards import reward_functions
from stapo.suite.training.run import TrainerJob, policy
from stapo.suite.training.settings import trainer_config

Rows = list[dict[str, Any]]
"""Chats and answers."""


@dataclass(frozen=True, kw_only=True)
class InterventionJob(TrainerJob):
    """The interventions at one checkpoint."""

    checkpoint: str
    settings: Interventions
    methods: dict[str, Method]
    """Name -> method, whose updates with the whole rollout are compared with those of the first."""
    model: Path
    """Weights and tokenizer of the checkpoint."""

    @property
    def updates(self) -> int:
        """Updates with one rollout by a whole method."""
        return self.settings.updates(self.training.prompts_per_mini_batch)

    @property
    def rollout_prompts(self) -> int:
        """Prompts of a rollout."""
        return self.settings.rollout_prompts or self.training.prompts_per_mini_batch


def make_trainer(job: InterventionJob) -> tuple[StapoTrainer, Rows]:
    """Return the trainer of a job, and its prompts as rows of a data set.

    Raises:
        StudyError: the tokenizer has no end token, or all prompts are too long.
    """
    # One mini-batch is a whole rollout; responses are sampled by Transformers or vLLM, as in the training.
    sizes = dict.fromkeys(("prompts_per_batch", "prompts_per_mini_batch"), job.rollout_prompts)
    training = job.training.model_copy(update={**sizes, "statistics": "behaviour"})
    model, tokenizer, ends = policy(job.model, job.end_tokens)
    records, _, _ = chat_rows(job.prompts, training, tokenizer)
    engine, identity = job.engine.model_copy(update={"tracker": "none"}), fingerprint(job.config)
    trainer = StapoTrainer(
        model=model,
        args=trainer_config(training, engine, job.settings.seed, job.work, identity, ends),
        reward_funcs=reward_functions(training, tokenizer, ends),
        train_dataset=Dataset.from_list(records[:1]),
        processing_class=tokenizer,
        # JustRL, unless the study has changed other settings of the method.
        method=replace(job.method, selection="keep_all", selection_args={}),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, records
