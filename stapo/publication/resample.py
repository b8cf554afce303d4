"""Whether responses are those that the published weights give with the seeds of their samples.

A response is drawn by the largest of its scores plus noise, and the noise follows from the seed. One pass
over a written response therefore tells whether each of its tokens is the one that would be drawn: other
weights, another seed (the best of several samples) or an edited text show at once. Done for models of the
tiny world, which are built here from the study: nothing of the folder but the numbers of its weights is used.
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
from stapo.study.schema import Decoding, TinyModel

CLOSE, ANY = 1e-3, 0.0
"""How far below the largest a drawn score may lie, and for what share of the responses it may lie lower:
rounding alone on a CPU, where the model computes in single precision."""
CLOSE_ON_GPU, ANY_ON_GPU = 0.5, 0.02
"""In bfloat16."""
GPUS = ("NVIDIA", "AMD Instinct", "Tesla", "GeForce")
NUCLEUS = 1e-4
"""Around top-p: what rounding may move across it."""
ROWS, PASS_TOKENS = 128, 16384
"""Responses of one pass, and tokens with the padding."""
PAD, END = IDS["<pad>"], IDS["<eos>"]


@dataclass
class Sample:
    """One response to draw again."""

    prompt: list[int]
    response: list[int]
    """As its text gives it; tokens that a text does not show are put in where they would be drawn."""
    missing: int
    """So many of these."""
    seed: int


def response_errors(results: Results) -> Iterator[str]:
    """Yield a line for each cell with responses that its checkpoint did not give."""
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
                # Weights that are no numbers give distances that are none.
                count = sum(not distance <= limit for distance in other)
                if count > share * len(other):
                    yield (
                        f"{place}: {count} of {len(other)} responses are not what these weights "
                        "give with their samples' seeds"
                    )


def on_gpu(problems: Sequence[AnsweredProblem]) -> bool:
    """Return whether the responses say that a GPU gave them."""
    devices = {engine.partition(" on ")[2] for engine in engines_of(problems)}
    return any(name in device for name in GPUS for device in devices)


def _load(results: Results, checkpoint: Checkpoint) -> Any:
    """Return the model of a checkpoint with its weights, None where it is not looked at.

    Raises:
        RefusedError: weights of other shapes.
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
            return None  # Said where the weights are looked at.
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
    """Return for each response how far below the largest score its farthest token lies.

    Args:
        model: of the checkpoint.
        problems: with their responses.
        decoding: by which they were drawn.
        salt: the evaluation's seed.
        end_tokens: of the study.
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
    """Return the next responses, shortest first, that go through the model together."""
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
    """Put a token that no text shows where it would be drawn first; return whether there is such a place."""
    places = ((below > 0) & (best == PAD)).nonzero().flatten().tolist()
    if sample.missing and not places and sample.response[-1:] != [END]:
        # Cut off: it may have ended in one.
        places = [len(sample.response)]
    if not places:
        return False
    sample.response.insert(places[0], PAD)
    sample.missing -= 1
    return True


def _scores(
    model: Any, samples: Sequence[Sample], decoding: Decoding, ends: Sequence[int]
) -> list[tuple[Tensor, Tensor]]:
    """Return for every token of each response how far it lies below the largest score, and whose that is."""
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
            own[-1] = noisy[-1, ends].max()  # The text does not say which of them ended it.
        found.append(((best.values - own).clamp(min=0.0), best.indices))
    return found


def _noise(seed: int, shape: torch.Size) -> Tensor:
    """Return the noise of `SeededSampling`, position by position the same numbers."""
    return gumbel_noise(torch.rand(shape, generator=torch.Generator().manual_seed(seed)))


def _nucleus(scores: Tensor, decoding: Decoding) -> tuple[Tensor, Tensor]:
    """Return which tokens may be drawn, and which may be beyond doubt, (T, V) bool each.

    What lies so close to the border of top-k or top-p that rounding decides is only in the first.
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
    # The likeliest token always may.
    return kept, sure | (scores == scores.max(dim=1, keepdim=True).values)
