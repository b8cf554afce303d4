"""Generates responses of checkpoints, and grades them."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from stapo.core.checksums import file_sha256
from stapo.suite import paths
from stapo.suite.answers import built_in, is_built_in
from stapo.suite.job import Job, Jobs
from stapo.suite.jobs.evaluate import cell, place
from stapo.suite.jobs.prepare import VERIFIER
from stapo.suite.locks import take_gpus
from stapo.suite.runners import Resources, Runner


def _generate(jobs: Jobs, selected: list[Job], resources: Resources) -> None:
    """Generate the responses that are missing, and publish all."""
    study = jobs.study
    take_gpus(resources.gpus)
    from stapo.suite.evaluation.generate import Benchmark, generate

    for job in selected:
        checkpoint, decoding = place(job)
        generated = generate(
            Path(paths.checkpoint_path(study.name, checkpoint)),
            job.config,
            study.decodings[decoding],
            study.evaluation,
            [
                Benchmark(name, job.rerun_on[name], Path(path), study.rows_of_file(name))
                for name, path in zip(job.rerun_on, job.outputs, strict=True)
            ],
            Path(paths.GENERATE_WORK.format(fingerprint=job.fingerprint)),
            study.engine,
            study.end_tokens,
        )
        print(f"generated {generated} responses" if generated else "all responses were there")


def _score(jobs: Jobs, selected: list[Job], resources: Resources) -> None:
    """Grade the responses of cells; with a verifier, it judges what the rules reject.

    Scores of the same responses by the same rules are left as they are.
    """
    from stapo.suite.evaluation.scores import score
    from stapo.suite.evaluation.task import reader_of

    study, judge = jobs.study, None
    if study.evaluation.verifier:
        from stapo.suite.evaluation import verifier

        take_gpus(resources.gpus)
        weights = Path(jobs.job("base", VERIFIER).weights[0])
        settings, backend = study.evaluation.verifier, study.evaluation.backend
        judge = partial(verifier.judge, weights, settings, backend=backend, engine=study.engine)
    for job in selected:
        completions, out = Path(job.inputs[0]), Path(job.outputs[0])
        identity = {**cell(jobs, job), "responses": file_sha256(completions)}
        if _is_current(out, identity):
            print(f"{completions}: graded before")
            continue
        name = identity["benchmark"]
        reader = reader_of(study.answer(name), study.benchmarks[name].answer_sha256)
        reward = study.training.reward if place(next(job.sources))[0].run else None
        rewarded = built_in(reward) if reward is not None and is_built_in(reward) else None
        if rewarded and rewarded.verifier != "math_verify":
            rewarded = None  # It judges in training as in evaluation.
        average = score(
            completions, identity, out, judge, study.task(name), reader, rewarded,
            study.evaluation.devices,
        )  # fmt: skip
        print(f"{completions}: {100 * average:.2f} %")


def _is_current(path: Path, identity: dict[str, Any]) -> bool:
    from stapo.suite.records.scores import read_identity

    with suppress(OSError, ValueError):
        recorded = read_identity(path)
        return all(recorded.get(key) == value for key, value in identity.items())
    return False


RUNNERS: dict[str, Runner] = {"generate": _generate, "score": _score}
