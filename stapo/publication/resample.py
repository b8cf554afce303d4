"""Check that the published weights give the published responses with the seeds of their samples.

Each token of a response is the one with the largest sum of score and noise, and the seed determines the
noise. One forward pass over a response therefore shows whether each of its tokens would be drawn: other
weights, another seed (such as the best of several samples) or an edited text are detected. This is done for
models of the tiny world, which are built from the study: only the values of the weights come from the folder.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stapo import paths
from stapo.evaluation.engines import gumbel_noise
from stapo.evaluation.sampling import sample_seed
from stapo.evaluation.scores import engines_of
from stapo.publication import untrusted
from stapo.publication.folder import Results
from stapo.publication.vocabulary import IDS, tiny_ids
from stapo.publication.weights import (
    MAX_TOKENS,
    is_looked_at,
    read_header,
    tiny_shapes,
    weight_files,
)
from stapo.publication.weights import Tensor as Entry
from stapo.records.responses import AnsweredProblem
from stapo.study import Checkpoint
from stapo.study.schema import Decoding
from stapo.study.sources import TinyModel

CLOSE, ANY = 1e-3, 0.0
"""Maximum distance of a drawn score from the largest, and share of the responses that may exceed it. On a
CPU, in single precision, only rounding is allowed."""
CLOSE_ON_GPU, ANY_ON_GPU = 0.5, 0.02
"""The same for bfloat16."""
GPUS = ("NVIDIA", "AMD Instinct", "Tesla", "GeForce")
NUCLEUS = 1e-4
"""Tolerance of top-k and top-p for rounding."""
ROWS, PASS_TOKENS = 128, 16384
"""Maximum number of responses in one pass, and of tokens with padding."""
PAD, END = IDS["<pad>"], IDS["<eos>"]


@dataclass
class Sample:
    """One response to draw again."""

    prompt: list[int]
    response: list[int]
    """Tokens of its text; tokens that are not visible in a text are inserted where they would be drawn."""
    missing: int
    """Number of invisible tokens that are not inserted yet."""
    seed: int


def response_errors(results: Results) -> Iterator[str]:
    """Yield a line for each cell with responses that its checkpoint does not give."""
    study = results.study
    for checkpoint in study.checkpoints():
        model = _load(results, checkpoint)
        if model is None:
            continue
        for decoding in study.run.decodings:
            for benchmark in study.answered(checkpoint, decoding):
                place = paths.COMPLETIONS.format(
                    study=study.name, checkpoint=checkpoint, decoding=decoding, benchmark=benchmark
                )
                problems = results.responses(checkpoint, decoding, benchmark)
                salt, how = study.evaluation.seed, study.decodings[decoding]
                other = distances(model, problems, how, salt, study.end_tokens)
                limit, share = (CLOSE_ON_GPU, ANY_ON_GPU) if on_gpu(problems) else (CLOSE, ANY)
                # Not `distance > limit`, since weights with NaN give distances that are NaN.
                count = sum(not distance <= limit for distance in other)
                if count > share * len(other):
                    yield (
                        f"{place}: {count} of {len(other)} responses are not what these weights "
                        "give with their samples' seeds"
                    )


def on_gpu(problems: Sequence[AnsweredProblem]) -> bool:
    """Return whether the engine of the responses ran on a GPU, according to its label."""
    devices = {engine.partition(" on ")[2] for engine in engines_of(problems)}
    return any(name in device for name in GPUS for device in devices)


def _load(results: Results, checkpoint: Checkpoint) -> Any:
    """Return the model of a checkpoint with its weights, None if it is not checked.

    Raises:
        RefusedError: the weights cannot be read.
    """
    settings = results.study.models[checkpoint.size]
    if not is_looked_at(results, checkpoint) or not isinstance(settings, TinyModel):
        return None
    shapes = tiny_shapes(settings)
    tensors: dict[str, Tensor] = {}
    for path in weight_files(results, checkpoint):
        header = read_header(path)
        if shapes is None or any(
            e.dtype != "F32" or shapes.get(n) != e.shape for n, e in header.items()
        ):
            return None  # The check of weights reports this.
        with untrusted.open_regular(path) as stream:
            tensors |= {name: _tensor(stream, entry) for name, entry in header.items()}
    if tensors.keys() != (shapes or {}).keys():
        return None
    from stapo.models.tiny import build_model

    with torch.random.fork_rng(devices=[]):
        model = build_model(settings)
    model.load_state_dict(tensors, strict=False)
    return model.eval()


def _tensor(stream: Any, entry: Entry) -> Tensor:
    stream.seek(entry.begin)
    data = bytearray(stream.read(entry.end - entry.begin))
    return torch.frombuffer(data, dtype=torch.float32).reshape(entry.shape)


def distances(
    model: Any,
    problems: Sequence[AnsweredProblem],
    decoding: Decoding,
    salt: int,
    end_tokens: Sequence[str] = (),
) -> list[float]:
    """Return the maximum distance of a token's score from the largest score, for each response.

    Args:
        model: model of the checkpoint.
        problems: problems with their responses.
        decoding: sampling settings of the responses.
        salt: seed of the evaluation.
        end_tokens: end tokens of the study.
    """
    ends = sorted({END} | {IDS[token] for token in end_tokens if token in IDS})
    samples = [sample for problem in problems for sample in _samples(problem, salt)]
    order = sorted(range(len(samples)), key=lambda i: len(samples[i].prompt + samples[i].response))
    found = [0.0] * len(samples)
    while order:
        part = _part(samples, order)
        order = order[len(part) :]
        while part:
            again = []
            scored = _scores(model, [samples[i] for i in part], decoding, ends)
            for i, (below, best) in zip(part, scored, strict=True):
                found[i] = float(below.max()) if len(below) else 0.0
                if samples[i].missing and _fill(samples[i], below, best):
                    again.append(i)
                elif samples[i].missing:
                    found[i] = float("inf")
            part = again
    return found


def _part(samples: Sequence[Sample], order: list[int]) -> list[int]:
    """Return the responses of the next forward pass; `order` is from short to long responses."""
    for count in range(1, min(ROWS, len(order)) + 1):
        last = samples[order[count - 1]]
        if count * (len(last.prompt) + len(last.response) + last.missing) > PASS_TOKENS:
            return order[: max(count - 1, 1)]
    return order[:ROWS]


def _samples(problem: AnsweredProblem, salt: int) -> Iterator[Sample]:
    prompt = tiny_ids(problem.question)
    for number, response in enumerate(problem.samples()):
        ids, tokens = tiny_ids(response.text), response.num_tokens
        if prompt is None or ids is None:
            raise untrusted.RefusedError("a text that this model has no tokens for")
        ids += [] if response.truncated else [END]
        seed = sample_seed(salt, problem.question, problem.gold, number)
        if not len(ids) <= tokens <= MAX_TOKENS:
            raise untrusted.RefusedError(f"{tokens} tokens, the text has {len(ids)}")
        yield Sample(prompt, ids, tokens - len(ids), seed)


def _fill(sample: Sample, below: Tensor, best: Tensor) -> bool:
    """Insert an invisible token at the first position where it is drawn; return whether there is one."""
    places = ((below > 0) & (best == PAD)).nonzero().flatten().tolist()
    if sample.missing and not places and sample.response[-1:] != [END]:
        # A truncated response may end with an invisible token.
        places = [len(sample.response)]
    if not places:
        return False
    sample.response.insert(places[0], PAD)
    sample.missing -= 1
    return True


def _scores(
    model: Any, samples: Sequence[Sample], decoding: Decoding, ends: Sequence[int]
) -> list[tuple[Tensor, Tensor]]:
    """Return, for each token of each response, the distance from the largest score and the token with it."""
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
        noise = _noise(sample.seed, scores.shape)
        kept, sure = _nucleus(scores, decoding)
        noisy = scores + noise
        best = noisy.masked_fill(~sure, -torch.inf).max(dim=1)
        noisy = noisy.masked_fill(~kept, -torch.inf)
        own = noisy.gather(1, drawn).squeeze(1)
        if sample.response[-1:] == [END]:
            own[-1] = noisy[-1, ends].max()  # The text does not contain which end token was drawn.
        found.append(((best.values - own).clamp(min=0.0), best.indices))
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
