"""The steps of the pipeline up to the scores, one command for each rule: arguments in, one call out.

Heavy imports stand inside the commands, so that `stapo --help` and `stapo check` start at once.
"""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from stapo.cli.common import (
    CheckpointOption,
    DecodingOption,
    GpusOption,
    OutOption,
    SizeOption,
    StudyOption,
    WorkOption,
    app,
    checkpoint_of,
    list_paths,
    require,
    study_of,
    verifier_of,
)
from stapo.files import write_json
from stapo.hub import offline_if_unreachable
from stapo.operations.fetch import prepare_network
from stapo.study import Study, StudyError, TrainingRun, identity
from stapo.study.reading import published_content
from stapo.study.sources import HubData
from stapo.tasks import benchmark_definitions
from stapo.training.launch import LAUNCHED
from stapo.training.publish import finished
from stapo.training.publish import publish as publish_trained


@app.command()
def prompts(
    study: StudyOption,
    out: OutOption,
    record: Annotated[Path | None, typer.Option(help="JSON file that counts them")] = None,
) -> None:
    """Write the training prompts, and say how many they are and their checksum.

    Example: stapo prompts --study workflows/studies/smoke.yaml --out p.jsonl
    """
    asked = study_of(study)
    data = asked.data
    if isinstance(data, HubData):
        offline_if_unreachable()
    from stapo.training.prompts import write_prompts

    found = write_prompts(data, out, record, asked.prompts_file())
    typer.echo(
        "{prompts} prompts: {unique} unique ones in {rows} rows, {conflicting} left out for conflicting "
        "answers".format(**found)
    )
    known = isinstance(data, HubData) and data.sha256 is None
    typer.echo(f"sha256 {found['sha256']}" + "; write it into the study as data.sha256" * known)


@app.command()
def overlap(
    prompts: Annotated[Path, typer.Option(help="Training prompts")],
    benchmark: Annotated[list[str], typer.Option(help="Benchmark; repeat for several")],
    out: OutOption,
    published: Annotated[
        bool, typer.Option("--published", help="Somebody else's prompts: count, do not refuse")
    ] = False,
    study: Annotated[
        Path | None, typer.Option(help="Study file, for benchmarks that are the study's own")
    ] = None,
) -> None:
    """Count the problems of benchmarks that are training prompts, and refuse prompts of our own.

    Example: stapo overlap --prompts p.jsonl --benchmark chain-3 --out overlap.json
    """
    found = study_of(study) if study else None
    for name in benchmark:
        require("--benchmark", name, found.benchmarks if found else benchmark_definitions())
    write_json(out, _overlap(prompts, benchmark, published, found))


def _overlap(
    prompts: Path, benchmarks: list[str], published: bool, study: Study | None
) -> dict[str, Any]:
    files = {name: study.rows_file(name) if study else None for name in benchmarks}
    definitions = benchmark_definitions()
    if any(not file and "hub" in definitions[name]["metadata"] for name, file in files.items()):
        offline_if_unreachable()
    from stapo.evaluation.task import benchmark_questions
    from stapo.training.prompts import check_overlap

    questions = {
        name: [row["question"] for row in file.read()] if file else benchmark_questions(name)
        for name, file in files.items()
    }
    return check_overlap(prompts, questions, published)


@app.command()
def base(
    study: StudyOption,
    out: OutOption,
    size: Annotated[str | None, typer.Option(help="Model size of the study")] = None,
    verifier: Annotated[
        bool, typer.Option("--verifier", help="The study's verifier, with its template")
    ] = False,
    record: Annotated[Path | None, typer.Option(help="JSON file that says from what")] = None,
) -> None:
    """Build or download the base model of a size, or the verifier.

    Example: stapo base --study workflows/studies/smoke.yaml --size tiny --out m
    """
    found = study_of(study)
    if (size is None) == (not verifier):
        raise StudyError(["--size, --verifier: expected one of them"])
    template = None
    if size is not None:
        require("--size", size, found.run.sizes)
        settings = found.model(size).model_dump()
        made_from = identity.model_settings(found.models[size])
    else:
        judge = verifier_of(found)
        settings = judge.model_dump(include={"hub", "revision"})
        made_from = identity.verifier_config(found)
        template = judge.template if judge.template != "own" else None
    if "hub" in settings:
        offline_if_unreachable()
    from stapo.models.base import write_base

    write_base(settings, out, template)
    if record:
        write_json(record, made_from)


@app.command()
def train(
    study: StudyOption,
    size: SizeOption,
    method: Annotated[str, typer.Option(help="Method of the study")],
    seed: Annotated[int, typer.Option(help="Training seed")],
    base: Annotated[Path, typer.Option(help="Base model")],
    prompts: Annotated[Path, typer.Option(help="Training prompts")],
    work: WorkOption,
    out: OutOption,
    metrics: Annotated[Path, typer.Option(help="Where metrics.jsonl appears")],
    gpus: GpusOption = None,
    nodes: Annotated[int, typer.Option(min=1, help="Machines that share the GPUs; Slurm only")] = 1,
) -> None:
    """Train one method; continues from the last step checkpoint in the work directory.

    With --gpus it starts itself again under `accelerate launch`, one process for each GPU.

    Example: stapo train --study workflows/studies/smoke.yaml --size tiny --method stapo --seed 0
    --base results/smoke/models/tiny/base --prompts results/smoke/data/prompts.jsonl
    --work work/by-hand --out by-hand/model --metrics by-hand/metrics.jsonl
    """
    found = study_of(study)
    require("--size", size, found.run.sizes)
    require("--method", method, found.run.methods)
    this = TrainingRun(size, method, seed)
    config = identity.train_config(found, this)
    made_by = identity.train_fingerprint(found, this)
    if LAUNCHED not in os.environ:
        weights = [out.name, *(f"step{step}" for step in found.kept_steps())]
        _begin(made_by)
        if out.parent == metrics.parent and finished(out.parent, made_by, weights, base, prompts):
            typer.echo(f"all {found.training.steps} steps were done before: nothing to train")
            return
        from stapo.training.rewards import reward_fault

        if fault := reward_fault(found.job_training(method)):
            raise StudyError([fault])
        _overlap(prompts, found.evaluated(), isinstance(found.data, HubData), found)
        if gpus is not None:
            _launch(found, size, gpus, nodes)
    from stapo.training import run

    job = run.TrainingJob(
        config=config,
        training=found.job_training(method),
        end_tokens=found.end_tokens,
        method=found.method(method),
        seed=seed,
        base=base,
        prompts=prompts,
        work=work,
        model_path=out,
        metrics_path=metrics,
        kept_steps=found.kept_steps(),
        engine=found.engine_of(size),
        study=published_content(found),
    )
    run.train(job)
    run.leave()


