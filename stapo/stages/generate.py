"""Responses of a checkpoint under a decoding; studies that ask the same of the same weights share them."""

from collections.abc import Iterator
from pathlib import Path

from stapo import paths
from stapo.stages import Job, Jobs, Resources
from stapo.stages.overlap import benchmark_settings
from stapo.stages.weights import of_checkpoint
from stapo.study import Checkpoint

AFTER = ("base", "weights")
RECIPE = 3
NOT_ASKED = {"verifier", "verdict", "curve"}
"""Settings of the evaluation that no response depends on."""


def jobs(of: Jobs) -> Iterator[Job]:
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
                    "recipe": RECIPE,
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


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Generate the responses that are missing, and publish all."""
    from stapo.operations.fetch import prepare_network

    study = of.study
    prepare_network(study)
    if how.gpus is not None:
        from stapo.gpus import take_gpus

        take_gpus(how.gpus)
    from stapo.evaluation.generate import Benchmark, generate

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
