"""A study: its methods, its cells, and what each job is determined by."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pydantic import Field

from stapo.canonical import fingerprint
from stapo.methods import PARENTS, Method, compared, origin_of, resolve
from stapo.study.checks import BASE_TITLE
from stapo.study.fields import EndTokens, Name
from stapo.study.schema import (
    AllMethods,
    BenchmarkSettings,
    Compare,
    Data,
    Decoding,
    EngineSettings,
    Evaluation,
    HubData,
    MethodSettings,
    Model,
    Run,
    Strict,
    TrainingSettings,
)
from stapo.tasks import benchmark_definitions

ENGINE_SETTINGS = ("backend", "batch_size")
"""Of an evaluation: who answers, not what is asked."""

RECIPES = {"data": 1, "overlap": 2, "base": 1, "train": 3, "generate": 3, "score": 5}
"""Raised when the code of a stage changes its results: the number is part of the fingerprints."""

NAMES_OF_METHODS = ("title", "source", "revision")
"""What of a method changes no weights."""


class Study(Strict):
    """A whole study."""

    name: Name
    models: dict[Name, Model]
    data: Data
    end_tokens: EndTokens = Field(["<|im_end|>"])
    training: TrainingSettings
    engine: EngineSettings = EngineSettings()
    all_methods: AllMethods = Field(
        AllMethods(), description="Deviations from methods that all of them share"
    )
    methods: dict[Name, MethodSettings] = Field(
        default_factory=dict, description="Deviations from methods, and variants of them"
    )
    decodings: dict[Name, Decoding]
    benchmarks: dict[Name, BenchmarkSettings]
    evaluation: Evaluation
    run: Run
    compare: Compare = Compare()

    def method(self, name: str) -> Method:
        """Return the method of that name as this study has it."""
        own, shared = self.training_of(name).model_dump(), self.training.model_dump()
        trained = {key: value for key, value in own.items() if value != shared[key]}
        shared_by_all = self.all_methods.model_dump(exclude_none=True)
        return resolve(name, self._method_settings(), shared_by_all, trained)

    def title(self, name: str) -> str:
        """Return the title of a table's row: of a method, or of the base model."""
        return BASE_TITLE if name == "base" else self.method(name).title

    def origin_of(self, method: str) -> str:
        """Return the method of `stapo.methods` from which a method or variant descends."""
        return origin_of(method, self._method_settings())

    def _method_settings(self) -> dict[str, dict[str, Any]]:
        return {
            name: settings.model_dump(exclude_none=True, exclude={"training"})
            for name, settings in self.methods.items()
        }

    def training_of(self, method: str) -> TrainingSettings:
        """Return what a method is trained with: as all, but for what its settings and its base's say."""
        given = self.methods.get(method, MethodSettings())
        base = given.base or method
        if base == method:
            base = PARENTS.get(method, method)
        inherited = self.training if base == method else self.training_of(base)
        own = given.training.model_dump(exclude_none=True) if given.training else {}
        return inherited.model_copy(update=own)

    def compared(self) -> tuple[list[str], list[str]]:
        """Return the methods that the tables compare, and those that they compare them with."""
        asked = self.compare
        return compared(self.run.methods, asked.target or (), asked.baselines or ())

    def runs(self) -> Iterator[tuple[str, str, int]]:
        """Yield (size, method, seed) of every training."""
        for size in self.run.sizes:
            for method in self.run.methods:
                for seed in self.run.seeds:
                    yield size, method, seed

    def full_steps(self) -> range:
        """Return the optimiser steps, before the last, whose weights answer everything."""
        every, last = self.training.evaluate_every, self.training.steps
        return range(every, last, every) if every else range(0)

    def kept_steps(self) -> list[int]:
        """Return the optimiser steps, before the last, after which weights are kept."""
        curve, last = self.evaluation.curve, self.training.steps
        points = range(curve.every, last, curve.every) if curve else ()
        return sorted({*self.full_steps(), *points})

    def checkpoint(self, size: str, method: str, seed: int, step: int) -> str:
        """Return the name of the checkpoint of a training after a step."""
        last = step == self.training.steps
        return f"{size}/{method}/seed{seed}" + ("" if last else f"/step{step}")

    def checkpoints(self) -> Iterator[str]:
        """Yield `size/base`, `size/method/seedK/stepN` and `size/method/seedK`, all that is evaluated."""
        for size in self.run.sizes:
            yield f"{size}/base"
        steps = [*self.kept_steps(), self.training.steps]
        for size, method, seed in self.runs():
            for step in steps:
                yield self.checkpoint(size, method, seed, step)

    def evaluated(self) -> list[str]:
        """Return the benchmarks of the study: what each fully evaluated checkpoint answers."""
        return [*self.run.benchmarks, *self.evaluation.development]

    def is_full(self, checkpoint: str) -> bool:
        """Return whether a checkpoint answers everything, so that tables may show it."""
        step = checkpoint.split("/")[3:]
        return not step or int(step[0].removeprefix("step")) in self.full_steps()

    def answered(self, checkpoint: str, decoding: str) -> list[str]:
        """Return the benchmarks that a checkpoint answers under a decoding of the study."""
        if self.is_full(checkpoint):
            return self.evaluated()
        curve = self.evaluation.curve
        return curve.benchmarks if curve and curve.decoding == decoding else []

    def cells(self, decoding: str) -> Iterator[tuple[str, str]]:
        """Yield checkpoint and benchmark of everything that is evaluated under a decoding."""
        for checkpoint in self.checkpoints():
            for benchmark in self.answered(checkpoint, decoding):
                yield checkpoint, benchmark

    def table_cells(self, decoding: str) -> Iterator[tuple[str, str]]:
        """Return those from which the table of a decoding is computed."""
        return (cell for cell in self.cells(decoding) if self.is_full(cell[0]))

    def unpinned(self) -> list[str]:
        """Return a line for each thing from the Hub that is not pinned to a commit or a checksum."""
        sources: dict[str, Any] = {f"models.{size}": self.models[size] for size in self.run.sizes}
        sources |= {"data": self.data, "evaluation.verifier": self.evaluation.verifier}
        lines = [
            f"{place}.revision: {source.hub} at main is whatever it is on that day; pin the commit"
            for place, source in sources.items()
            if getattr(source, "revision", None) == "main"
        ]
        if isinstance(self.data, HubData) and self.data.sha256 is None:
            remedy = f"write the one of the first run, in results/{self.name}/data/prompts.json"
            lines.append(f"data.sha256: null: other prompts would not be noticed; {remedy}")
        return lines

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
        # Number and checksum only check: to write them into a study trains nothing anew.
        data = self.data.model_dump(exclude={"unique_prompts", "sha256"})
        return {"recipe": RECIPES["data"], "data": data}

    def overlap_config(self) -> dict[str, Any]:
        """Return what determines how many problems are training prompts, the prompts apart."""
        benchmarks = {name: self.benchmark_config(name) for name in self.evaluated()}
        return {"recipe": RECIPES["overlap"], "benchmarks": benchmarks}

    def base_config(self, size: str) -> dict[str, Any]:
        """Return what determines the base model of a size."""
        return {"recipe": RECIPES["base"], "model": self.models[size].model_dump()}

    def verifier_config(self) -> dict[str, Any]:
        """Return what determines the verifier's directory; nothing without a verifier."""
        verifier = self.evaluation.verifier
        if verifier is None:
            return {}
        parts = {"hub", "revision"} | ({"template"} if verifier.template != "own" else set())
        return verifier.model_dump(include=parts)

    def train_config(self, size: str, method: str, seed: int) -> dict[str, Any]:
        """Return what determines the final weights of a run, and nothing else."""
        found = self.method(method)
        without = {"checkpoint_every", "keep_checkpoints", "evaluate_every"}
        if found.reads == "none":
            without.add("statistics")  # They select nothing.
        training = self.training_of(method).model_dump(exclude=without)
        return {
            "recipe": RECIPES["train"],
            "base": self.base_config(size),
            "data": self.data_config(),
            "method": {k: v for k, v in asdict(found).items() if k not in NAMES_OF_METHODS},
            "training": training,
            "end_tokens": sorted(set(self.end_tokens)),
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
            "end_tokens": sorted(set(self.end_tokens)),
            "evaluation": self.evaluation.model_dump(
                exclude={"verifier", "verdict", "select", "development", "curve"}
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
        """Return the fingerprints of every score that the table of a decoding shows."""
        return [self.score_fingerprint(c, decoding, b) for c, b in self.table_cells(decoding)]

    def table_fingerprint(self, decoding: str) -> str:
        """Return the fingerprint of what the table of a decoding shows."""
        shown = self.evaluation.model_dump(include={"select", "development", "verdict"})
        methods = [self.method(name) for name in self.run.methods]
        names = [(method.title, method.source, method.revision) for method in methods]
        return fingerprint([names, shown, self.compared(), self.score_fingerprints(decoding)])

    def asked_fingerprint(self, checkpoint: str, decoding: str, benchmark: str) -> str:
        """Return the fingerprint of what is asked of which weights; equal where only engines differ."""
        generate = self.generate_config(checkpoint, decoding)
        evaluation = {k: v for k, v in generate["evaluation"].items() if k not in ENGINE_SETTINGS}
        asked = {**generate, "evaluation": evaluation}
        return fingerprint([asked, self.benchmark_config(benchmark)])

    def accuracy_fingerprint(self) -> str:
        """Return the fingerprint of what the figure of accuracy shows."""
        shown = self.evaluation.model_dump(include={"verdict", "curve"})
        titles = [self.method(name).title for name in self.run.methods]
        scores = [
            self.score_fingerprint(c, d, b) for d in self.run.decodings for c, b in self.cells(d)
        ]
        return fingerprint([titles, shown, self.run.benchmarks, scores])

    def report_fingerprint(self) -> str:
        """Return the fingerprint of what the report shows of the scores."""
        tables = [self.table_fingerprint(decoding) for decoding in self.run.decodings]
        curves = self.accuracy_fingerprint() if self.kept_steps() else None
        return fingerprint([self.name, tables, curves])

    def score_identity(self, checkpoint: str, decoding: str, benchmark: str) -> dict[str, Any]:
        """Return what a score file says of itself."""
        return {
            "asked": self.asked_fingerprint(checkpoint, decoding, benchmark),
            "verifier": self.verifier_config(),
            "fingerprint": self.score_fingerprint(checkpoint, decoding, benchmark),
            "study": self.name,
            "checkpoint": checkpoint,
            "decoding": decoding,
            "benchmark": benchmark,
            "samples": self.benchmarks[benchmark].samples,
        }
