"""The two inference backends: Transformers, for CPUs and tests, and vLLM.

An engine is a function from requests to pairs of request and response, in the order in which they are
finished, so that a kill loses only what is being generated. Each request has its own seed, so that a
response does not depend on the rest of the batch (except for rounding). The seed is a hash of the benchmark
row and the index of the sample: it does not depend on the method, on other problems or on the number of
samples, so a larger N adds responses and changes none.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from stapo.core.decoding import decode, has_full_attention
from stapo.core.files import fingerprint
from stapo.core.sampling import Sampler
from stapo.suite.models.loading import end_token_ids, load_model, load_tokenizer
from stapo.suite.provenance import processor
from stapo.suite.records.responses import Response
from stapo.suite.study import StudyError
from stapo.suite.study.schema import Decoding, EngineSettings, Evaluation


@dataclass(frozen=True)
class Request:
    """Request for one response."""

    problem: int
    """Index of the benchmark row."""
    sample: int
    seed: int
    prompt_ids: tuple[int, ...]
    benchmark: str = ""
    """Name of the benchmark, where several are answered together."""


@dataclass(frozen=True)
class Sampling:
    """All sampling parameters of a backend; none is read from a model's generation_config."""

    temperature: float
    """Temperature; 0 means greedy decoding."""
    top_p: float
    top_k: int
    """Number of likeliest tokens to sample from; 0 means all."""
    max_response_tokens: int
    eos_token_ids: tuple[int, ...]


def sample_seed(salt: int, question: str, gold: str, sample: int) -> int:
    """Return the 63-bit seed of a sample of a benchmark row; `salt` is the seed of the study's evaluation."""
    return int(fingerprint([salt, question, gold, sample]), 16) >> 1


