"""A study: its methods, its trainings, its checkpoints, and its cells."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, product
from typing import Any, NamedTuple, Self

from pydantic import Field, PrivateAttr

from stapo.core.files import canonical
from stapo.core.methods import BASELINES, METHODS, PARENTS, PARTS, TARGETS, Method
from stapo.core.methods.parts import Args
from stapo.suite.answers import is_built_in, judged_by_task
from stapo.suite.study.fields import EndTokens, Name, Strict
from stapo.suite.study.files import Row, pinned_rows
from stapo.suite.study.functions import named
from stapo.suite.study.method_settings import AllMethods, MethodSettings, origin_of, resolve
from stapo.suite.study.schema import (
    OF_HUB,
    BenchmarkSettings,
    Compare,
    Decoding,
    EngineSettings,
    Evaluation,
    Interventions,
    Run,
    TrainingSettings,
)
from stapo.suite.study.sources import Data, DomainData, HubData, Model
from stapo.suite.tasks import asking, benchmark_definitions, custom_definition, problems_of

MOST = 200
"""Maximum number of methods, of models, of benchmarks and of decodings that a study defines."""
BASE_TITLE = "Base"
"""Title of the base model in tables."""
NAME = re.compile(r"([^/]+)/(?:base|([^/]+)/seed([0-9]+)(?:/step([0-9]+))?)")
"""Of a checkpoint."""


class TrainingRun(NamedTuple):
    """One training of a study."""

    model: str
    method: str
    seed: int

    def __str__(self) -> str:
        """Return `model/method/seedK`."""
        return f"{self.model}/{self.method}/seed{self.seed}"


@dataclass(frozen=True)
class Checkpoint:
    """Weights that are evaluated: a base model, or those of a training after its last or an earlier step.

    What a training writes to be able to resume is a step checkpoint.
    """

    model: str
    method: str | None = None
    """None for the base model."""
    seed: int | None = None
    step: int | None = None
    """The optimiser step after which a training kept them, None for its last step."""

    @classmethod
    def parse(cls, name: str) -> Self:
        """Return the checkpoint of a name: `model/base`, `model/method/seedK` or `model/method/seedK/stepN`.

        Raises:
            ValueError: it is the name of none.
        """
        if match := NAME.fullmatch(name):
            model, method, seed, step = match.groups()
            numbers = (int(digits) if digits else None for digits in (seed, step))
            checkpoint = cls(model, method, *numbers)
            if str(checkpoint) == name:  # No leading zeros.
                return checkpoint
        raise ValueError(f"no name of a checkpoint: {name!r}")

    @property
    def run(self) -> TrainingRun | None:
        """The training that made it, None for the base model."""
        if self.method is None or self.seed is None:
            return None
        return TrainingRun(self.model, self.method, self.seed)

    def __str__(self) -> str:
        """Return the name, which is also its part of the paths of responses and scores."""
        step = "" if self.step is None else f"/step{self.step}"
        return f"{self.run}{step}" if self.run else f"{self.model}/base"


class Study(Strict):
    """A whole study."""

    name: Name = Field(description="Name of the study and of its folder in results/")
    models: dict[Name, Model] = Field(max_length=MOST, description="Base models, by name")
    data: Data = Field(description="Training prompts")
    end_tokens: EndTokens = Field(["<|im_end|>"])
    training: TrainingSettings = Field(description="Settings of all trainings")
    engine: EngineSettings = Field(
        EngineSettings(), description="Settings of the machines, in no fingerprint"
    )
    all_methods: AllMethods = Field(
        AllMethods(), description="Deviations from methods that all of them share"
    )
    methods: dict[Name, MethodSettings] = Field(
        default_factory=dict,
        max_length=MOST,
        description="Deviations from methods, and variants of them",
    )
    decodings: dict[Name, Decoding] = Field(
        max_length=MOST, description="How responses are sampled, by name"
    )
    benchmarks: dict[Name, BenchmarkSettings] = Field(
        max_length=MOST, description="Benchmarks of `benchmarks/`, or of a file of the study's own"
    )
    evaluation: Evaluation = Field(description="How checkpoints are evaluated")
    run: Run = Field(description="What is run, of all that the study defines")
    compare: Compare | None = Field(
        Compare(),
        description="What the tables compare; null: nothing; default: STAPO with its baselines",
    )
    interventions: Interventions = Field(
        Interventions(),
        exclude_if=lambda given: given == Interventions(),
        description="Checkpoints at which updates with and without silencing are compared",
    )
    _resolved: dict[str, Method] = PrivateAttr(default_factory=dict)

    def method(self, name: str) -> Method:
        """Return the method of that name as this study has it; it is resolved once."""
        if name not in self._resolved:
            self._resolved[name] = self._resolve(name)
        return self._resolved[name]

    def _resolve(self, name: str) -> Method:
        settings, shared = self.training_of(name).model_dump(), self.training.model_dump()
        trained = {key: value for key, value in settings.items() if value != shared[key]}
        shared_by_all = self.all_methods.model_dump(exclude_none=True)
        return resolve(name, self._method_settings(), shared_by_all, trained)

    def s2t(self) -> Args:
        """Return the arguments with which S2T would silence tokens in trainings with other methods.

        They change what is counted and recorded, and no weights. They are those of `stapo` in this study; of
        `stapo-v2` if that is run and `stapo` is not.
        """
        is_v2 = "stapo-v2" in self.run.methods and "stapo" not in self.run.methods
        name = "stapo-v2" if is_v2 else "stapo"
        line = self.lineage(name)
        # In a cycle, which is a fault of the study, there is nothing to resolve.
        return self._resolve(name).arguments_of("selection") if len({*line}) == len(line) else {}

    def title(self, name: str) -> str:
        """Return the title of a table's row: of a method, or of the base model."""
        return BASE_TITLE if name == "base" else self.method(name).title

    def origin_of(self, method: str) -> str:
        """Return the method of `stapo.core.methods` from which a method or variant descends."""
        return origin_of(method, self._method_settings())

    def lineage(self, method: str) -> list[str]:
        """Return a method, its base, the base of its base, ...; in a cycle, the last one occurs twice."""
        line = [method]
        while line[-1] not in line[:-1]:
            given = self.methods.get(line[-1])
            base = given.base if given and given.base != line[-1] else None
            base = base or PARENTS.get(line[-1])
            if base is None:
                break
            line.append(base)
        return line

    def _method_settings(self) -> dict[str, dict[str, Any]]:
        return {
            name: settings.model_dump(exclude_none=True, exclude={"training"})
            for name, settings in self.methods.items()
        }

    def training_of(self, method: str) -> TrainingSettings:
        """Return what a method is trained with: as all, but for what its settings and its base's say."""
        settings, line = self.training, reversed(self.lineage(method))
        for given in (self.methods[name].training for name in line if name in self.methods):
            changes = given.model_dump(exclude_none=True) if given else {}
            settings = settings.model_copy(update=changes)
        return settings

    def engine_of(self, model: str) -> EngineSettings:
        """Return the engine with which a model is trained: as all, but for what its own settings say."""
        settings = self.engine.models.get(model)
        given = settings.model_dump(exclude_none=True) if settings else {}
        return self.engine.model_copy(update={**given, "models": {}})

    def compared(self) -> tuple[list[str], list[str]]:
        """Return the methods that the tables compare, and those that they compare them with."""
        if self.compare is None:
            return [], []
        run = self.run.methods
        targets, baselines = self.compare.target or [], self.compare.baselines or []
        # Where the study names none, they are those of the paper that are run and not the other.
        paper = [name for name in TARGETS if name in run and name not in baselines]
        others = [name for name in BASELINES if name in run and name not in targets]
        return targets or paper, baselines or others

    def runs(self) -> Iterator[TrainingRun]:
        """Yield every training."""
        for names in product(self.run.models, self.run.methods, self.run.seeds):
            yield TrainingRun(*names)

    def full_steps(self) -> range:
        """Return the optimiser steps, before the last, whose weights answer everything."""
        every, last = self.training.evaluate_every, self.training.steps
        return range(every, last, every) if every else range(0)

    def kept_steps(self) -> list[int]:
        """Return the optimiser steps, before the last, after which weights are kept."""
        curve, last = self.evaluation.curve, self.training.steps
        points = range(curve.every, last, curve.every) if curve and curve.every else ()
        return sorted({*self.full_steps(), *points})

    def checkpoint(self, model: str, method: str, seed: int, step: int) -> Checkpoint:
        """Return the checkpoint of a training after a step."""
        return Checkpoint(model, method, seed, None if step == self.training.steps else step)

    def checkpoints(self) -> Iterator[Checkpoint]:
        """Yield all that is evaluated: base models, then each training, its last weights at the end."""
        for model in self.run.models:
            yield Checkpoint(model)
        for run in self.runs():
            for step in (*self.kept_steps(), None):
                yield Checkpoint(*run, step)

    def intervened(self) -> list[Checkpoint]:
        """Return the checkpoints at which interventions are made."""
        return [Checkpoint.parse(name) for name in self.interventions.checkpoints]

    def is_full(self, checkpoint: Checkpoint) -> bool:
        """Return whether a checkpoint answers everything, so that tables may show it."""
        return checkpoint.step is None or checkpoint.step in self.full_steps()

    def answered(self, checkpoint: Checkpoint, decoding: str) -> list[str]:
        """Return the benchmarks that a checkpoint answers under a decoding of the study."""
        if self.is_full(checkpoint):
            return self.run.benchmarks
        curve = self.evaluation.curve
        return curve.benchmarks if curve and curve.decoding == decoding else []

    def cells(self, decoding: str) -> Iterator[tuple[Checkpoint, str]]:
        """Yield checkpoint and benchmark of everything that is evaluated under a decoding."""
        for checkpoint in self.checkpoints():
            for benchmark in self.answered(checkpoint, decoding):
                yield checkpoint, benchmark

    def table_cells(self, decoding: str) -> Iterator[tuple[Checkpoint, str]]:
        """Return those from which the table of a decoding is computed."""
        return (cell for cell in self.cells(decoding) if self.is_full(cell[0]))

    def task(self, benchmark: str) -> dict[str, Any]:
        """Return the lm-eval task of a benchmark: that of `benchmarks/`, or one of the study's own."""
        given = self.benchmarks[benchmark]
        if not given.is_own:
            definition = benchmark_definitions()[benchmark]
        else:
            definition = custom_definition(benchmark, given.rows or 0, given.sha256 or "")
            if given.reasoning_gym:
                tasks = {"sha256": None, "reasoning_gym": given.reasoning_gym}
                definition["metadata"] |= tasks | {"library": DomainData.library}
            elif given.hub:
                definition["metadata"] |= given.model_dump(include={"hub", *OF_HUB})
                definition["metadata"] |= {"sha256": given.sha256, "names": [benchmark]}
            definition = asking(definition, self.training.instruction)
        if given.instruction is not None:
            definition = asking(definition, given.instruction)
        metadata = {key: value for key, value in definition["metadata"].items() if key != "answer"}
        if (answer := self.answer(benchmark)) != "boxed":
            metadata["answer"] = named(answer) if isinstance(answer, str) else answer
        if given.answer_sha256:
            metadata["answer_sha256"] = given.answer_sha256
        if not given.is_own and given.rows is not None and given.rows != metadata["rows"]:
            metadata["first"] = given.rows
        return {**definition, "metadata": metadata}

    def answer(self, benchmark: str) -> str | dict[str, str]:
        """Return how the answers to a benchmark are read, a setting of `stapo.suite.answers`.

        To a benchmark of the study's own, as the training's reward reads them, if that is built in.
        """
        given = self.benchmarks[benchmark]
        if given.answer is not None:
            return given.answer
        if given.is_own:
            is_domain, reward = given.reasoning_gym is not None, self.training.reward
            if is_built_in(reward) and judged_by_task(reward) == is_domain:
                return reward
            return "reasoning_gym" if is_domain else "boxed"
        reader: str | dict[str, str] = benchmark_definitions()[benchmark]["metadata"].get("answer")
        return reader or "boxed"

    def problems(self, benchmark: str) -> int:
        """Return the number of problems of a benchmark."""
        return problems_of(self.task(benchmark))

    def responses(self, benchmark: str) -> int:
        """Return the number of responses that a checkpoint gives to a benchmark."""
        return self.problems(benchmark) * self.benchmarks[benchmark].samples

    def is_whole(self, benchmark: str) -> bool:
        """Return whether all rows of a benchmark are asked, and not only the first."""
        return "first" not in self.task(benchmark)["metadata"]

    def rows_of_file(self, benchmark: str) -> list[Row] | None:
        """Return the rows of a benchmark that is a file, None for others."""
        settings = self.benchmarks[benchmark]
        return pinned_rows(settings.file, settings.sha256) if settings.file else None

    def unpinned(self) -> list[str]:
        """Return a line for each thing from the Hub that is not pinned to a commit or a checksum."""
        sources: dict[str, Any] = {
            f"models.{model}": self.models[model] for model in self.run.models
        }
        sources |= {"data": self.data, "evaluation.verifier": self.evaluation.verifier}
        lines = [
            f"{place}.revision: {source.hub} at main is not reproducible; pin the commit"
            for place, source in sources.items()
            if getattr(source, "revision", None) == "main"
        ]
        if isinstance(self.data, HubData) and self.data.sha256 is None:
            remedy = f"write the one of the first run, in results/{self.name}/data/prompts.json"
            lines.append(f"data.sha256: null: other prompts would not be noticed; {remedy}")
        for name in self.run.benchmarks:
            metadata = self.task(name)["metadata"]
            if "hub" in metadata and metadata["sha256"] is None:
                remedy = "write the one that `stapo fetch` prints"
                place = (
                    f"benchmarks.{name}" if self.benchmarks[name].is_own else f"task file of {name}"
                )
                lines.append(f"{place}: no sha256: other problems would not be noticed; {remedy}")
        return lines

    def gpus_of(self, rule: str) -> int:
        """Return how many GPUs a job of `train`, `intervene`, `generate` or `score` asks for by default."""
        if rule in ("train", "intervene"):
            return int(self.training.use_vllm)
        if rule == "score":
            return int(self.evaluation.verifier is not None)
        return self.engine.vllm_tensor_parallel if self.evaluation.backend == "vllm" else 0


