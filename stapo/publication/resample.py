"""Check that the published weights give the published responses with the seeds of their samples.

Each token of a response is the one with the largest sum of score and noise, and the seed determines the
noise. One forward pass over a response therefore shows whether each of its tokens would be drawn: other
weights, another seed (such as the best of several samples) or an edited text are detected. This is done for
models of the tiny world, which are built from the study: only the values of the weights come from the folder.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

from stapo.evaluation.engines import Sampling, SeededSampling, gumbel_noise, sample_seed
from stapo.evaluation.scores import engines_of
from stapo.models.arithmetic import VOCABULARY
from stapo.models.shapes import shape_of
from stapo.publication.folder import WEIGHTS, RefusedError, Results, place_of
from stapo.records.responses import AnsweredProblem
from stapo.study import Checkpoint
from stapo.study.schema import Decoding
from stapo.study.sources import TinyModel

CLOSE = 1e-3
"""Maximum distance of a drawn score from the largest: rounding on a CPU, in single precision."""
GPUS = ("NVIDIA", "AMD Instinct", "Tesla", "GeForce")
"""In the label of an engine; on a GPU, rounding in bfloat16 decides between close scores."""
NUCLEUS = 1e-4
"""Tolerance of top-p for rounding."""
ROWS = 64
"""Number of responses in one pass."""
SHOWN_SHARE = 0.8
"""Minimum share of responses whose texts show all their tokens; only these can be drawn again."""
MAX_WORK = 5e12
"""Limit for drawing responses again, a few minutes: parameters x tokens of all responses."""
IDS = {token: number for number, token in enumerate(VOCABULARY)}
TOKEN = re.compile("|".join(map(re.escape, sorted(VOCABULARY, key=len, reverse=True))))
PAD, END = IDS["<pad>"], IDS["<eos>"]


class Sample(NamedTuple):
    """One response to draw again, with the seed of its sample."""

    prompt: list[int]
    response: list[int]
    seed: int


def response_errors(results: Results) -> Iterator[str]:
    """Yield a line for each cell with responses that its checkpoint does not give."""
    study = results.study
    for checkpoint in study.checkpoints():
        if not is_drawn_again(results, checkpoint):
            continue
        model = _load(results, checkpoint)
        for decoding, how in ((name, study.decodings[name]) for name in study.run.decodings):
            for benchmark in study.answered(checkpoint, decoding):
                problems = results.responses(checkpoint, decoding, benchmark)
                if any(name in engine for name in GPUS for engine in engines_of(problems)):
                    continue
                found = distances(model, problems, how, study.evaluation.seed)
                # Not `distance > CLOSE`, since weights with NaN give distances that are NaN.
                count = sum(not distance <= CLOSE for distance in found)
                all_of_them = sum(len(problem.responses) for problem in problems)
                if count or len(found) < SHOWN_SHARE * all_of_them:
                    yield (
                        f"completions/{checkpoint}/{decoding}/{benchmark}.jsonl: "
                        f"{count + all_of_them - len(found)} of {all_of_them} responses are not what these "
                        "weights give with their samples' seeds"
                    )


def is_drawn_again(results: Results, checkpoint: Checkpoint) -> bool:
    """Return whether the responses of a checkpoint can be drawn again."""
    study, model = results.study, results.study.models[checkpoint.size]
    if not isinstance(model, TinyModel) or study.evaluation.backend != "hf":
        return False
    if {*study.end_tokens} & IDS.keys():
        return False  # The texts do not contain which end token was drawn.
    responses = sum(
        study.benchmarks[name].samples * study.problems(name)
        for decoding in study.run.decodings
        for _, name in study.cells(decoding)
    )
    work = shape_of(model).parameters * study.evaluation.max_response_tokens * responses
    inside = f"{place_of(study, checkpoint)}/"
    return work <= MAX_WORK and any(
        path.startswith(inside) and path.endswith(WEIGHTS) for path in results.files
    )


def _load(results: Results, checkpoint: Checkpoint) -> Any:
    """Return the model of a checkpoint with its weights; an error of torch if they are of another."""
    from stapo.models.tiny import build_model

    settings = results.study.models[checkpoint.size]
    assert isinstance(settings, TinyModel)
    with torch.random.fork_rng(devices=[]):
        model = build_model(settings)
    tensors: dict[str, Tensor] = {}
    for path in (results.folder / place_of(results.study, checkpoint)).glob(f"*{WEIGHTS}"):
        tensors |= load_file(path)
    # With tied embeddings, the weights of the last layer may be left out.
    model.load_state_dict(tensors, strict=False)
    if missing := dict(model.named_parameters()).keys() - tensors.keys():
        raise RefusedError(f"{checkpoint}: weights: no {min(missing)}")
    return model.eval()


def _ids(text: str) -> list[int]:
    """Return the token ids of a text of the tiny models.

    Raises:
        RefusedError: they cannot produce it.
    """
    found = TOKEN.findall(text)
    if "".join(found) != text:
        raise RefusedError("a text that this model has no tokens for")
    return [IDS[token] for token in found]


def distances(
    model: Any, problems: Sequence[AnsweredProblem], decoding: Decoding, salt: int
) -> list[float]:
    """Return the maximum distance of a token's score from the largest score, for each response.

    Responses with tokens that their texts do not show, such as padding, are left out. `salt` is the seed of
    the evaluation.
    """
    samples = [sample for problem in problems for sample in _samples(problem, salt)]
    samples.sort(key=lambda sample: len(sample.prompt + sample.response))
    return [
        _distance(scores, sample, decoding)
        for start in range(0, len(samples), ROWS)
        for scores, sample in _passed(model, samples[start : start + ROWS])
    ]


def _samples(problem: AnsweredProblem, salt: int) -> Iterator[Sample]:
    prompt = _ids(problem.question)
    for number, response in enumerate(problem.samples()):
        ids = _ids(response.text) + ([] if response.truncated else [END])
        if len(ids) == response.num_tokens:
            seed = sample_seed(salt, problem.question, problem.gold, number)
            yield Sample(prompt, ids, seed)


def _passed(model: Any, samples: Sequence[Sample]) -> Iterator[tuple[Tensor, Sample]]:
    """Yield the logits (T, V) of the T response tokens of each sample, by one forward pass."""
    width = max(len(sample.prompt + sample.response) for sample in samples)
    ids = torch.full((len(samples), width), PAD)
    mask = torch.zeros_like(ids)
    for row, sample in enumerate(samples):
        text = torch.tensor(sample.prompt + sample.response)
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=mask).logits.float()
    for row, sample in enumerate(samples):
        first = len(sample.prompt) - 1
        yield logits[row, first : first + len(sample.response)], sample


def _distance(logits: Tensor, sample: Sample, decoding: Decoding) -> float:
    """Return the largest distance of a token's score from the largest score of its position."""
    wide, narrow = (_sampled(logits, sample, decoding, by) for by in (NUCLEUS, -NUCLEUS))
    own = wide.gather(1, torch.tensor(sample.response, dtype=torch.long).unsqueeze(1)).squeeze(1)
    return float((narrow.max(dim=1).values - own).clamp(min=0.0).max())


def _sampled(logits: Tensor, sample: Sample, decoding: Decoding, more: float) -> Tensor:
    """Return the scores of the engine, with its noise, where top-p is larger by `more`."""
    top_p = min(decoding.top_p + more, 1.0) if decoding.top_p < 1 else 1.0
    sampling = Sampling(decoding.temperature, top_p, decoding.top_k, 0, ())
    scores = SeededSampling([], sampling).warpers(None, logits)
    drawn = torch.rand(scores.shape, generator=torch.Generator().manual_seed(sample.seed))
    noisy: Tensor = scores + gumbel_noise(drawn)
    return noisy