@app.command()
def publish(
    names: Annotated[list[str], typer.Argument(help="Files and directories of weights")],
    trained: Annotated[Path, typer.Option(help="Directory in which a training finished them")],
    out: Annotated[Path, typer.Option(help="Directory of the results that they belong to")],
) -> None:
    """Publish what a training finished, whole or not at all; weights as hard links.

    Example: stapo publish --trained by-hand --out results/mine model metrics.jsonl tokens.parquet
    provenance.json
    """
    list_paths(publish_trained(trained, out, names))


def _launch(study: Study, size: str, gpus: int, nodes: int) -> None:
    from stapo.training.launch import launch_training, training_errors, training_warnings

    if errors := training_errors(study, size, gpus, nodes):
        raise StudyError(errors)
    for line in training_warnings(study, size, gpus, nodes):
        typer.echo(f"warning: {line}", err=True)
    launch_training(sys.argv[1:], gpus, nodes)


@app.command()
def generate(
    study: StudyOption,
    checkpoint: CheckpointOption,
    decoding: DecodingOption,
    model: Annotated[Path, typer.Option(help="Directory of the checkpoint")],
    work: WorkOption,
    out: Annotated[Path, typer.Option(help="Directory of the responses")],
    gpus: GpusOption = None,
) -> None:
    """Answer the study's benchmarks with one checkpoint; what is already there is kept.

    Example: stapo generate --study workflows/studies/smoke.yaml --checkpoint tiny/base
    --decoding t1.0-p1.0 --model results/smoke/models/tiny/base --work work/by-hand --out by-hand
    """
    found = study_of(study)
    of = checkpoint_of(found, checkpoint)
    require("--decoding", decoding, [d for d in found.run.decodings if found.answered(of, d)])
    prepare_network(found)
    _take(gpus)
    from stapo.evaluation.generate import Benchmark
    from stapo.evaluation.generate import generate as run

    benchmarks = [
        Benchmark(
            name,
            identity.benchmark_config(found, name),
            out / f"{name}.jsonl",
            found.rows_file(name),
        )
        for name in found.answered(of, decoding)
    ]
    config = identity.generate_config(found, of, decoding)
    _begin(identity.generate_fingerprint(found, of, decoding))
    generated = run(
        model,
        config,
        found.decodings[decoding],
        found.evaluation,
        benchmarks,
        work,
        found.engine,
        found.end_tokens,
    )
    typer.echo(f"generated {generated} responses" if generated else "all responses were there")


@app.command()
def score(
    study: StudyOption,
    checkpoint: CheckpointOption,
    decoding: DecodingOption,
    benchmark: Annotated[str, typer.Option(help="Benchmark of the study")],
    completions: Annotated[Path, typer.Option(help="Responses of this cell")],
    out: OutOption,
    verifier: Annotated[
        Path | None, typer.Option(help="Directory of the verifier, if the study has one")
    ] = None,
    gpus: GpusOption = None,
) -> None:
    """Grade the responses of one cell; with a verifier, it judges what the rules reject.

    Example: stapo score --study workflows/studies/smoke.yaml --checkpoint tiny/base --decoding t1.0-p1.0
    --benchmark chain-3 --completions by-hand/chain-3.jsonl --out chain-3.parquet
    """
    found = study_of(study)
    of = checkpoint_of(found, checkpoint)
    require("--decoding", decoding, found.run.decodings)
    require("--benchmark", benchmark, found.answered(of, decoding))
    settings = verifier_of(found) if verifier else None
    if found.evaluation.verifier and not verifier:
        raise StudyError(["--verifier: missing; the study has evaluation.verifier"])
    _take(gpus)
    from stapo.evaluation.scores import score as run

    judge = None
    if verifier and settings:
        from stapo.evaluation import verifier as asked

        how = settings, found.evaluation.backend, found.engine
        judge = partial(asked.judge, asked.JudgeModel(verifier, *how))
    cell = identity.score_identity(found, of, decoding, benchmark)
    _begin(cell["fingerprint"])
    average = run(completions, cell, out, judge, found.task(benchmark))
    typer.echo(f"{completions}: {100 * average:.2f} %")


def _begin(made_by: str) -> None:
    """Name, at the beginning of a log, what the job works for: `stapo status` knows by it whose log it is."""
    typer.echo(f"configuration {made_by}")


def _take(gpus: int | None) -> None:
    if gpus is not None:
        from stapo.gpus import take_gpus

        take_gpus(gpus)