@dataclass(frozen=True)
class Family:
    """Methods with the same settings except for one argument of their token selection."""

    argument: str
    """Name of the argument in `stapo.core.methods`, such as `quantile`."""
    selection: str
    """Name of their token selection."""
    members: dict[float, str]
    """Value of the argument, ascending -> method."""
    title: str
    """Title of the method of `stapo.core.methods` from which they descend: the kind of mask."""


def families(study: Study) -> list[Family]:
    """Return all families of at least two methods of a study, by argument and then by the methods' order."""
    result = []
    names = {"title", "source", "revision", "args", "selection_args"}
    declared = (part.arguments.items() for part in PARTS["selection"].values())
    arguments = dict(chain.from_iterable(declared))
    for argument in (name for name, definition in arguments.items() if not definition.choices):
        groups: dict[str, dict[float, str]] = {}
        for name in study.run.methods:
            method = study.method(name)
            taken = method.arguments_of("selection")
            if isinstance(taken.get(argument), int | float):
                others = {key: value for key, value in vars(method).items() if key not in names}
                others["effective"] = {**method.effective, argument: None}
                key = canonical([others, study.training_of(name).model_dump()])
                # Of methods with equal settings, the first one.
                groups.setdefault(key, {}).setdefault(float(taken[argument]), name)
        for members in groups.values():
            first = next(iter(members.values()))
            method, origin = study.method(first), METHODS[study.origin_of(first)]
            title = named(method.selection_name) if method.is_own else origin.title
            if len(members) > 1:
                ordered = dict(sorted(members.items()))
                result.append(Family(argument, method.selection_name, ordered, title))
    return result
