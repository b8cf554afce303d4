"""Scores: the responses of a checkpoint to a benchmark under a decoding, graded one by one."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.canonical import fingerprint
from stapo.stages import Job, Jobs, Resources, jobs_of, recorded_in
from stapo.stages.base import VERIFIER, verifier_settings
from stapo.stages.generate import place
from stapo.study import Checkpoint, Study

AFTER = ("base", "generate")
RECIPE = 5
ENGINE_SETTINGS = ("backend", "batch_size")
"""Of an evaluation: who answers, not what is asked."""


def judge_settings(study: Study) -> dict[str, Any] | None:
    """Return what determines the verifier's verdicts, None without a verifier."""
    verifier = study.evaluation.verifier
    if verifier is None:
        return None
    constants = {k: v for k, v in verifier.constants().items() if k != "batch_size"}
    return constants | verifier.model_dump()


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield a job for each cell, `CHECKPOINT/DECODING/BENCHMARK`."""
    study, judge = of.study, judge_settings(of.study)
    for generate in of.all("generate"):
        checkpoint, decoding = place(generate)
        for name, path in zip(generate.also, generate.outputs, strict=True):
            at = {"study": study.name, "checkpoint": checkpoint, "decoding": decoding}
            yield Job(
                "score",
                f"{generate.name}/{name}",
                {"recipe": RECIPE, "benchmark": generate.also[name], "verifier": judge},
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


def score_identity(
    study: Study, checkpoint: Checkpoint, decoding: str, benchmark: str
) -> dict[str, Any]:
    """Return what a score file says of itself."""
    of = jobs_of(study)
    return cell(of, of.one("score", f"{checkpoint}/{decoding}/{benchmark}"))


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Grade the responses of cells; with a verifier, it judges what the rules reject.

    Scores of the same responses by the same rules are left as they are.
    """
    from stapo.evaluation.scores import score
    from stapo.provenance import file_sha256

    study, judge = of.study, None
    if study.evaluation.verifier:
        from stapo.evaluation import verifier
        from stapo.gpus import take_gpus

        if how.gpus is not None:
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
        average = score(completions, about, out, judge, study.task(about["benchmark"]))
        print(f"{completions}: {100 * average:.2f} %")


def _is_current(path: Path, about: dict[str, Any]) -> bool:
    from stapo.records.scores import read_identity

    with suppress(OSError, ValueError):
        found = read_identity(path)
        return all(found.get(key) == value for key, value in about.items())
    return False


def recorded(job: Job, root: Path) -> str | None:
    """Return the fingerprint in a score file."""
    return recorded_in(root / job.outputs[0])