class Prompter:
    """Converts questions to token ids with a checkpoint's own chat template."""

    def __init__(self, model: Path | str, end_tokens: Sequence[str]) -> None:
        self.tokenizer: Any = load_tokenizer(model)
        self.eos_token_ids = end_token_ids(self.tokenizer, end_tokens)

    def identity(self) -> dict[str, Any]:
        """Return everything except the question that determines a prompt and the end of a response."""
        template = fingerprint(self.tokenizer.chat_template)
        return {"chat_template": template, "eos_token_ids": list(self.eos_token_ids)}

    def prompt_ids(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a chat with one user turn."""
        chat = [{"role": "user", "content": text}]
        ids = self.tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_dict=False
        )
        return tuple(ids)

    def sampling(self, decoding: Decoding, evaluation: Evaluation) -> Sampling:
        """Return the sampling parameters for a decoding."""
        limit = evaluation.max_response_tokens
        return Sampling(
            decoding.temperature, decoding.top_p, decoding.top_k, limit, self.eos_token_ids
        )


Engine = Callable[[Sequence[Request]], Iterable[tuple[Request, Response]]]
"""From requests that are answered together to their responses, in any order."""


class SeededSampling(LogitsProcessor):  # type: ignore[misc]
    """Leaves the token that each row's own seed draws, for Transformers' own loop."""

    def __init__(self, seeds: Sequence[int], sampler: Sampler) -> None:
        self.generators, self.sampler = [Random(seed) for seed in seeds], sampler

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores (B, V) that are 0 for the drawn tokens and -inf for others."""
        rows = torch.arange(len(scores), device=scores.device)
        drawn = self.sampler.draw(scores, rows, self.generators).unsqueeze(1)
        return torch.full_like(scores, -torch.inf).scatter_(1, drawn, 0.0)


def load_engine(backend: str, model: Path, sampling: Sampling, settings: EngineSettings) -> Engine:
    """Return an engine of a backend, which is `hf` or `vllm`, with the model loaded."""
    if backend == "vllm":
        return _vllm_engine(str(model), sampling, settings)
    return hf_engine(str(model), sampling)


def hf_engine(model: str, sampling: Sampling) -> Engine:
    """Return a function that answers a batch with Transformers, with the model loaded."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    loaded = load_model(model, dtype).to(device).eval()
    tokenizer = load_tokenizer(model)
    sampler = Sampler(sampling.temperature, sampling.top_k, sampling.top_p)
    ours = has_full_attention(loaded)
    settings = GenerationConfig(
        # Transformers' own loop draws nothing after SeededSampling.
        **(vars(sampler) if ours and sampling.temperature else {}),
        do_sample=ours and sampling.temperature > 0,
        max_new_tokens=sampling.max_response_tokens,
        eos_token_id=list(sampling.eos_token_ids),
        pad_token_id=sampling.eos_token_ids[0],
    )
    # Otherwise the checkpoint's own generation_config would set the remaining fields.
    loaded.generation_config = settings

    def answer(requests: Sequence[Request]) -> Iterator[tuple[Request, Response]]:
        prompts = [torch.tensor(request.prompt_ids) for request in requests]
        ids, attended = (
            pad_sequence(rows, batch_first=True, padding_value=fill, padding_side="left")
            for rows, fill in (
                (prompts, sampling.eos_token_ids[0]),
                ([torch.ones_like(prompt) for prompt in prompts], 0),
            )
        )
        seeds = [request.seed for request in requests]
        draw = [] if ours else [SeededSampling(seeds, sampler)]
        with torch.inference_mode():
            output = loaded.generate(
                input_ids=ids.to(device),
                attention_mask=attended.to(device),
                generation_config=settings,
                logits_processor=LogitsProcessorList(draw),
                custom_generate=partial(decode, seeds=seeds) if ours else None,
            )
        for request, row in zip(requests, output[:, ids.shape[1] :].tolist(), strict=True):
            yield request, _cut(tokenizer, row, sampling)

    return answer


def _cut(tokenizer: Any, tokens: list[int], sampling: Sampling) -> Response:
    """Return the response before its end token, which is counted in its number of tokens."""
    end = next((i for i, token in enumerate(tokens) if token in sampling.eos_token_ids), None)
    text = tokenizer.decode(tokens[:end], skip_special_tokens=True)
    return Response(text, len(tokens) if end is None else end + 1, end is None)


def _vllm_engine(model: str, sampling: Sampling, settings: EngineSettings) -> Engine:
    cpu = not torch.cuda.is_available()
    if torch.are_deterministic_algorithms_enabled():
        if cpu:
            cause = "vLLM's batch-invariant mode needs a GPU"
            raise StudyError([f"run.algorithms: {cause}; set evaluation.backend: hf"])
        # Read while vLLM is imported. Which responses share a batch depends on times, and on kills.
        os.environ["VLLM_BATCH_INVARIANT"] = "1"
    try:
        from vllm import LLM, SamplingParams
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise
        cause = "vLLM is not installed"
        remedy = "run `make setup-gpu`, or set evaluation.backend: hf"
        raise StudyError([f"evaluation.backend: {cause}; {remedy}"]) from error

    engine = LLM(
        model=model,
        tensor_parallel_size=settings.vllm_tensor_parallel,
        gpu_memory_utilization=settings.vllm_evaluation_memory,
        dtype="float32" if cpu else "bfloat16",
        enforce_eager=cpu,
        enable_prefix_caching=True,
        generation_config="vllm",  # Not the checkpoint's.
        trust_remote_code=False,
        load_format="safetensors",
        disable_log_stats=True,
    )
    tokenizer = load_tokenizer(model)

    def answer(requests: Sequence[Request]) -> Iterator[tuple[Request, Response]]:
        parameters = [
            SamplingParams(
                n=1,
                seed=request.seed,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k or -1,
                max_tokens=sampling.max_response_tokens,
                stop_token_ids=list(sampling.eos_token_ids),
                ignore_eos=True,  # Only the end tokens above count, not the checkpoint's.
                detokenize=False,
            )
            for request in requests
        ]
        prompts = [{"prompt_token_ids": list(request.prompt_ids)} for request in requests]
        # As `LLM.generate` does, which however returns only when the last response is finished.
        numbers = engine.enqueue(prompts, parameters, use_tqdm=False)
        # vLLM adds random characters to a number, which it leaves out in the output.
        waiting = dict(zip((n.split("-")[0] for n in numbers), requests, strict=True))
        while engine.llm_engine.has_unfinished_requests():
            for output in engine.llm_engine.step():
                if output.finished:
                    tokens = list(output.outputs[0].token_ids)
                    yield waiting.pop(output.request_id), _cut(tokenizer, tokens, sampling)

    return answer


def label(backend: str) -> str:
    """Return the label that is stored with every response: engine, version, device."""
    package = {"hf": "transformers", "vllm": "vllm"}[backend]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else processor()
    return f"{package} {metadata.version(package)} on {device}"
