"""The `stapo` program: one subcommand per step of the pipeline, arguments in, one call out.

Heavy imports stand inside the commands, so that `stapo --help` and `stapo check` start at once.
"""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from safetensors import SafetensorError

from stapo.artifacts import BusyError, ForeignDirectoryError, write_json
from stapo.study import (
    Study,
    StudyError,
    benchmark_definitions,
    parse_study,
    read_study,
    study_schema,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Reproduce, check and extend STAPO (arXiv 2602.15620). The whole study in one command: "
    "make smoke, or snakemake --configfile workflows/studies/STUDY.yaml.",
)

BAD_INPUT = 2
INTERRUPTED = 130
FULL_DISK = ("No space left on device", "inline_container.cc", "file write failed")

StudyArgument = Annotated[str, typer.Option("--study", help="Study file, or its merged JSON")]
ConfigOption = Annotated[str, typer.Option("--config", help="JSON, as `snakemake -p` prints it")]
OutOption = Annotated[Path, typer.Option("--out", help="Where the result appears, by one rename")]
WorkOption = Annotated[Path, typer.Option("--work", help="Directory of resumable state")]


def _study(text: str) -> Study:
    return parse_study(json.loads(text)) if text.startswith("{") else read_study(Path(text))


@app.command()
def check(study: Annotated[Path, typer.Argument(help="Study file")]) -> None:
    """Check a study file and say what it would run.

    Example: stapo check workflows/studies/smoke.yaml
    """
    found = read_study(study)
    runs, checkpoints = list(found.runs()), list(found.checkpoints())
    answers = sum(
        benchmark_definitions()[name]["metadata"]["rows"] * found.benchmarks[name].samples
        for name in found.evaluated()
    )
    typer.echo(
        f"{found.name}: {len(runs)} trainings of {found.training.steps} steps, "
        f"{len(checkpoints)} checkpoints x {len(found.run.decodings)} decodings, "
        f"{answers} responses each"
    )
    for line in found.unpinned():
        typer.echo(f"warning: {line}")


@app.command()
def schema() -> None:
    """Print the JSON schema of study files.

    Example: stapo schema > workflows/study.schema.json
    """
    typer.echo(json.dumps(study_schema(), indent=1, sort_keys=True))


@app.command()
def prompts(config: ConfigOption, out: OutOption) -> None:
    """Write the training prompts.

    Example: stapo prompts --config '{"builder": "tiny-arithmetic", "prompts": 64}' --out p.jsonl
    """
    from pydantic import TypeAdapter

    from stapo.schema import Data
    from stapo.training.prompts import write_prompts

    write_prompts(TypeAdapter(Data).validate_python(json.loads(config)), out)


@app.command()
def overlap(
    prompts: Annotated[Path, typer.Option(help="Training prompts")],
    benchmark: Annotated[list[str], typer.Option(help="Benchmark; repeat for several")],
    out: OutOption,
) -> None:
    """Check that no training prompt is a problem of a benchmark.

    Example: stapo overlap --prompts p.jsonl --benchmark chain-3 --out overlap.json
    """
    write_json(out, _overlap(prompts, benchmark))


def _overlap(prompts: Path, benchmarks: list[str]) -> dict[str, Any]:
    from stapo.evaluation.task import benchmark_questions
    from stapo.training.prompts import check_overlap

    return check_overlap(prompts, {name: benchmark_questions(name) for name in benchmarks})


@app.command()
def base(config: ConfigOption, out: OutOption) -> None:
    """Build or download a base model.

    Example: stapo base --config '{"builder": "tiny-arithmetic", "supervised_steps": 400}' --out m
    """
    from stapo.models.base import write_base

    write_base(json.loads(config), out)


@app.command()
def train(
    study: StudyArgument,
    size: Annotated[str, typer.Option(help="Model size of the study")],
    method: Annotated[str, typer.Option(help="Method of the study")],
    seed: Annotated[int, typer.Option(help="Training seed")],
    base: Annotated[Path, typer.Option(help="Base model")],
    prompts: Annotated[Path, typer.Option(help="Training prompts")],
    work: WorkOption,
    out: OutOption,
    metrics: Annotated[Path, typer.Option(help="Where metrics.jsonl appears")],
) -> None:
    """Train one method; continues from the last step checkpoint in the work directory.

    Example: stapo train --study workflows/studies/smoke.yaml --size tiny --method stapo --seed 0
    --base results/smoke/models/tiny/base --prompts results/smoke/data/prompts.jsonl
    --work work/by-hand --out by-hand/model --metrics by-hand/metrics.jsonl
    """
    found = _study(study)
    _overlap(prompts, found.evaluated())
    from stapo.training.run import train as run

    run(
        config=found.train_config(size, method, seed),
        training=found.training,
        method=found.method(method),
        seed=seed,
        base=base,
        prompts=prompts,
        work=work,
        model_path=out,
        metrics_path=metrics,
        kept_steps=found.kept_steps(),
        engine=found.engine,
    )


