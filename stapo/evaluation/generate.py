"""Responses of one checkpoint under one decoding: lm-eval with the model loaded once.

Each benchmark is one part file, keyed by everything that determines it: an interrupted or extended
evaluation generates only what is missing. The random state is set anew for each benchmark, so that
its responses depend neither on the other benchmarks nor on what was already there.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lm_eval.evaluator import evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import set_seed

from stapo.artifacts import replace_file, write_jsonl
from stapo.schema import Decoding, Evaluation
from stapo.study import BENCHMARKS, TASK_PREFIX, fingerprint


@dataclass(frozen=True)
class Benchmark:
    """A benchmark to answer and where its responses go."""

    name: str
    config: dict[str, Any]
    """As `Study.benchmark_config`: the task and the number of samples."""
    output: Path


def generate(
    model: Path,
    config: dict[str, Any],
    decoding: Decoding,
    evaluation: Evaluation,
    benchmarks: list[Benchmark],
    work: Path,
) -> list[str]:
    """Write the responses to every benchmark; return the names of those that had to be generated.

    Args:
        model: directory of the checkpoint.
        config: all that determines the responses, the benchmark apart.
        decoding: how to sample.
        evaluation: backend, batch size, lengths, seed.
        benchmarks: what to answer.
        work: directory of the parts.
    """
    work.mkdir(parents=True, exist_ok=True)
    parts = {b.name: work / f"{b.name}-{fingerprint([config, b.config])}.jsonl" for b in benchmarks}
    missing = [b for b in benchmarks if not parts[b.name].exists()]
    if missing:
        language_model = HFLM(
            pretrained=str(model),
            device="cuda" if torch.cuda.is_available() else "cpu",
            dtype="bfloat16" if torch.cuda.is_available() else "float32",
            batch_size=evaluation.batch_size,
            trust_remote_code=False,
        )
        tasks = TaskManager(include_path=str(BENCHMARKS), include_defaults=False)
        for i, benchmark in enumerate(missing, start=1):
            print(f"[{i}/{len(missing)}] generating {benchmark.name}", flush=True)  # noqa: T201
            records = _answer(language_model, tasks, decoding, evaluation, benchmark)
            write_jsonl(parts[benchmark.name], records)
    for benchmark in benchmarks:
        with replace_file(benchmark.output) as stream:
            stream.write(parts[benchmark.name].read_text())
    return [benchmark.name for benchmark in missing]


def _answer(
    language_model: Any,
    tasks: TaskManager,
    decoding: Decoding,
    evaluation: Evaluation,
    benchmark: Benchmark,
) -> list[dict[str, Any]]:
    samples, name = benchmark.config["samples"], TASK_PREFIX + benchmark.name
    loaded = tasks.load([name])
    task = loaded["tasks"][name]
    task.set_config(key="repeats", value=samples)
    task.set_config(key="num_fewshot", value=0)
    # Every sampling field explicitly: nothing is inherited from a generation_config.
    sampling = {**decoding.model_dump(), "max_gen_toks": evaluation.max_response_tokens}
    task.set_config(key="generation_kwargs", value={"do_sample": True, **sampling}, update=True)
    # What `lm_eval --seed` does; its `simple_evaluate` would also run `pip list` for every benchmark.
    set_seed(evaluation.seed)
    results = evaluate(
        lm=language_model, task_dict=loaded, apply_chat_template=True, bootstrap_iters=0
    )
    (logged,) = results["samples"].values()
    records = [_record(language_model, sample, evaluation) for sample in logged]
    if any(len(record["responses"]) != samples for record in records):
        raise RuntimeError(
            f"{benchmark.name}: lm-eval returned another number of responses than {samples}"
        )
    return sorted(records, key=lambda record: int(record["problem"]))


def _record(language_model: Any, sample: dict[str, Any], evaluation: Evaluation) -> dict[str, Any]:
    (responses,) = sample["resps"]
    lengths = [
        len(language_model.tok_encode(response, add_special_tokens=False)) for response in responses
    ]
    return {
        "problem": sample["doc_id"],
        "question": sample["doc"]["question"],
        "gold": sample["target"],
        "responses": responses,
        "num_tokens": lengths,
        # lm-eval returns text without the end token: a response of full length was cut off.
        "truncated": [length >= evaluation.max_response_tokens for length in lengths],
    }
