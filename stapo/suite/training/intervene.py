"""Interventions: what one update does with and without silencing, from the same weights and the same rollout.

Each repetition has a rollout and held-out prompts of its own. It is written as soon as it is done, so that a
kill loses only the repetition in progress.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from accelerate import PartialState
from datasets import Dataset
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm
from transformers import PrinterCallback

from stapo.core.checksums import require_whole
from stapo.core.files import content_of, fingerprint, replace_file, write_json
from stapo.core.methods import Method
from stapo.core.objective import kl_k3
from stapo.core.objective.selection import drawn
from stapo.core.trainer import mini_batch, response_seed
from stapo.suite.bars import bar, only_ours
from stapo.suite.locks import work_directory
from stapo.suite.records.arms import MOMENT_ROLLOUTS, NOTHING, SILENCED
from stapo.suite.records.interventions import (
    SCHEMA,
    TOKENS,
    ArmRecord,
    Intervention,
    Repetition,
    TokenGradient,
    as_json,
)
from stapo.suite.records.reading import read_table, record_of
from stapo.suite.study import StudyError
from stapo.suite.study.schema import Interventions
from stapo.suite.training.prompts import chat_rows
from stapo.suite.training.rewards import reward_functions
from stapo.suite.training.run import TrainerJob, policy
from stapo.suite.training.selections import with_selection
from stapo.suite.training.settings import trainer_config
from stapo.suite.training.single_updates import (
    InterventionTrainer,
    Rollout,
    candidates_of,
    cosine,
    inner,
    silenced_by_arm,
)
from stapo.suite.training.token_gradients import token_gradients

ROLLOUT, HELD_OUT, DRAWS, MOMENTS, TOKEN_SAMPLE = range(5)
"""Purposes of random numbers."""
MOST_CHUNKS = 10**6
"""Bound of the parts in which held-out responses are generated."""
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
        """Updates with one rollout by a whole method, as in a training."""
        return self.training.prompts_per_batch // self.training.prompts_per_mini_batch

    @property
    def rollout_prompts(self) -> int:
        """Prompts of a rollout."""
        return self.settings.rollout_prompts or self.training.prompts_per_mini_batch


def intervene(job: InterventionJob) -> list[Path]:
    """Do all repetitions that are not done yet, publish the result, and return the paths.

    Raises:
        ForeignDirectoryError: the work directory belongs to another configuration.
        DamagedFileError: the weights differ from their checksums.
        StudyError: several processes, or too few prompts.
        TypeError: a reward of the study's own raised an error.
    """
    only_ours()
    if PartialState(cpu=not torch.cuda.is_available()).num_processes > 1:
        raise StudyError(["stapo run intervene: runs in one process; start it without a launcher"])
    count = job.settings.repetitions
    with work_directory(job.work, job.config):
        require_whole(job.model)
        left = [number for number in range(count) if _done(job, number) is None]
        if left:
            _repeat(job, left)
        done = [finished for number in range(count) if (finished := _done(job, number))]
        if len(done) < count:
            raise RuntimeError(f"{job.work}: a repetition was changed while others were made")
        tokens = job.out.with_suffix(".parquet")
        _write_table(tokens, pa.concat_tables([table for _, table in done]))
        responses = job.settings.prompts * job.training.group_size
        identity = job.checkpoint, fingerprint(job.config), job.settings.method, responses
        write_json(job.out, as_json(Intervention(*identity, tuple(record for record, _ in done))))
    return [job.out, tokens]


def _done(job: InterventionJob, number: int) -> tuple[Repetition, pa.Table] | None:
    """Return a repetition that was finished before, None if there is none or it is damaged."""
    path = job.work / f"repetition-{number}.json"
    try:
        record = record_of(Repetition, content_of(path))
        table = read_table(path.with_suffix(".parquet"), SCHEMA)
    except (OSError, ValueError):
        return None
    numbers = {record.repetition, *table["repetition"].unique().to_pylist()}
    return (record, table) if numbers == {number} else None


def _write_table(path: Path, table: pa.Table) -> None:
    with replace_file(path, "wb") as stream:
        pq.write_table(table, stream)


def _repeat(job: InterventionJob, left: Sequence[int]) -> None:
    """Do some repetitions, and write each as soon as it is done."""
    methods = {name: with_selection(method) for name, method in job.methods.items()}
    job = replace(job, method=with_selection(job.method), methods=methods)
    trainer, records = make_trainer(job)
    per_rollout, held_out = job.rollout_prompts, job.settings.prompts
    if len(records) < per_rollout + held_out:
        cause = f"{len(records)} prompts are too few for a mini-batch of {per_rollout} and {held_out} others"
        raise StudyError([f"interventions.prompts: {cause}; use fewer"])
    trainer.prepare()
    moments = _moments(job, trainer, records)
    each = len(job.settings.arms) + len(job.methods)
    with bar(job.checkpoint, len(left) * each, "update") as shown:
        for number in left:
            chance = Random(f"intervention {job.settings.seed} {number}")
            chosen = chance.sample(records, per_rollout + held_out)
            parts = chosen[:per_rollout], chosen[per_rollout:]
            record, table = _repetition(job, trainer, moments, number, parts, shown)
            path = job.work / f"repetition-{number}.json"
            # The record last: a repetition is done once it is there.
            _write_table(path.with_suffix(".parquet"), table)
            write_json(path, as_json(record))


def make_trainer(job: InterventionJob) -> tuple[InterventionTrainer, Rows]:
    """Return the trainer of a job, and its prompts as rows of a data set.

    Raises:
        StudyError: the tokenizer has no end token, or all prompts are too long.
    """
    # One mini-batch is a whole rollout; responses are sampled by Transformers or vLLM, as in the training.
    sizes = dict.fromkeys(("prompts_per_batch", "prompts_per_mini_batch"), job.rollout_prompts)
    training = job.training.model_copy(update={**sizes, "statistics": "behaviour"})
    model, tokenizer, ends = policy(job.model, job.end_tokens)
    records, _, _ = chat_rows(job.prompts, training, tokenizer)
    engine = job.engine.model_copy(update={"tracker": "none"})
    trainer = InterventionTrainer(
        model=model,
        args=trainer_config(
            training, engine, job.settings.seed, job.work, fingerprint(job.config), ends
        ),
        reward_funcs=reward_functions(training, tokenizer, ends),
        train_dataset=Dataset.from_list(records[:1]),
        processing_class=tokenizer,
        # JustRL, unless the study has changed other settings of the method.
        method=replace(job.method, selection="keep_all", selection_args={}),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, records


def _number(repetition: int, purpose: int, chunk: int = 0) -> int:
    """Return a number that determines the random numbers of one purpose in one repetition."""
    return (repetition * 5 + purpose) * MOST_CHUNKS + chunk


def _moments(
    job: InterventionJob, trainer: InterventionTrainer, records: Rows
) -> dict[str, Tensor]:
    """Return the second moments of all arms: computed once, then read from the work directory."""
    path = job.work / "moments.safetensors"
    if path.exists():
        return load_file(path)
    trainer.restore(None)
    per_rollout = job.rollout_prompts
    for number in bar("moments", MOMENT_ROLLOUTS, "rollout", over=range(MOMENT_ROLLOUTS)):
        chosen = Random(f"moments {job.settings.seed} {number}").sample(records, per_rollout)
        rollout = trainer.respond(chosen, _number(number, MOMENTS))
        trainer.gradient(rollout, rollout["completion_mask"].bool())
        # Without a learning rate, the weights stay what they are, bit for bit.
        trainer.step(0.0)
    moments = trainer.moments()
    with replace_file(path, "wb") as stream:
        save_file(moments, stream.name)
    return moments


def _repetition(
    job: InterventionJob,
    trainer: InterventionTrainer,
    moments: dict[str, Tensor],
    number: int,
    parts: tuple[Rows, Rows],
    shown: "tqdm[Any]",
) -> tuple[Repetition, pa.Table]:
    """Return the record and the tokens of one repetition; `parts` are its prompts and the held-out ones."""

    def respond_held_out() -> Iterator[Rollout]:
        rows, size = parts[1], job.rollout_prompts
        for chunk, start in enumerate(range(0, len(rows), size)):
            yield trainer.respond(rows[start : start + size], _number(number, HELD_OUT, chunk))

    trainer.restore(moments)
    rollout = trainer.respond(parts[0], _number(number, ROLLOUT))
    held_out = [*respond_held_out()]
    batch = mini_batch(rollout)
    seed = response_seed(job.settings.seed, _number(number, DRAWS), 0)
    silenced = silenced_by_arm(batch, job.method, job.measured, seed)
    none = trainer.gradient(rollout, batch.mask)
    tail = _tail(trainer, job, held_out)
    gradients = _gradients(trainer, job, number, rollout)

    def outcome() -> tuple[Tensor, dict[str, Any]]:
        """Return the entropies of the current weights at the rollout, and what an update changed."""
        entropies = trainer.look(rollout)[1]
        changed = [trainer.look(responses) for responses in held_out]
        again = [*respond_held_out()]
        # In double precision, since they are tiny.
        kl = [
            kl_k3(before["old_per_token_logps"].double(), logps.double())
            for before, (logps, _) in zip(held_out, changed, strict=True)
        ]
        return entropies, {
            "entropy": _mean([values for _, values in changed], held_out),
            "entropy_resampled": _mean([responses["old_entropies"] for responses in again], again),
            "entropy_rollout": _mean([entropies], [rollout]),
            "reward": _reward(again),
            "kl": _mean(kl, held_out),
            "tail_mass": _tail(trainer, job, held_out),
        }

    arms: dict[str, ArmRecord] = {}
    table = None
    for arm in job.settings.arms:
        trainer.restore(moments)
        gradient = trainer.gradient_without(rollout, silenced[arm], none)
        trainer.step(job.training.learning_rate, gradient)
        entropies, effects = outcome()
        arms[arm] = ArmRecord(
            silenced=int(silenced[arm].sum()),
            gradient_norm=inner(gradient, gradient) ** 0.5,
            cosine=cosine(gradient, none),
            **effects,
        )
        if arm == NOTHING:
            table = _tokens(job, number, rollout, silenced[SILENCED], entropies)
        shown.update()
    assert table is not None
    methods: dict[str, ArmRecord] = {}
    first: dict[str, Tensor] = {}
    for name, method in job.methods.items():
        trainer.restore(moments)
        touched = trainer.updates(rollout, method, job.updates, job.training)
        change = trainer.change()
        first = first or change
        methods[name] = ArmRecord(
            silenced=touched,
            gradient_norm=inner(change, change) ** 0.5,
            cosine=cosine(change, first),
            **outcome()[1],
        )
        shown.update()
    positive = batch.mask & (batch.advantages > 0).unsqueeze(1)
    record = Repetition(
        repetition=number,
        tokens=int(batch.mask.sum()),
        positive=int(positive.sum()),
        candidates=int(candidates_of(batch, job.measured).sum()),
        rollout_reward=_reward([rollout]),
        entropy_rollout=_mean([batch.old_entropies], [rollout]),
        held_out_tokens=sum(int(responses["completion_mask"].sum()) for responses in held_out),
        reward=_reward(held_out),
        entropy=_mean([responses["old_entropies"] for responses in held_out], held_out),
        tail_mass=tail,
        arms=arms,
        methods=methods,
        gradients=gradients,
    )
    return record, table


def _mean(values: Sequence[Tensor], rollouts: Sequence[Rollout]) -> float:
    """Return the mean of (B, T) values over the response tokens of some rollouts."""
    masks = [rollout["completion_mask"].bool() for rollout in rollouts]
    total = sum(float(v[m].double().sum()) for v, m in zip(values, masks, strict=True))
    return total / max(sum(int(m.sum()) for m in masks), 1)


def _tail(
    trainer: InterventionTrainer, job: InterventionJob, held_out: Sequence[Rollout]
) -> float | None:
    """Return the probability mass below the method's tau_p, the mean over the tokens of some responses."""
    tau_p = float(job.measured["tau_p"])
    tails = [tail for rollout in held_out if (tail := trainer.tails(rollout, tau_p)) is not None]
    return _mean(tails, held_out) if tails else None