@app.command()
def conformance(
    trainer: Annotated[
        str,
        typer.Option(help="ours, trl-dapo, trl-grpo, trl-top-entropy, or package.module:function"),
    ] = "ours",
    method: Annotated[
        str | None,
        typer.Option(help="What it is meant to be: grpo, justrl, 20-entropy, stapo or stapo-v2"),
    ] = None,
) -> None:
    """Hold a trainer's loss against a method's update, and say which conventions it follows.

    Exit code 1 where a check does not hold. What a trainer must offer: stapo/conformance/batches.py.

    Example: stapo conformance --trainer trl-dapo --method justrl
    """
    from stapo.conformance.report import find_trainer, print_report

    found, meant = find_trainer(trainer)
    if not print_report(found, trainer, method or meant):
        raise typer.Exit(1)


@app.command()
def generate(
    study: StudyArgument,
    checkpoint: Annotated[str, typer.Option(help="size/base or size/method/seedK")],
    decoding: Annotated[str, typer.Option(help="Decoding of the study")],
    model: Annotated[Path, typer.Option(help="Directory of the checkpoint")],
    work: WorkOption,
    out: Annotated[Path, typer.Option(help="Directory of the responses")],
) -> None:
    """Answer the study's benchmarks with one checkpoint; what is already there is kept.

    Example: stapo generate --study workflows/studies/smoke.yaml --checkpoint tiny/base
    --decoding t1.0-p1.0 --model results/smoke/models/tiny/base --work work/by-hand --out by-hand
    """
    found = _study(study)
    from stapo.evaluation.generate import Benchmark
    from stapo.evaluation.generate import generate as run

    benchmarks = [
        Benchmark(name, found.benchmark_config(name), out / f"{name}.jsonl")
        for name in found.evaluated()
    ]
    config = found.generate_config(checkpoint, decoding)
    generated = run(
        model, config, found.decodings[decoding], found.evaluation, benchmarks, work, found.engine
    )
    typer.echo(f"generated {generated} responses" if generated else "all responses were there")


@app.command()
def regrade(
    completions: Annotated[Path, typer.Argument(help="Responses, as `stapo generate` writes them")],
    benchmark: Annotated[str, typer.Option(help="Benchmark that they answer")],
) -> None:
    """Print avg@N of responses that are there, as lm-eval itself computes it; no model is needed.

    Example: stapo regrade results/smoke/completions/tiny/base/t1.0-p1.0/chain-3.jsonl --benchmark chain-3
    """
    from stapo.evaluation.replay import regrade as run

    typer.echo(f"{100 * run(completions, benchmark):.2f} %")


@app.command()
def score(
    completions: Annotated[Path, typer.Option(help="Responses of one cell")],
    identity: Annotated[str, typer.Option(help="JSON: fingerprint, checkpoint, ...")],
    out: OutOption,
    verifier: Annotated[Path | None, typer.Option(help="Directory of a verifier model")] = None,
    verifier_config: Annotated[str, typer.Option(help="JSON: its settings")] = "{}",
) -> None:
    """Grade the responses of one cell; with a verifier, it judges what the rules reject.

    Example: stapo score --completions by-hand/chain-3.jsonl --identity '{}' --out chain-3.parquet
    """
    from stapo.evaluation.scores import score as run
    from stapo.schema import Verifier

    judge = (verifier, Verifier.model_validate_json(verifier_config)) if verifier else None
    average = run(completions, json.loads(identity), out, judge)
    typer.echo(f"{completions}: {100 * average:.2f} %")


