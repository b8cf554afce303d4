"""The study file: schema, every error at once, and what each job of the study is determined by.

A study says what to compare; `workflows/catalogue.yaml` says what can be chosen. Both are merged as
Snakemake merges configuration files: mappings deeply, lists replaced. Nothing here imports torch.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache, reduce
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from stapo.methods import METHODS, Method
from stapo.schema import (
    SELECTION_ARGS,
    BenchmarkSettings,
    Data,
    Decoding,
    Engine,
    Evaluation,
    MethodSettings,
    Model,
    Name,
    Run,
    Strict,
    Training,
)

ROOT = Path(__file__).resolve().parents[1]
CATALOGUE = ROOT / "workflows" / "catalogue.yaml"
STUDIES = ROOT / "workflows" / "studies"
BENCHMARKS = ROOT / "benchmarks"
KINDS = ("hub", "builder")
"""Of models and data."""
TASK_PREFIX = "stapo_"
"""lm-eval has no task of such a name, so that a forgotten `--include_path` cannot run another one."""

RECIPES = {"data": 1, "overlap": 2, "base": 1, "train": 2, "generate": 2, "score": 3}
"""Raised when the code of a stage changes its results: the number is part of the fingerprints."""


class StudyError(ValueError):
    """Everything that is wrong with a study, one line each."""

    def __init__(self, errors: list[str]):
        super().__init__("\n".join(errors))
        self.errors = errors


class Study(Strict):
    """A whole study."""

    name: Name
    models: dict[Name, Model]
    data: Data
    training: Training
    engine: Engine = Engine()
    methods: dict[Name, MethodSettings] = Field(
        default_factory=dict, description="Deviations from methods, and variants of them"
    )
    decodings: dict[Name, Decoding]
    benchmarks: dict[Name, BenchmarkSettings]
    evaluation: Evaluation
    run: Run

    def method(self, name: str) -> Method:
        """Return the method of that name with the deviations of this study."""
        settings = self.methods.get(name, MethodSettings())
        base = METHODS[settings.base or name]
        given = settings.model_dump(exclude_none=True, exclude={"base"})
        args = {key: given.pop(key) for key in SELECTION_ARGS if key in given}
        if settings.base and "title" not in given:
            given["title"] = name
        return replace(base, **given, selection_args={**base.selection_args, **args})

    def runs(self) -> Iterator[tuple[str, str, int]]:
        """Yield (size, method, seed) of every training."""
        for size in self.run.sizes:
            for method in self.run.methods:
                for seed in self.run.seeds:
                    yield size, method, seed

    def kept_steps(self) -> list[int]:
        """Return the optimiser steps, before the last, after which weights are kept."""
        every, last = self.training.evaluate_every, self.training.steps
        return list(range(every, last, every)) if every else []

    def checkpoint(self, size: str, method: str, seed: int, step: int) -> str:
        """Return the name of the checkpoint of a training after a step."""
        last = step == self.training.steps
        return f"{size}/{method}/seed{seed}" + ("" if last else f"/step{step}")

    def checkpoints(self) -> Iterator[str]:
        """Yield `size/base`, `size/method/seedK/stepN` and `size/method/seedK`, all that is evaluated."""
        for size in self.run.sizes:
            yield f"{size}/base"
        for size, method, seed in self.runs():
            for step in (*self.kept_steps(), self.training.steps):
                yield self.checkpoint(size, method, seed, step)

    def evaluated(self) -> list[str]:
        """Return the benchmarks that every checkpoint answers."""
        return [*self.run.benchmarks, *self.evaluation.development]

    def unpinned(self) -> list[str]:
        """Return a line for each thing from the Hub that is not pinned to a commit."""
        sources: dict[str, Any] = {f"models.{size}": self.models[size] for size in self.run.sizes}
        sources |= {"data": self.data, "evaluation.verifier": self.evaluation.verifier}
        return [
            f"{place}.revision: {source.hub} at main is whatever it is on that day; pin the commit"
            for place, source in sources.items()
            if getattr(source, "revision", None) == "main"
        ]

    def gpus_of(self, rule: str) -> int:
        """Return how many GPUs a job of `train`, `generate` or `score` asks for by default."""
        if rule == "train":
            return int(self.training.rollouts != "transformers")
        if rule == "score":
            return int(self.evaluation.verifier is not None)
        engine = self.engine
        vllm = self.evaluation.backend == "vllm"
        return engine.data_parallel * engine.vllm_tensor_parallel if vllm else 0

    def data_config(self) -> dict[str, Any]:
        """Return what determines the training prompts."""
        return {"recipe": RECIPES["data"], "data": self.data.model_dump()}

    def overlap_config(self) -> dict[str, Any]:
        """Return what determines how many problems are training prompts, the prompts apart."""
        benchmarks = {name: self.benchmark_config(name) for name in self.evaluated()}
        return {"recipe": RECIPES["overlap"], "benchmarks": benchmarks}

    def base_config(self, size: str) -> dict[str, Any]:
        """Return what determines the base model of a size."""
        return {"recipe": RECIPES["base"], "model": self.models[size].model_dump()}

    def train_config(self, size: str, method: str, seed: int) -> dict[str, Any]:
        """Return what determines the final weights of a run, and nothing else."""
        training = self.training.model_dump(
            exclude={"checkpoint_every", "keep_checkpoints", "evaluate_every"}
        )
        resolved = asdict(self.method(method))
        return {
            "recipe": RECIPES["train"],
            "base": self.base_config(size),
            "data": self.data_config(),
            "method": {k: v for k, v in resolved.items() if k not in ("title", "source")},
            "training": training,
            "seed": seed,
        }

    def checkpoint_config(self, checkpoint: str) -> dict[str, Any]:
        """Return what determines a checkpoint, given as `checkpoints` yields it."""
        size, *rest = checkpoint.split("/")
        if rest == ["base"]:
            return self.base_config(size)
        method, seed, *step = rest
        final = self.train_config(size, method, int(seed.removeprefix("seed")))
        return {**final, "weights_of": step[0]} if step else final

    def generate_config(self, checkpoint: str, decoding: str) -> dict[str, Any]:
        """Return what determines the responses of a checkpoint, the benchmark apart."""
        return {
            "recipe": RECIPES["generate"],
            "checkpoint": self.checkpoint_config(checkpoint),
            "decoding": self.decodings[decoding].model_dump(),
            "evaluation": self.evaluation.model_dump(
                exclude={"verifier", "verdict", "select", "development"}
            ),
        }

    def benchmark_config(self, benchmark: str) -> dict[str, Any]:
        """Return what determines the problems of a benchmark and how many responses each gets."""
        return {
            "task": benchmark_definitions()[benchmark],
            "samples": self.benchmarks[benchmark].samples,
        }

    def score_fingerprint(self, checkpoint: str, decoding: str, benchmark: str) -> str:
        """Return the fingerprint of everything that leads to the scores of one cell."""
        generate = self.generate_config(checkpoint, decoding)
        verifier = self.evaluation.verifier
        judged_by = verifier.model_dump(exclude={"batch_size"}) if verifier else None
        return fingerprint(
            [RECIPES["score"], generate, self.benchmark_config(benchmark), judged_by]
        )

    def score_fingerprints(self, decoding: str) -> list[str]:
        """Return the fingerprints of every score of one decoding."""
        return [
            self.score_fingerprint(checkpoint, decoding, benchmark)
            for checkpoint in self.checkpoints()
            for benchmark in self.evaluated()
        ]

    def table_fingerprint(self, decoding: str) -> str:
        """Return the fingerprint of what the table of a decoding shows."""
        shown = self.evaluation.model_dump(include={"select", "development", "verdict"})
        titles = [self.method(name).title for name in self.run.methods]
        return fingerprint([titles, shown, self.score_fingerprints(decoding)])

    def score_identity(self, checkpoint: str, decoding: str, benchmark: str) -> dict[str, Any]:
        """Return what a score file says of itself."""
        return {
            "fingerprint": self.score_fingerprint(checkpoint, decoding, benchmark),
            "study": self.name,
            "checkpoint": checkpoint,
            "decoding": decoding,
            "benchmark": benchmark,
            "samples": self.benchmarks[benchmark].samples,
        }


def canonical(value: Any) -> str:
    """Return canonical JSON: sorted keys, no white space."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def fingerprint(value: Any) -> str:
    """Return 16 hex digits of the SHA-256 of the canonical JSON of a value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


class _TaskLoader(yaml.SafeLoader):
    """Reads lm-eval task files; `!function x` becomes the string `!function x`."""


_TaskLoader.add_constructor("!function", lambda loader, node: f"!function {node.value}")


@cache
def benchmark_definitions() -> dict[str, dict[str, Any]]:
    """Return every task of `benchmarks/` by its name without prefix, includes resolved.

    Comments and the order of keys do not show; everything else is part of the fingerprints.
    """
    tasks = {}
    for path in sorted(BENCHMARKS.rglob("*.yaml")):
        definition = _read_task(path)
        if "task" in definition:
            tasks[str(definition["task"]).removeprefix(TASK_PREFIX)] = definition
    return tasks


def _read_task(path: Path) -> dict[str, Any]:
    definition: dict[str, Any] = yaml.load(path.read_text(), Loader=_TaskLoader)
    include = definition.pop("include", None)
    # lm-eval's include is a shallow update: a nested mapping of the child replaces the parent's.
    return {**_read_task(path.parent / include), **definition} if include else definition


def merge(base: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Merge as Snakemake merges configuration files: mappings deeply, everything else replaced.

    So is a mapping whose kind changes: what comes from the Hub has nothing of what a builder makes.
    """
    if any(one in base and other in update for one, other in (KINDS, KINDS[::-1])):
        return dict(update)
    merged = dict(base)
    for key, value in update.items():
        old = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        merged[key] = merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def read_study(path: Path) -> Study:
    """Return the study of a file, merged over the catalogue.

    Raises:
        StudyError: with every error of the file.
    """
    return parse_study(_read_yaml(path))


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_text())
    except OSError as error:
        raise StudyError([f"{path}: {error.strerror}"]) from error
    except yaml.YAMLError as error:
        raise StudyError([f"{path}: not YAML: {' '.join(str(error).split())}"]) from error
    if not isinstance(raw, dict):
        raise StudyError([f"{path}: expected a mapping with name, training, run, ..."])
    return raw