def _gradients(
    trainer: InterventionTrainer, job: InterventionJob, number: int, rollout: Rollout
) -> tuple[TokenGradient, ...]:
    """Return the gradients of single tokens at the current weights, if the study asks for them."""
    chance, size = f"gradients {job.settings.seed} {number}", job.settings.gradient_tokens
    return token_gradients(trainer, rollout, job.measured, size, chance) if size else ()


def _reward(rollouts: Sequence[Rollout]) -> float:
    return float(torch.cat([rollout["rewards"] for rollout in rollouts]).double().mean())


def _tokens(
    job: InterventionJob, number: int, rollout: Rollout, silenced: Tensor, after: Tensor
) -> pa.Table:
    """Return a sample of tokens with A != 0; `after` are entropies after the update without silencing."""
    batch = mini_batch(rollout)
    advantages = batch.advantages.unsqueeze(1).expand_as(batch.mask)
    seed = response_seed(job.settings.seed, _number(number, TOKEN_SAMPLE), 0)
    sample = drawn(batch.mask & (advantages != 0), TOKENS, torch.Generator().manual_seed(seed))
    places = sample.nonzero()
    columns = {
        "repetition": torch.full((len(places),), number),
        "response": places[:, 0],
        "position": places[:, 1],
        "token_id": rollout["completion_ids"][sample],
        "logp": batch.old_logps[sample],
        "advantage": advantages[sample],
        "candidate": candidates_of(batch, job.measured)[sample],
        "silenced": silenced[sample],
        "entropy": batch.old_entropies[sample],
        "entropy_after": after[sample],
    }
    arrays = [pa.array(columns[f.name].cpu().numpy(), f.type) for f in SCHEMA]
    return pa.table(arrays, schema=SCHEMA)
