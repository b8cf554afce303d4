"""Check that the published weights give the published responses with the seeds of their samples.

Each token of a response is the one with the largest sum of score and noise, and the seed determines the
noise. One forward pass over a response therefore shows whether each of its tokens would be drawn: other
weights, another seed (such as the best of several samples) or an edited text are detected. This is done for
models of the tiny world, which are built from the study: only the values of the weights come from the folder.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from stapo.evaluation.engines import gumbel_noise
from stapo.evaluation.sampling import sample_seed
from stapo.evaluation.scores import engines_of
from stapo.models.arithmetic import VOCABULARY
from stapo.publication import untrusted
from stapo.publication.folder import Results
from stapo.publication.manifest import WEIGHTS, place_of
from stapo.records.responses import AnsweredProblem
from stapo.stages import jobs_of
from stapo.study import Checkpoint
from stapo.study.schema import Decoding
from stapo.study.sources import TinyModel

CLOSE = 1e-3
"""Maximum distance of a drawn score from the largest: rounding on a CPU, in single precision."""
GPUS = ("NVIDIA", "AMD Instinct", "Tesla", "GeForce")
NUCLEUS = 1e-4
"""Tolerance of top-k and top-p for rounding."""
ROWS = 64
"""Number of responses in one pass."""
SHOWN_SHARE = 0.8
"""Minimum share of responses whose texts show all their tokens; only these can be drawn again."""
MAX_WORK = 5e12
"""Limit for drawing responses again, a few minutes: parameters x tokens of all responses."""
IDS = {token: number for number, token in enumerate(VOCABULARY)}
TOKEN = re.compile(
    "|".join(re.escape(token) for token in sorted(VOCABULARY, key=len, reverse=True))
)
PAD, END = IDS["<pad>"], IDS["<eos>"]


@dataclass(frozen=True)
class Sample:
    """One response to draw again, with the seed of its sample."""

    prompt: list[int]
    response: list[int]
    seed: int


def response_errors(results: Results) -> Iterator[str]:
    """Yield a line for each cell with responses that its checkpoint does not give."""
    study = results.study
    for checkpoint in study.checkpoints():
        model = _load(results, checkpoint)
        for decoding in study.run.decodings if model else ():
            for benchmark in study.answered(checkpoint, decoding):
                problems = results.responses(checkpoint, decoding, benchmark)
                if on_gpu(problems):
                    continue  # There, rounding in bfloat16 decides between close scores.
                salt, how = study.evaluation.seed, study.decodings[decoding]
                found = distances(model, problems, how, salt, study.end_tokens)
                # Not `distance > CLOSE`, since weights with NaN give distances that are NaN.
                count = sum(not distance <= CLOSE for distance in found)
                all_of_them = sum(len(problem.responses) for problem in problems)
                if count or len(found) < SHOWN_SHARE * all_of_them:
                    count += all_of_them - len(found)
                    yield (
                        f"completions/{checkpoint}/{decoding}/{benchmark}.jsonl: {count} of {all_of_them} "
                        "responses are not what these weights give with their samples' seeds"
                    )


def on_gpu(problems: Sequence[AnsweredProblem]) -> bool:
    """Return whether the engine of the responses ran on a GPU, according to its label."""
    return any(name in engine for name in GPUS for engine in engines_of(problems))


def is_drawn_again(results: Results, checkpoint: Checkpoint) -> bool:
    """Return whether the responses of a checkpoint can be drawn again."""
    study = results.study
    model = study.models[checkpoint.size]
    if not isinstance(model, TinyModel) or study.evaluation.backend != "hf":
        return False
    cells = [results.cell(job)[2] for job in jobs_of(study).all("score")]
    responses = sum(results.samples(name) * study.problems(name) for name in cells)
    work = _parameters(model) * study.evaluation.max_response_tokens * responses
    return work <= MAX_WORK and bool(_weight_files(results, checkpoint))


@cache
def _parameters(model: TinyModel) -> int:
    """Return an upper bound of the number of parameters."""
    inner = model.intermediate_size + 128 * model.heads
    return model.hidden_size * (3 * model.layers * inner + len(VOCABULARY))


def _weight_files(results: Results, checkpoint: Checkpoint) -> list[Path]:
    inside = place_of(results.study, checkpoint) + "/"
    own = (path for path in results.files if path.startswith(inside) and path.endswith(WEIGHTS))
    return [results.files[path] for path in own]


def _load(results: Results, checkpoint: Checkpoint) -> Any:
    """Return the model of a checkpoint with its weights, None if its responses are not drawn again.

    Raises:
        RefusedError: the weights are not those of such a model.
    """
    settings = results.study.models[checkpoint.size]
    if not is_drawn_again(results, checkpoint) or not isinstance(settings, TinyModel):
        return None
    from stapo.models.tiny import build_model

    with torch.random.fork_rng(devices=[]):
        model = build_model(settings)
    tensors: dict[str, Tensor] = {}
    try:
        for path in _weight_files(results, checkpoint):
            if path.stat().st_size > 8 * _parameters(settings) + 2**20:
                raise untrusted.RefusedError("larger than the study's model")
            tensors |= load_file(path)
        # With tied embeddings, the weights of the last layer may be left out.
        model.load_state_dict(tensors, strict=False)
        missing = dict(model.named_parameters()).keys() - tensors.keys()
    except (SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0][:200]
        raise untrusted.RefusedError(f"{checkpoint}: weights: {reason}") from error
    if missing:
        raise untrusted.RefusedError(f"{checkpoint}: weights: no {min(missing)}")
    return model.eval()


def tiny_ids(text: str) -> list[int] | None:
    """Return the token ids of a text of the tiny models, None if they cannot produce it."""
    found = TOKEN.findall(text)
    return [IDS[token] for token in found] if "".join(found) == text else None


def distances(
    model: Any,
    problems: Sequence[AnsweredProblem],
    decoding: Decoding,
    salt: int,
    end_tokens: Sequence[str] = (),
) -> list[float]:
    """Return the maximum distance of a token's score from the largest score, for each response.

    Responses with tokens that their texts do not show, such as padding, are left out.

    Args:
        model: model of the checkpoint.
        problems: problems with their responses.
        decoding: sampling settings of the responses.
        salt: seed of the evaluation.
        end_tokens: end tokens of the study.
    """
    ends = sorted({END} | {IDS[token] for token in end_tokens if token in IDS})
    samples = [sample for problem in problems for sample in _samples(problem, salt)]
    samples.sort(key=lambda sample: len(sample.prompt + sample.response))
    return [
        distance
        for start in range(0, len(samples), ROWS)
        for distance in _distances(model, samples[start : start + ROWS], decoding, ends)
    ]


def _samples(problem: AnsweredProblem, salt: int) -> Iterator[Sample]:
    prompt = tiny_ids(problem.question)
    for number, response in enumerate(problem.samples()):
        ids = tiny_ids(response.text)
        if prompt is None or ids is None:
            raise untrusted.RefusedError("a text that this model has no tokens for")
        ids += [] if response.truncated else [END]
        if len(ids) == response.num_tokens:
            seed = sample_seed(salt, problem.question, problem.gold, number)
            yield Sample(prompt, ids, seed)


def _distances(
    model: Any, samples: Sequence[Sample], decoding: Decoding, ends: Sequence[int]
) -> list[float]:
    """Return, for each response, the largest distance of a token's score from the largest score."""
    width = max(len(sample.prompt) + len(sample.response) for sample in samples)
    ids = torch.full((len(samples), width), PAD)
    mask = torch.zeros_like(ids)
    for row, sample in enumerate(samples):
        text = torch.tensor(sample.prompt + sample.response)
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=mask).logits.float()
    found = []
    for row, sample in enumerate(samples):
        first, length = len(sample.prompt) - 1, len(sample.response)
        scores = logits[row, first : first + length] / decoding.temperature
        drawn = torch.tensor(sample.response, dtype=torch.long).unsqueeze(1)
        kept, sure = _nucleus(scores, decoding)
        noisy = scores + _noise(sample.seed, scores.shape)
        best = noisy.masked_fill(~sure, -torch.inf).max(dim=1).values
        noisy = noisy.masked_fill(~kept, -torch.inf)
        own = noisy.gather(1, drawn).squeeze(1)
        if sample.response[-1:] == [END]:
            own[-1] = noisy[-1, ends].max()  # The text does not contain which end token was drawn.
        found.append(float((best - own).clamp(min=0.0).max()))
    return found


