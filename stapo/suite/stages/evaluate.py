"""Responses of checkpoints, which studies that ask the same of the same weights share, and their scores."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stapo.core.checksums import file_sha256
from stapo.core.files import fingerprint
from stapo.suite import paths
from stapo.suite.answers import built_in, is_built_in
from stapo.suite.locks import take_gpus
from stapo.suite.stages import Job, Jobs, Resources, Stage, recorded_first
from stapo.suite.stages.prepare import VERIFIER, benchmark_settings, verifier_settings
from stapo.suite.stages.train import of_checkpoint
from stapo.suite.study import Checkpoint, Study

NOT_ASKED = {"verifier", "verdict", "curve"}
"""Settings of the evaluation that no response depends on."""
ENGINE_SETTINGS = ("backend", "batch_size")
"""Of an evaluation: who answers, not what is asked."""


def _responses(of: Jobs) -> Iterator[Job]:
    """Yield a job for each checkpoint and decoding, `CHECKPOINT/DECODING`."""
    study = of.study
    for checkpoint in study.checkpoints():
        for decoding in study.run.decodings:
            answered = study.answered(checkpoint, decoding)
            if not answered:
                continue
            at = {"study": study.name, "checkpoint": checkpoint, "decoding": decoding}
            yield Job(
                "generate",
                f"{checkpoint}/{decoding}",
                {
                    "recipe": 4,
                    "decoding": study.decodings[decoding].model_dump(),
                    "end_tokens": sorted(set(study.end_tokens)),
                    "evaluation": study.evaluation.model_dump(exclude=NOT_ASKED),
                },
                {"checkpoint": of_checkpoint(of, checkpoint)},
                tuple(paths.COMPLETIONS.format(**at, benchmark=name) for name in answered),
                also={name: benchmark_settings(study, name) for name in answered},
            )


def place(job: Job) -> tuple[Checkpoint, str]:
    """Return checkpoint and decoding of a job."""
    checkpoint, _, decoding = job.name.rpartition("/")
    return Checkpoint.parse(checkpoint), decoding


def _generate(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Generate the responses that are missing, and publish all."""
    study = of.study
    take_gpus(how.gpus)
    from stapo.suite.evaluation.generate import Benchmark, generate

    for job in jobs:
        checkpoint, decoding = place(job)
        generated = generate(
            Path(paths.checkpoint_path(study.name, checkpoint)),
            job.config,
            study.decodings[decoding],
            study.evaluation,
            [
                Benchmark(name, job.also[name], Path(path), study.rows_file(name))
                for name, path in zip(job.also, job.outputs, strict=True)
            ],
            Path(paths.GENERATE_WORK.format(fingerprint=job.fingerprint)),
            study.engine,
            study.end_tokens,
        )
        print(f"generated {generated} responses" if generated else "all responses were there")


def judge_settings(study: Study) -> dict[str, Any] | None:
    """Return what determines the verifier's verdicts, None without a verifier."""
    verifier = study.evaluation.verifier
    if verifier is None:
        return None
    constants = {k: v for k, v in verifier.constants().items() if k != "batch_size"}
    return constants | verifier.model_dump()


def _scores(of: Jobs) -> Iterator[Job]:
    """Yield a job for each cell, `CHECKPOINT/DECODING/BENCHMARK`."""
    study, judge = of.study, judge_settings(of.study)
    for generate in of.all("generate"):
        checkpoint, decoding = place(generate)
        for name, path in zip(generate.also, generate.outputs, strict=True):
            at = {"study": study.name, "checkpoint": checkpoint, "decoding": decoding}
            yield Job(
                "score",
                f"{generate.name}/{name}",
                {"recipe": 5, "benchmark": generate.also[name], "verifier": judge},
                {"responses": replace(generate, outputs=(path,))},
                (paths.SCORES.format(**at, benchmark=name),),
            )


def cell(of: Jobs, job: Job) -> dict[str, Any]:
    """Return what a score file says of itself."""
    study, (generate,) = of.study, job.sources
    checkpoint, decoding = place(generate)
    asked = {k: v for k, v in generate.config["evaluation"].items() if k not in ENGINE_SETTINGS}
    benchmark = job.settings["benchmark"]
    return {
        # What is asked of which weights: equal where only engines differ.
        "asked": fingerprint([{**generate.config, "evaluation": asked}, benchmark]),
        "verifier": verifier_settings(study),
        "fingerprint": job.fingerprint,
        "study": study.name,
        "checkpoint": str(checkpoint),
        "decoding": decoding,
        "benchmark": job.name.rpartition("/")[2],
        "samples": benchmark["samples"],
    }


def _score(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Grade the responses of cells; with a verifier, it judges what the rules reject.

    Scores of the same responses by the same rules are left as they are.
    """
    from stapo.suite.evaluation.scores import score
    from stapo.suite.evaluation.task import reader_of

    study, judge = of.study, None
    if study.evaluation.verifier:
        from stapo.suite.evaluation import verifier

        take_gpus(how.gpus)
        weights = Path(of.one("base", VERIFIER).weights[0])
        settings, backend = study.evaluation.verifier, study.evaluation.backend
        judge = partial(verifier.judge, weights, settings, backend=backend, engine=study.engine)
    for job in jobs:
        completions, out = Path(job.inputs[0]), Path(job.outputs[0])
        about = {**cell(of, job), "responses": file_sha256(completions)}
        if _is_current(out, about):
            print(f"{completions}: graded before")
            continue
        name = about["benchmark"]
        reader = reader_of(study.answer(name), study.benchmarks[name].answer_sha256)
        reward = study.training.reward if place(next(job.sources))[0].run else None
        rewarded = built_in(reward) if reward is not None and is_built_in(reward) else None
        average = score(completions, about, out, judge, study.task(name), reader, rewarded)
        print(f"{completions}: {100 * average:.2f} %")


def _is_current(path: Path, about: dict[str, Any]) -> bool:
    from stapo.suite.records.scores import read_identity

    with suppress(OSError, ValueError):
        found = read_identity(path)
        return all(found.get(key) == value for key, value in about.items())
    return False


STAGES = {
    "generate": Stage(("base", "weights"), _responses, _generate, is_costly=True),
    "score": Stage(("base", "generate"), _scores, _score, recorded_first),
}