def read_catalogue() -> dict[str, Any]:
    """Return what every study is merged over."""
    catalogue: dict[str, Any] = yaml.safe_load(CATALOGUE.read_text())
    return catalogue


def _extended(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study merged over the one that it extends, and so on, down to the catalogue.

    Raises:
        StudyError: no such study, or one that extends itself.
    """
    if "extends" in raw and "name" not in raw:
        # Its results would land among those of the study that it extends.
        raise StudyError(["name: missing; a study that extends another has one of its own"])
    chain, seen = [dict(raw)], []
    while "extends" in chain[-1]:
        name = chain[-1].pop("extends")
        path = STUDIES / f"{name}.yaml"
        if name in seen or path not in STUDIES.glob("*.yaml"):
            known = ", ".join(sorted(found.stem for found in STUDIES.glob("*.yaml")))
            problem = "extends itself" if name in seen else "no such study"
            raise StudyError([f"extends: {problem}: {name!r}; known: {known}"])
        seen.append(name)
        chain.append(_read_yaml(path))
    return reduce(merge, reversed(chain), read_catalogue())


def parse_study(raw: Mapping[str, Any]) -> Study:
    """Return a study, merged over what it extends and over the catalogue.

    Raises:
        StudyError: with every error, one line each, that begins with the place in the file.
    """
    raw = _extended(raw)
    study, errors = None, []
    try:
        study = Study.model_validate(raw)
    except ValidationError as error:
        errors = [_line(e["loc"], e["msg"], e["input"], e["type"]) for e in error.errors()]
    errors += _cross_errors(raw)
    if errors or study is None:
        raise StudyError(errors)
    return study


def _line(location: tuple[int | str, ...], message: str, value: Any, kind: str) -> str:
    tags = KINDS  # Inserted by pydantic for the union's branch, not in the file.
    depth = {"data": 1, "models": 2}.get(str(location[0]), -1) if location else -1
    kept = [part for i, part in enumerate(location) if not (i == depth and part in tags)]
    place = ".".join(str(part) for part in kept if part != "[key]")
    if kind == "missing":
        return f"{place}: missing; add it"
    if kind == "extra_forbidden":
        return f"{place}: unknown key; remove it or correct its spelling"
    return f"{place}: {message} (found {json.dumps(value, default=str)[:60]})"


def _names(raw: Mapping[str, Any], section: str, key: str | None = None) -> list[str]:
    value = raw.get(section)
    if key is not None:
        value = value.get(key) if isinstance(value, Mapping) else None
    return (
        [item for item in value if isinstance(item, str)]
        if isinstance(value, list | Mapping)
        else []
    )


def _cross_errors(raw: Mapping[str, Any]) -> list[str]:
    """Check what no single field can know; works on raw input, so that it adds to field errors."""
    errors = []
    known = {
        "sizes": _names(raw, "models"),
        "methods": [*METHODS, *_names(raw, "methods")],
        "decodings": _names(raw, "decodings"),
        "benchmarks": _names(raw, "benchmarks"),
    }
    for key, choices in known.items():
        chosen = _names(raw, "run", key)
        for name in chosen:
            if name not in choices:
                errors.append(f"run.{key}: unknown name {name!r}; known: {', '.join(choices)}")
        errors += [f"run.{key}: {name!r} is listed twice" for name in _repeated(chosen)]
    tasks = benchmark_definitions()
    for name in known["benchmarks"]:
        if name not in tasks:
            errors.append(
                f"benchmarks.{name}: no task {TASK_PREFIX}{name} in benchmarks/; known: {', '.join(tasks)}"
            )
    errors += _sample_errors(raw) + _selection_errors(raw, known["benchmarks"])
    run = raw.get("run")
    seeds = run.get("seeds") if isinstance(run, Mapping) else None
    if isinstance(seeds, list):
        errors += [f"run.seeds: {seed} is listed twice" for seed in _repeated(seeds)]
    evaluation = raw.get("evaluation")
    asks = isinstance(evaluation, Mapping) and evaluation.get("verdict") == "verifier"
    if asks and not raw["evaluation"].get("verifier"):
        errors.append("evaluation.verdict: verifier, but evaluation.verifier names none; add it")
    return errors + _method_errors(raw) + _batch_errors(raw)


def _sample_errors(raw: Mapping[str, Any]) -> list[str]:
    """Refuse so few samples of a small benchmark that its number would mean nothing."""
    errors = []
    benchmarks, tasks = raw.get("benchmarks"), benchmark_definitions()
    for name, settings in benchmarks.items() if isinstance(benchmarks, Mapping) else ():
        samples = settings.get("samples") if isinstance(settings, Mapping) else None
        least = tasks.get(name, {}).get("metadata", {}).get("minimum_samples", 1)
        if isinstance(samples, int) and 0 < samples < least:
            errors.append(
                f"benchmarks.{name}.samples: {samples} are too few for so few problems; at least {least}"
            )
    return errors


def _selection_errors(raw: Mapping[str, Any], known: list[str]) -> list[str]:
    """Refuse a rule for the choice of checkpoints that cannot choose, or that looks at the test."""
    evaluation, training = raw.get("evaluation"), raw.get("training")
    if not (isinstance(evaluation, Mapping) and isinstance(training, Mapping)):
        return []
    errors, place = [], "evaluation.development"
    tested, development = _names(raw, "run", "benchmarks"), _names(raw, "evaluation", "development")
    for name in development:
        if name not in known:
            errors.append(f"{place}: unknown name {name!r}; known: {', '.join(known)}")
        if name in tested:
            errors.append(
                f"{place}: {name!r} also stands in run.benchmarks; a table must not show what chose its rows"
            )
    select = evaluation.get("select", "last")
    every, steps = training.get("evaluate_every"), training.get("steps")
    if select == "development" and not development:
        errors.append(
            "evaluation.select: development, but evaluation.development is empty; fill it"
        )
    if select != "last" and not every:
        errors.append("evaluation.select: asks for training.evaluate_every; add it")
    numbers = [n for n in (select, every, steps) if isinstance(n, int) and n > 0]
    if len(numbers) == 3 and select not in (*range(every, steps, every), steps):  # type: ignore[arg-type]
        errors.append(
            f"evaluation.select: no weights of step {select} are kept; choose a multiple of {every} below "
            f"{steps}, or last"
        )
    return errors


def _repeated(items: list[Any]) -> list[Any]:
    return [item for i, item in enumerate(items) if item in items[:i]]


def _method_errors(raw: Mapping[str, Any]) -> list[str]:
    errors = []
    methods = raw.get("methods")
    for name, settings in methods.items() if isinstance(methods, Mapping) else ():
        if not isinstance(settings, Mapping):
            continue
        base = settings.get("base", name)
        if base not in METHODS:
            where, hint = ("base", "") if "base" in settings else ("", " or add `base`")
            place = f"methods.{name}" + (f".{where}" if where else "")
            errors.append(
                f"{place}: unknown method {base!r}; choose from {', '.join(METHODS)}{hint}"
            )
            continue
        takes = METHODS[base].selection_args
        errors += [
            f"methods.{name}.{key}: {base} has no such setting; it takes {', '.join(takes) or 'none'}"
            for key in SELECTION_ARGS
            if key in settings and key not in takes
        ]
    return errors


def _batch_errors(raw: Mapping[str, Any]) -> list[str]:
    training = raw.get("training")
    if not isinstance(training, Mapping):
        return []
    batch, mini = training.get("prompts_per_batch"), training.get("prompts_per_mini_batch")
    if not (isinstance(batch, int) and isinstance(mini, int) and batch > 0 and mini > 0):
        return []
    if batch % mini:
        return [
            f"training.prompts_per_mini_batch: {mini} does not divide prompts_per_batch {batch}; "
            "choose a divisor"
        ]
    steps = training.get("steps")
    if isinstance(steps, int) and steps % (batch // mini):
        return [
            f"training.steps: {steps} is not a multiple of the {batch // mini} mini-batches "
            "per rollout; choose a multiple"
        ]
    return []


def study_schema() -> dict[str, Any]:
    """Return the JSON schema of study files, for editors."""
    schema = Study.model_json_schema()
    schema["$defs"]["Run"]["properties"]["methods"]["items"]["examples"] = list(METHODS)
    # What a file leaves out may stand in the study that it extends, or in the catalogue.
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Study of workflows/studies, without .yaml, over which this one is merged",
    }
    for part in (schema, *schema["$defs"].values()):
        part.pop("required", None)
    return schema