def _noise(seed: int, shape: torch.Size) -> Tensor:
    """Return the noise of `SeededSampling`, with the same values at every position."""
    return gumbel_noise(torch.rand(shape, generator=torch.Generator().manual_seed(seed)))


def _nucleus(scores: Tensor, decoding: Decoding) -> tuple[Tensor, Tensor]:
    """Return two (T, V) bool masks of tokens that top-k and top-p allow: possibly, and certainly.

    Tokens so close to the border of top-k or top-p that rounding decides are only in the first.
    """
    kept = torch.ones_like(scores, dtype=torch.bool)
    sure = kept.clone()
    if decoding.top_k:
        limit = scores.topk(min(decoding.top_k, scores.shape[1])).values[:, -1:]
        kept, sure = scores >= limit - NUCLEUS, scores >= limit + NUCLEUS
        scores = scores.masked_fill(scores < limit, -torch.inf)
    if decoding.top_p < 1:
        ordered, order = scores.sort(descending=True)
        shares = ordered.softmax(dim=1)
        before = shares.cumsum(dim=1) - shares
        back = order.argsort(dim=1)
        kept &= (before <= decoding.top_p + NUCLEUS).gather(1, back)
        sure &= (before < decoding.top_p - NUCLEUS).gather(1, back)
    # The most probable token is always allowed.
    return kept, sure | (scores == scores.max(dim=1, keepdim=True).values)