@app.command()
def fetch(
    study: Annotated[Path, typer.Argument(help="Study file")],
    check: Annotated[bool, typer.Option("--check", help="Only look, without the network")] = False,
) -> None:
    """Download everything that a study needs beforehand; run again, it continues where it broke off.

    Benchmark rows go to STAPO_DATA_DIR where that is set. Exit code 1 where something is missing.

    Example: STAPO_DATA_DIR=rows stapo fetch workflows/studies/mine.yaml
    """
    from stapo.operations.fetch import OFFLINE
    from stapo.operations.fetch import fetch as run

    if check:
        os.environ.update(dict.fromkeys(OFFLINE, "1"))
    if not run(read_study(study), typer.echo):
        raise typer.Exit(1)


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="Directory, or owner/name@revision on the Hub")],
    benchmark: Annotated[list[str], typer.Option(help="Benchmark; repeat for several")],
    decoding: Annotated[list[str], typer.Option(help="Decoding of the catalogue")] = ["t0.7-p0.9"],  # noqa: B006
    backend: Annotated[str, typer.Option(help="hf or vllm")] = "hf",
    max_response_tokens: Annotated[int, typer.Option(help="Limit of a response")] = 20480,
    batch_size: Annotated[int, typer.Option(help="Responses generated together")] = 64,
) -> None:
    """Evaluate any checkpoint as the pipeline would, into the same table; continues where it stopped.

    Example: stapo evaluate Qwen/Qwen3-1.7B-Base --benchmark aime24 --benchmark math500 --backend vllm
    """
    from stapo.operations.evaluate import evaluate as run

    settings = {
        "backend": backend,
        "batch_size": batch_size,
        "max_response_tokens": max_response_tokens,
    }
    _list(run(model, benchmark, decoding, settings))


@app.command(name="audit-grader")
def audit_grader(
    benchmark: Annotated[list[str] | None, typer.Option(help="Default: the paper's six")] = None,
) -> None:
    """Print which share of a benchmark's gold answers the grader accepts in each usual notation.

    Example: STAPO_DATA_DIR=rows stapo audit-grader --benchmark minerva
    """
    from stapo.evaluation.audit import print_audit

    print_audit(benchmark or ["aime24", "aime25", "amc23", "math500", "minerva", "olympiadbench"])


@app.command()
def table(study: StudyArgument, decoding: Annotated[str, typer.Option()]) -> None:
    """Write the table of one decoding as Markdown, LaTeX and CSV.

    Example: stapo table --study workflows/studies/smoke.yaml --decoding t1.0-p1.0
    """
    from stapo.analysis.tables import write_tables

    _list(write_tables(_study(study), decoding))


@app.command()
def figure(study: StudyArgument, name: Annotated[str, typer.Option(help="Which one")]) -> None:
    """Write one figure of the trainings.

    Example: stapo figure --study workflows/studies/smoke.yaml --name entropy
    """
    from stapo.analysis.figures import write_figure

    _list(write_figure(_study(study), name))


@app.command()
def report(study: StudyArgument) -> None:
    """Write the report, one HTML page.

    Example: stapo report --study workflows/studies/smoke.yaml
    """
    from stapo.analysis.report import write_report

    _list([write_report(_study(study))])


@app.command()
def paper() -> None:
    """Print the paper's averages and headlines beside what its own table gives.

    Example: stapo paper
    """
    from rich.console import Console

    from stapo.analysis.against_paper import print_audit as run

    run(Console())


@app.command()
def show(study: Annotated[Path, typer.Argument(help="Study file")]) -> None:
    """Print the main tables and say where the files are.

    Example: stapo show workflows/studies/smoke.yaml
    """
    from stapo.analysis.tables import show_study

    show_study(read_study(study))


def _list(paths: list[Path]) -> None:
    for path in paths:
        typer.echo(str(path))


def main() -> None:
    """Run the program; errors of users and machines become one line each."""
    try:
        app()
    except StudyError as error:
        _fail(error.errors, BAD_INPUT)
    except (BusyError, ForeignDirectoryError, json.JSONDecodeError) as error:
        _fail([str(error)], BAD_INPUT)
    except OSError as error:
        # A full disk, a directory that may not be written: what is published stays whole.
        where = f"{error.filename}: " if error.filename else ""
        _fail([_plain(f"{where}{error.strerror or error}")], 1)
    except (ValueError, RuntimeError, FloatingPointError, SafetensorError) as error:
        _fail([_plain(str(error))], 1)
    except KeyboardInterrupt:
        _fail(["stopped; the same command continues from the last checkpoint"], INTERRUPTED)


def _plain(message: str) -> str:
    """Say what the writers of weights and optimiser states mean by their errors on a full disk."""
    if any(words in message for words in FULL_DISK):
        return "no space left on the device; make some and run the same command again, it continues"
    return message


def _fail(lines: list[Any], code: int) -> None:
    for line in lines:
        print(f"stapo: {line}", file=sys.stderr)  # noqa: T201
    raise SystemExit(code)
