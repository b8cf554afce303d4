"""Responses of one checkpoint under one decoding, kept in a store that only grows.

lm-eval gives the tasks: rows, prompts, gold answers. The sampling is ours, since lm-eval keeps one
completion per request, passes no seeds and, under data parallelism, gives every replica the same requests.
Each response is one line of the store of its benchmark, written as it comes: a killed or extended
evaluation generates what is missing or damaged and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.tasks import TaskManager
from tqdm import tqdm

from stapo.canonical import fingerprint
from stapo.evaluation.engines import engine, label
from stapo.evaluation.responses import Key, store, stored
from stapo.evaluation.sampling import Prompter, Request, chunks, sample_seed
from stapo.files import DamagedFileError, write_jsonl
from stapo.locks import work_directory
from stapo.provenance import require_whole, sums_of
from stapo.repository import BENCHMARKS
from stapo.study.schema import Decoding, EngineSettings, Evaluation
from stapo.tasks import TASK_PREFIX


@dataclass(frozen=True)
class Benchmark:
    """A benchmark to answer and where its responses go."""

    name: str
    config: dict[str, Any]
    """As `Study.benchmark_config`: the task and the number of samples."""
    output: Path


@dataclass(frozen=True)
class Asked:
    """A benchmark with its rows and the requests that its samples need."""

    benchmark: Benchmark
    rows: list[dict[str, str]]
    """Question, as shown to the model, and gold answer."""
    requests: list[Request]
    store: Path


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
    """Write the responses to every benchmark; return how many had to be generated.

    Args:
        model: directory of the checkpoint.
        config: all that determines the responses, the benchmark apart.
        decoding: how to sample.
        evaluation: backend, batch size, lengths, seed.
        benchmarks: what to answer.
        work: directory of the stores.
        settings: how the engine runs; nothing in it determines a response.
        end_tokens: of the study; the tokenizer's own always ends a response.

    Raises:
        BusyError: another process generates into `work`.
        DamagedFileError: the checkpoint is not what was published.
    """
    require_whole(model)
    with work_directory(work, {"kind": "responses"}):
        prompter = Prompter(model, end_tokens)
        tasks = TaskManager(include_path=str(BENCHMARKS), include_defaults=False)
        of = [config, sums_of(model), prompter.identity()]
        asked = [_ask(prompter, tasks, of, evaluation, b, work) for b in benchmarks]
        missing = [(one, _missing(one)) for one in asked]
        total = sum(len(requests) for _, requests in missing)
        if total:
            sampling, by = prompter.sampling(decoding, evaluation), label(evaluation.backend)
            with (
                engine(evaluation.backend, model, sampling, settings or EngineSettings()) as answer,
                tqdm(total=total, unit="response", desc="generating", mininterval=2) as bar,
            ):
                for one, requests in missing:
                    bar.set_postfix_str(one.benchmark.name)
                    wanted = set(requests)
                    for part, responses in answer(_parts(one, wanted, evaluation)):
                        new = [
                            pair for pair in zip(part, responses, strict=True) if pair[0] in wanted
                        ]
                        for request, response in new:
                            store(one.store, request, response, by)
                        bar.update(len(new))
        for one in asked:
            if lost := len(_missing(one)):
                raise DamagedFileError(
                    f"{one.store}: lost {lost} responses; run the same command again"
                )
            write_jsonl(one.benchmark.output, _collect(one))
    return total


def _ask(
    prompter: Prompter,
    tasks: TaskManager,
    of: list[Any],
    evaluation: Evaluation,
    benchmark: Benchmark,
    work: Path,
) -> Asked:
    """Return what a benchmark asks; `of` is the configuration, the weights, template and end tokens."""
    name = TASK_PREFIX + benchmark.name
    task = tasks.load([name])["tasks"][name]
    rows = [
        {"question": str(task.doc_to_text(doc)), "gold": str(task.doc_to_target(doc))}
        for doc in task.test_docs()
    ]
    prompts = [prompter.prompt_ids(row["question"]) for row in rows]
    # By sample first, so that more samples add batches and change few.
    requests = [
        Request(
            problem,
            sample,
            sample_seed(evaluation.seed, row["question"], row["gold"], sample),
            prompts[problem],
        )
        for sample in range(benchmark.config["samples"])
        for problem, row in enumerate(rows)
    ]
    # Without the number of samples: more of them go into the same store. With the weights themselves: made
    # again from the same configuration, they are others wherever bits cannot be repeated.
    store = f"{benchmark.name}-{fingerprint([of, benchmark.config['task']])}.jsonl"
    return Asked(benchmark, rows, requests, work / store)


def _parts(asked: Asked, wanted: set[Request], evaluation: Evaluation) -> list[list[Request]]:
    """Return the batches to answer.

    Rounding depends on what else is in a batch of Transformers. One of which anything is missing is therefore
    answered as a whole, and gives on the same machine what it gave, or would have given, before a kill.
    vLLM makes batches of its own: it is asked for what is missing and nothing else.
    """
    if evaluation.backend == "vllm":
        missing = [request for request in asked.requests if request in wanted]
        return chunks(missing, evaluation.batch_size)
    whole = chunks(asked.requests, evaluation.batch_size)
    return [part for part in whole if not wanted.isdisjoint(part)]


def _missing(asked: Asked) -> list[Request]:
    have = _have(asked)
    return [r for r in asked.requests if (r.problem, r.sample) not in have]


def _have(asked: Asked) -> dict[Key, dict[str, Any]]:
    return stored(asked.store, lambda line: print(line, flush=True))  # noqa: T201


def _collect(asked: Asked) -> list[dict[str, Any]]:
    """Return one record per problem, its samples in order."""
    have = _have(asked)
    samples = range(asked.benchmark.config["samples"])
    collected = []
    for problem, row in enumerate(asked.rows):
        own = [have[problem, sample] for sample in samples]
        collected.append(
            {
                "problem": problem,
                **row,
                "responses": [record["text"] for record in own],
                "num_tokens": [record["num_tokens"] for record in own],
                "truncated": [record["truncated"] for record in own],
                "engines": sorted({record["engine"] for record in own}),
            }
        )
    return collected
