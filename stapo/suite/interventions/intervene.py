"""All repetitions of the interventions at a checkpoint, and their result.

Each is written as soon as it is done, so that a kill loses only the one in progress.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from accelerate import PartialState
from safetensors.torch import load_file, save_file
from torch import Tensor

from stapo.core.checksums import file_sha256, require_whole, sums_of
from stapo.core.files import content_of, fingerprint, replace_file, write_json
from stapo.suite.bars import bar, only_ours
from stapo.suite.interventions.job import InterventionJob, Rows, make_trainer
from stapo.suite.interventions.trial import MOMENTS, Trial, random_number
from stapo.suite.interventions.updates import Updates
from stapo.suite.locks import work_directory
from stapo.suite.records.arms import MOMENT_ROLLOUTS
from stapo.suite.records.interventions import SCHEMA, Intervention, Repetition, as_json
from stapo.suite.records.reading import read_table, record_of
from stapo.suite.study import StudyError
from stapo.suite.training.selections import with_selection


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
        # The same settings may give weights or prompts with other bits.
        inputs = fingerprint([sums_of(job.model), file_sha256(job.prompts)])
        job = replace(job, work=job.work / inputs)
        job.work.mkdir(exist_ok=True)
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
    updates = Updates(trainer)
    updates.moments = _moments(job, updates, records)
    each = len(job.settings.arms) + len(job.methods)
    with bar(job.checkpoint, len(left) * each, "update") as shown:
        for number in left:
            record, table = Trial(job, updates, number, records).record(shown)
            path = job.work / f"repetition-{number}.json"
            # The record last: a repetition is done once it is there.
            _write_table(path.with_suffix(".parquet"), table)
            write_json(path, as_json(record))


def _moments(job: InterventionJob, updates: Updates, records: Rows) -> dict[str, Tensor]:
    """Return the second moments of all arms: computed once, then read from the work directory."""
    path = job.work / "moments.safetensors"
    if path.exists():
        return load_file(path)
    for number in bar("moments", MOMENT_ROLLOUTS, "rollout", over=range(MOMENT_ROLLOUTS)):
        chance = Random(f"moments {job.settings.seed} {number}")
        prompts = chance.sample(records, job.rollout_prompts)
        rollout = updates.trainer.respond(prompts, random_number(number, MOMENTS))
        updates.gradient(rollout, rollout["completion_mask"].bool())
        # Without a learning rate, the weights stay what they are, bit for bit.
        updates.step(0.0)
    moments = updates.second_moments()
    with replace_file(path, "wb") as stream:
        save_file(moments, stream.name)
    return moments
