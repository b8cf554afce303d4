"""Responses of checkpoints, which studies that ask the same of the same weights share, and their scores."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stapo.core.files import fingerprint
from stapo.suite import paths
from stapo.suite.job import Job, Jobs, Stage, recorded_first
from stapo.suite.jobs.prepare import benchmark_settings, verifier_settings
from stapo.suite.jobs.train import of_checkpoint
from stapo.suite.study import Checkpoint, Study

NOT_ASKED = {"verifier", "verdict", "curve", "devices"}
"""Settings of the evaluation that no response depends on."""
ENGINE_SETTINGS = ("backend", "batch_size", "algorithms")
"""Of an evaluation: who answers, not what is asked."""


def _responses(jobs: Jobs) -> Iterator[Job]:
    """Yield a job for each checkpoint and decoding, `CHECKPOINT/DECODING`."""
    study = jobs.study
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
                    "evaluation": study.evaluation.model_dump(exclude=NOT_ASKED)
                    | study.run.computing(),
                },
                {"checkpoint": of_checkpoint(jobs, checkpoint)},
                tuple(paths.COMPLETIONS.format(**at, benchmark=name) for name in answered),
                rerun_on={name: benchmark_settings(study, name) for name in answered},
            )


def place(job: Job) -> tuple[Checkpoint, str]:
    """Return checkpoint and decoding of a job."""
    checkpoint, _, decoding = job.name.rpartition("/")
    return Checkpoint.parse(checkpoint), decoding


def judge_settings(study: Study) -> dict[str, Any] | None:
    """Return what determines the verifier's verdicts, None without a verifier."""
    verifier = study.evaluation.verifier
    if verifier is None:
        return None
    constants = {k: v for k, v in verifier.constants().items() if k != "batch_size"}
    return constants | verifier.model_dump() | study.run.computing()


def _scores(jobs: Jobs) -> Iterator[Job]:
    """Yield a job for each cell, `CHECKPOINT/DECODING/BENCHMARK`."""
    study, judge = jobs.study, judge_settings(jobs.study)
    for generate in jobs.all("generate"):
        checkpoint, decoding = place(generate)
        for name, path in zip(generate.rerun_on, generate.outputs, strict=True):
            at = {"study": study.name, "checkpoint": checkpoint, "decoding": decoding}
            yield Job(
                "score",
                f"{generate.name}/{name}",
                {"recipe": 5, "benchmark": generate.rerun_on[name], "verifier": judge},
                {"responses": replace(generate, outputs=(path,))},
                (paths.SCORES.format(**at, benchmark=name),),
            )


def cell(jobs: Jobs, job: Job) -> dict[str, Any]:
    """Return what a score file says of itself."""
    study, (generate,) = jobs.study, job.sources
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


STAGES = {
    "generate": Stage(("base", "weights"), _responses, is_costly=True),
    "score": Stage(("base", "generate"), _scores, recorded_first),
}
