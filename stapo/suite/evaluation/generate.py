"""Generation of the responses of one checkpoint under one decoding, with an append-only store.

The sampling is ours, since lm-eval keeps one completion per request, passes no seeds and, under data
parallelism, gives every replica the same requests.
Each response is written immediately as one line of the store of its benchmark, so that a killed or extended
evaluation generates only responses that are missing or damaged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stapo.core.checksums import require_whole, sums_of
from stapo.core.files import DamagedFileError, fingerprint
from stapo.suite.bars import bar, only_ours
from stapo.suite.evaluation.engines import Prompter, Request, label, load_engine, sample_seed
from stapo.suite.evaluation.task import asked_of, benchmark_rows
from stapo.suite.locks import work_directory
from stapo.suite.records.responses import (
    AnsweredProblem,
    Key,
    StoredResponse,
    store,
    stored,
    write_responses,
)
from stapo.suite.study.files import Row
from stapo.suite.study.schema import Decoding, EngineSettings, Evaluation

COLUMNS = ("text", "num_tokens", "truncated")
"""Of stored responses, in the order of `AnsweredProblem`."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark to answer, and the output path of its responses."""

    name: str
    config: dict[str, Any]
    """Result of `benchmark_settings` of `stapo.suite.jobs.prepare`: the task and the number of samples."""
    output: Path
    rows: Sequence[Row] | None = None
    """Its problems, if the task is not in `benchmarks/`."""


@dataclass(frozen=True)
class _Asked:
    """A benchmark with its rows (question as the model reads it, and gold), requests and store."""

    benchmark: Benchmark
    rows: list[tuple[str, str]]
    requests: list[Request]
    """In the order of samples, so that more samples add batches and change few of them."""
    store: Path

    def have(self) -> dict[Key, StoredResponse]:
        return stored(self.store, lambda line: print(line, flush=True))  # noqa: T201

    def missing(self) -> set[Request]:
        have = self.have()
        return {r for r in self.requests if (r.problem, r.sample) not in have}

    def publish(self, made_by: str) -> None:
        """Write every problem with its samples in order, and the fingerprint of what determines them."""
        have, answered = self.have(), []
        samples = range(self.benchmark.config["samples"])
        for problem, row in enumerate(self.rows):
            responses = [have[problem, sample] for sample in samples]
            texts, tokens, cut = ([getattr(r, name) for r in responses] for name in COLUMNS)
            engines = sorted({response.engine for response in responses})
            answered.append(AnsweredProblem(problem, *row, texts, tokens, cut, engines, made_by))
        write_responses(self.benchmark.output, answered)


def generate(
    model: Path,
    config: dict[str, Any],
    decoding: Decoding,
    evaluation: Evaluation,
    benchmarks: list[Benchmark],
    work: Path,
    settings: EngineSettings | None = None,
    end_tokens: Sequence[str] = (),
) -> int:
    """Write the responses to every benchmark, which `config` determines; return how many were generated."""
    only_ours()
    require_whole(model)
    with work_directory(work, {"kind": "responses"}):
        prompter = Prompter(model, end_tokens)
        # The weights too: retraining with the same configuration may not reproduce them bit for bit.
        determined_by = [config, sums_of(model), prompter.identity()]
        asked = [_asked(b, prompter, evaluation.seed, determined_by, work) for b in benchmarks]
        missing = {entry.benchmark.name: entry.missing() for entry in asked}
        stores = {entry.benchmark.name: entry.store for entry in asked}
        if total := sum(map(len, missing.values())):
            sampling, backend = prompter.sampling(decoding, evaluation), evaluation.backend
            answer = load_engine(backend, model, sampling, settings or EngineSettings())
            by = label(backend)
            with bar("generating", total, "response") as shown:
                for part in _parts(asked, missing, evaluation):
                    for request, response in answer(part):
                        if request in missing[request.benchmark]:
                            at = request.problem, request.sample, request.seed
                            record = StoredResponse(*at, by, **vars(response))
                            store(stores[request.benchmark], record)
                            shown.set_postfix_str(request.benchmark, refresh=False)
                            shown.update()
        for entry in asked:
            if lost := len(entry.missing()):
                message = f"{entry.store}: lost {lost} responses"
                raise DamagedFileError(f"{message}; run the same command again")
            entry.publish(fingerprint(config))
    return total


def _asked(
    benchmark: Benchmark, prompter: Prompter, seed: int, determined_by: list[Any], work: Path
) -> _Asked:
    task = benchmark.config["task"]
    records = benchmark.rows or benchmark_rows(task["metadata"])
    rows = asked_of(task, records)
    prompts = [prompter.prompt_ids(question) for question, _ in rows]
    requests = [
        Request(problem, sample, sample_seed(seed, *row, sample), prompts[problem], benchmark.name)
        for sample in range(benchmark.config["samples"])
        for problem, row in enumerate(rows)
    ]
    # The name does not depend on the number of samples, so that more samples use the same store, nor on how
    # answers are read.
    metadata = {k: v for k, v in task["metadata"].items() if k not in ("answer", "answer_sha256")}
    determined_by = [determined_by, {**task, "metadata": metadata}]
    path = work / f"{benchmark.name}-{fingerprint(determined_by)}.jsonl"
    return _Asked(benchmark, rows, requests, path)


def _parts(
    asked: Sequence[_Asked], missing: Mapping[str, set[Request]], evaluation: Evaluation
) -> Iterator[list[Request]]:
    """Yield the lists of requests that are answered together.

    With Transformers, rounding depends on the rest of the batch. A batch with any missing response is
    therefore generated completely, so that the same machine gives the same responses as without a kill.
    vLLM forms its own batches: between two lists it would wait for the longest response.
    """
    if evaluation.backend == "vllm":
        yield [r for entry in asked for r in entry.requests if r in missing[r.benchmark]]
        return
    size = evaluation.batch_size
    for entry in asked:
        for start in range(0, len(entry.requests), size):
            part = entry.requests[start : start + size]
            if not missing[entry.benchmark.name].isdisjoint(part):
                yield part
