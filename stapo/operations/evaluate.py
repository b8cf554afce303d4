"""Evaluation of any checkpoints with the pipeline's code, in one table.

Each checkpoint becomes a size of a study without trainings: prompts, seeds, stored responses, grading and
statistics are those of the pipeline, and existing responses are not generated again. A results folder
holds one evaluation; unless it is given a name, its name contains a hash of everything that determines the
tables.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from stapo import paths
from stapo.analysis.cells import read_scores
from stapo.analysis.checkpoint_table import checkpoint_table
from stapo.analysis.main_tables import print_table, write_table
from stapo.analysis.values import write_values_of
from stapo.canonical import fingerprint
from stapo.evaluation.batch_size import UNKNOWN, default_batch_size
from stapo.evaluation.generate import Benchmark, generate, prompt_faults
from stapo.evaluation.scores import score
from stapo.files import read_json, write_json
from stapo.locks import work_directory
from stapo.operations.checkpoints import FoundModel, find_checkpoints, parse_arguments
from stapo.study import Checkpoint, Study, StudyError, parse_study
from stapo.study.identity import (
    benchmark_config,
    generate_config,
    score_identity,
    tables_fingerprint,
)
from stapo.study.schema import Decoding
from stapo.tasks import benchmark_definitions
from stapo.text import visible

GREEDY = "greedy"
GREEDY_DECODING = Decoding.model_construct(temperature=0.0, top_p=1.0, top_k=0)
"""Not of the catalogue: a study takes N samples under each decoding, and greedy decoding has one."""
DIGITS = 8
SHOWN_AS = {
    "name": "--name",
    "run.decodings": "--decoding",
    "run.benchmarks": "--benchmark",
    "evaluation.backend": "--backend",
    "evaluation.batch_size": "--batch-size",
    "evaluation.max_response_tokens": "--max-response-tokens",
    "evaluation.seed": "--seed",
}
"""Place in a study -> option of the command."""
STAND_IN = FoundModel(Path(), "0" * 40, "model", "", "")


@dataclass(frozen=True)
class Asked:
    """What checkpoints are evaluated on, and how."""

    benchmarks: Sequence[str]
    decodings: Sequence[str]
    """Names in the catalogue, or `greedy` alone."""
    backend: str = "hf"
    batch_size: int | None = None
    """Responses that Transformers generates together; None: `default_batch_size`."""
    max_response_tokens: int = 20480
    seed: int = 1234
    samples: int | None = None
    """Responses to each problem; None: those of the benchmark's task, or 1 with greedy decoding."""
    limit: int | None = None
    """Problems of each benchmark, the first ones; None: all."""
    name: str | None = None
    """Results folder; None: one named after its content."""
    beside: Study | None = None
    """Study whose benchmarks from files are known too."""

    def own(self) -> list[str]:
        """Return the names of the benchmarks from files."""
        study = self.beside
        return [b for b in study.evaluated() if study.benchmarks[b].file] if study else []

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Return the known benchmarks by name."""
        files = {b: self.beside.task(b) for b in self.own()} if self.beside else {}
        return {**benchmark_definitions(), **files}


def evaluate(models: Sequence[str], asked: Asked) -> list[Path]:
    """Generate responses, grade them and write tables; return the paths of the tables.

    Args:
        models: directories, Hub models or results folders of studies, each with or without `LABEL=`.
        asked: what they are evaluated on, and how.

    Raises:
        StudyError: every error in the input that is seen before weights are read, or every one of the
            checkpoints.
    """
    arguments, errors = parse_arguments(models)
    if errors := [*errors, *faults(asked)]:
        raise StudyError(errors)
    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(Text(visible(line)), soft_wrap=True)

    same: list[str] = []
    found, errors = find_checkpoints(arguments, same.append)
    for line in same:
        say(line)
    if errors:
        raise StudyError(errors)
    if asked.backend == "hf" and asked.batch_size is None:
        size = default_batch_size([one.path for one in found], asked.max_response_tokens)
        asked = replace(asked, batch_size=size)
        say(f"batch size {size}; --batch-size chooses another")
    study = study_of(found, asked)
    paths_of_models = [one.path for one in found]
    benchmarks = [_benchmark(study, b, asked, Path()) for b in asked.benchmarks]
    if lines := prompt_faults(paths_of_models, benchmarks, study.end_tokens):
        raise StudyError(lines)
    with work_directory(Path(paths.EVALUATION_WORK.format(study=study.name)), {"kind": "tables"}):
        _claim(study, found, asked)
        return _tables(study, found, same, asked, say)


def _tables(
    study: Study,
    found: Sequence[FoundModel],
    same: Sequence[str],
    asked: Asked,
    say: Callable[[str], None],
) -> list[Path]:
    """Generate responses, grade them and write the table of every decoding; return the paths.

    Args:
        study: result of `study_of`.
        found: the checkpoints.
        same: a line about each checkpoint that is left out, since another has the same weights.
        asked: what they are evaluated on, and how.
        say: called with a line about the progress.
    """
    written, tables = [], []
    for decoding in asked.decodings:
        for number, one in enumerate(found, 1):
            say(f"{one.title}, {decoding}: checkpoint {number} of {len(found)}")
            _answer(study, one, decoding, asked)
        scores = read_scores(study, decoding)
        shown = {one.name: (one.size, one.title) for one in found}
        table = checkpoint_table(study, decoding, scores, shown)
        table = replace(table, part=_part(asked), notes=[*table.notes, *same])
        if decoding == GREEDY:
            table = replace(table, title="greedy decoding")
        print_table(table, Console())
        written += write_table(table)
        tables.append(table)
    return [*written, *write_values_of(tables)]


def faults(asked: Asked) -> list[str]:
    """Return a line for each error in what is asked."""
    known = asked.tasks()
    others = "" if asked.beside else "; --study names the study of a benchmark from a file"
    errors = [
        f"--benchmark: unknown name {name!r}; known: {', '.join(known)}{others}"
        for name in dict.fromkeys(asked.benchmarks)
        if name not in known
    ]
    for option, number in (("--samples", asked.samples), ("--limit", asked.limit)):
        if number is not None and not 1 <= number <= 10**5:
            errors.append(f"{option}: expected a number from 1 to 100000, not {number}")
    if GREEDY in asked.decodings and asked.samples not in (None, 1):
        errors.append("--samples: greedy decoding has one response to a problem; leave it out")
    if GREEDY in asked.decodings and len(asked.decodings) > 1:
        about = "greedy has one response to a problem, the others several"
        errors.append(f"--decoding: {about}; run a command for each")
    if asked.backend == "vllm" and asked.batch_size is not None:
        errors.append("--batch-size: vLLM forms its own batches; leave it out")
    if asked.backend == "vllm" and find_spec("vllm") is None:
        errors.append("--backend vllm: vLLM is not installed; run `make setup-gpu` or use hf")
    counted = replace(
        asked, benchmarks=[b for b in asked.benchmarks if b in known] or list(known)[:1], limit=None
    )
    try:
        study_of([STAND_IN], replace(counted, samples=None))
    except StudyError as error:
        errors += [_with_option(line) for line in error.errors]
    return errors


def _with_option(line: str) -> str:
    """Return an error of a study with the option of the command instead of the place in the study."""
    place, colon, rest = line.partition(": ")
    return f"{SHOWN_AS.get(place, place)}{colon}{rest}"


def study_of(found: Sequence[FoundModel], asked: Asked) -> Study:
    """Return a study whose sizes are checkpoints.

    Args:
        found: the checkpoints; the checksums of their files become part of the fingerprints.
        asked: what they are evaluated on, and how.

    Raises:
        StudyError: unknown names or bad settings, all at once.
    """
    study = parse_study(_raw(found, asked))
    samples = 1 if GREEDY in asked.decodings else asked.samples
    # Set here, since a study refuses fewer samples than a small benchmark needs.
    chosen = {"samples": samples} if samples else {}
    changes = {
        "benchmarks": {b: one.model_copy(update=chosen) for b, one in study.benchmarks.items()},
        "run": study.run.model_copy(update={"methods": []}),
        "decodings": {**study.decodings, GREEDY: GREEDY_DECODING},
    }
    study = study.model_copy(update=changes)
    if asked.name is None:
        names = found[0].name if len(found) == 1 else f"{found[0].name}-and-{len(found) - 1}-more"
        content = _content(study, found)
        study = study.model_copy(update={"name": f"evaluate-{names}-{content[:DIGITS]}"})
    return study


def _raw(found: Sequence[FoundModel], asked: Asked) -> dict[str, Any]:
    """Return the study as a study file would have it, which cannot say everything that may be asked."""
    tasks, own, beside = asked.tasks(), asked.own(), asked.beside
    training: dict[str, Any] = {
        "steps": 1, "prompts_per_batch": 1, "prompts_per_mini_batch": 1, "group_size": 2,
        "micro_batch_tokens": 1, "learning_rate": 1.0, "max_prompt_tokens": 1, "max_response_tokens": 1,
    }  # fmt: skip
    if beside:
        training["instruction"] = beside.training.instruction  # Also of the benchmarks from files.
    # What is asked of the weights is part of their identity, so that a limit is in all fingerprints.
    hub = "outside/any-study" if asked.limit is None else f"outside/first-{asked.limit}-problems"
    raw = {
        "name": asked.name or "evaluate",
        "models": {one.name: {"hub": hub, "revision": one.checksum} for one in found},
        "data": {"builder": "tiny-arithmetic", "prompts": 1},
        "training": training,  # Required by the schema; nothing is trained.
        "benchmarks": {
            b: beside.benchmarks[b].model_dump(exclude_none=True)
            if beside and b in own
            else {"samples": tasks[b]["repeats"]}
            for b in asked.benchmarks
        },
        # A stand-in, since a study cannot have temperature 0.
        "decodings": {GREEDY: {"temperature": 1.0, "top_p": 1.0}},
        "evaluation": {
            "backend": asked.backend,
            "batch_size": UNKNOWN if asked.batch_size is None else asked.batch_size,
            "max_response_tokens": asked.max_response_tokens,
            "seed": asked.seed,
        },
        "run": {
            "sizes": [one.name for one in found],
            "methods": ["stapo"],
            "seeds": [0],
            "decodings": [*asked.decodings],
            "benchmarks": [*asked.benchmarks],
        },
    }
    if beside:
        at = [f"benchmarks.{b}.file" for b in asked.benchmarks if b in own]
        raw["places"] = {place: beside.places[place] for place in at}
    return raw


def _content(study: Study, found: Sequence[FoundModel]) -> str:
    """Return the fingerprint of everything that determines the tables."""
    return fingerprint([tables_fingerprint(study), [(one.name, one.title) for one in found]])


def _claim(study: Study, found: Sequence[FoundModel], asked: Asked) -> None:
    """Write into the results folder what was asked for.

    A record without results, of an evaluation that was stopped early, is replaced.

    Raises:
        StudyError: it has other results.
    """
    folder = Path(paths.RESULTS.format(study=study.name))
    record = Path(paths.EVALUATION.format(study=study.name))
    content: dict[str, Any] = {
        "benchmarks": {b: benchmark_config(study, b)["samples"] for b in asked.benchmarks},
        "checkpoints": {
            one.title: {"path": str(one.path), "sha256": one.checksum} for one in found
        },
        "decodings": [*asked.decodings],
        **study.evaluation.model_dump(
            include={"backend", "batch_size", "max_response_tokens", "seed"}
        ),
        "fingerprint": _content(study, found),
        "limit": asked.limit,
    }
    remedy = f"choose another --name, or remove {folder}"
    # A hidden file is what a kill left of the record.
    has_results = any(path != record for path in folder.glob("[!.]*"))
    if has_results and record.exists():
        other = read_json(record, remedy)
        if other.get("fingerprint") == content["fingerprint"]:
            return
        differ = [key for key in content if key != "fingerprint" and other.get(key) != content[key]]
        about = f"has the results of another evaluation ({', '.join(differ)} differ)"
        raise StudyError([f"{folder}: {about}; {remedy}"])
    if has_results:
        raise StudyError([f"{folder}: has results that are not of an evaluation; {remedy}"])
    write_json(record, content)


def _answer(study: Study, one: FoundModel, decoding: str, asked: Asked) -> None:
    """Generate and score the responses of a checkpoint under a decoding."""
    row = Checkpoint(one.name)
    at: dict[str, Any] = {"study": study.name, "checkpoint": row, "decoding": decoding}
    outputs = {b: Path(paths.COMPLETIONS.format(**at, benchmark=b)) for b in asked.benchmarks}
    benchmarks = [_benchmark(study, b, asked, output) for b, output in outputs.items()]
    # One store per checkpoint, whatever it is called: a further evaluation generates only what is missing.
    work = Path(paths.GENERATE_WORK.format(fingerprint=f"{one.checksum[:DIGITS]}-{decoding}"))
    config = generate_config(study, row, decoding)
    how, ends = (study.decodings[decoding], study.evaluation), study.end_tokens
    generate(one.path, config, *how, benchmarks, work, end_tokens=ends)
    for benchmark in benchmarks:
        identity = score_identity(study, row, decoding, benchmark.name)
        output = Path(paths.SCORES.format(**at, benchmark=benchmark.name))
        task = study.task(benchmark.name)
        score(benchmark.output, identity, output, task=task, limit=asked.limit)


def _benchmark(study: Study, name: str, asked: Asked, output: Path) -> Benchmark:
    file = study.rows_file(name)
    return Benchmark(name, benchmark_config(study, name), output, file, asked.limit)


def _part(asked: Asked) -> str:
    """Return a sentence on the problems that are left out; empty if there are none."""
    tasks = asked.tasks()
    rows = {name: tasks[name]["metadata"]["rows"] for name in asked.benchmarks}
    cut = [
        f"{asked.limit} of {count} of {name}"
        for name, count in rows.items()
        if asked.limit and asked.limit < count
    ]
    return f"Only the first problems of a benchmark: {', '.join(cut)}." if cut else ""
