"""Checks of published weights: format, shapes, and that no checkpoint is a copy of another.

Only safetensors are allowed in a results folder, and only their headers are parsed.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.publication import untrusted
from stapo.publication.folder import Results
from stapo.publication.manifest import WEIGHTS
from stapo.publication.trainings import acts_alike, recorded_steps
from stapo.study import Checkpoint, Study, TrainingRun
from stapo.study.sources import TinyModel

HEADER_BYTES = 2**24
COMPARED_BYTES = 2**28
"""Weights up to this size are compared tensor by tensor; larger ones only by checksums."""
BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}
TRAINED = "F32"
"""Data type in which a training computes and publishes weights."""
TIED = "lm_head.weight"
"""Optional tensor that equals the embeddings if they are tied."""
MAX_TINY_PARAMETERS = 20_000_000
MAX_TOKENS, MAX_WORK = 1024, 5e12
"""Limits for generating responses again, a few minutes: tokens of a response; parameters x all tokens."""


@dataclass(frozen=True)
class Tensor:
    """One entry of a safetensors header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    """Position of its first byte in the file."""
    end: int


def read_header(path: Path) -> dict[str, Tensor]:
    """Return name -> tensor of a safetensors file.

    Raises:
        RefusedError: it is not a safetensors file, or its tensors do not fill it exactly.
    """
    with untrusted.open_regular(path) as stream:
        size = path.stat().st_size
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(HEADER_BYTES, size - 8):
            raise untrusted.RefusedError("not a safetensors file")
        try:
            header = untrusted.parse_json(stream.read(length))
        except ValueError as error:
            raise untrusted.RefusedError("not a safetensors file") from error
    found, place = {}, 8 + length
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensor = Tensor(entry["dtype"], tuple(entry["shape"]), begin, end)
        if begin != place or end - begin != prod(tensor.shape) * BYTES.get(tensor.dtype, -1):
            raise untrusted.RefusedError(f"not a valid safetensors file: wrong offsets of {name}")
        found[name], place = tensor, end
    if place != size:
        raise untrusted.RefusedError("not a valid safetensors file: more data than its tensors")
    return found


def weight_errors(results: Results) -> Iterator[str]:
    """Yield one line for each checkpoint whose weights cannot be those of its training."""
    checkpoints = list(results.study.checkpoints())
    headers: dict[Checkpoint, dict[str, Tensor]] = {}
    for checkpoint in checkpoints:
        try:
            headers[checkpoint] = {}
            for path in weight_files(results, checkpoint):
                headers[checkpoint] |= read_header(path)
            config = results.files.get(f"{_place(results, checkpoint)}/config.json")
            if config and "auto_map" in untrusted.read_json(config):
                yield f"{_place(results, checkpoint)}/config.json: contains code to run (auto_map)"
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            yield f"{_place(results, checkpoint)}: weights: {error}"
    for size in results.study.run.sizes:
        yield from _shape_errors(results, size, headers)
    yield from _copies(results)


def weight_files(results: Results, checkpoint: Checkpoint) -> list[Path]:
    """Return the weight files of a checkpoint; empty if the folder has none."""
    inside = _place(results, checkpoint) + "/"
    return [
        file
        for path, file in results.files.items()
        if path.startswith(inside) and path.endswith(WEIGHTS)
    ]


def named_weights(results: Results, checkpoint: Checkpoint) -> dict[str, str]:
    """Return the checksums of a checkpoint's weights that the trainings recorded."""
    for run, record in results.runs.items():
        if checkpoint.run is None and run.size == checkpoint.size:
            return {p: s for p, s in record["base"].items() if p.endswith(WEIGHTS)}
        if checkpoint.run == run:
            inside = "model/" if checkpoint.step is None else f"step{checkpoint.step}/"
            outputs = record["outputs"].items()
            return {p: s for p, s in outputs if p.startswith(inside) and p.endswith(WEIGHTS)}
    return {}


def _place(results: Results, checkpoint: Checkpoint) -> str:
    base = paths.RESULTS.format(study=results.study.name) + "/"
    return paths.checkpoint_path(results.study.name, checkpoint).removeprefix(base)


def _shape_errors(
    results: Results, size: str, headers: dict[Checkpoint, dict[str, Tensor]]
) -> Iterator[str]:
    own = {c: h for c, h in headers.items() if c.size == size and h}
    base = headers.get(Checkpoint(size), {})
    model = results.study.models[size]
    if isinstance(model, TinyModel):
        expected = tiny_shapes(model)
        if expected is None:
            yield f"models.{size}: larger than any tiny model"
            return
    else:
        expected = {name: tensor.shape for name, tensor in base.items()}
    for checkpoint, header in own.items():
        shapes = {name: tensor.shape for name, tensor in header.items()}
        differing = sorted(
            n
            for n in (shapes.keys() | expected.keys()) - {TIED}
            if shapes.get(n) != expected.get(n)
        )
        if expected and differing:
            yield f"{_place(results, checkpoint)}: tensors differ from the base model's: {differing[0]}"
        trained = checkpoint.run is not None or isinstance(model, TinyModel)
        kinds = {tensor.dtype for tensor in header.values()}
        if trained and kinds != {TRAINED}:
            yield f"{_place(results, checkpoint)}: weights are {', '.join(sorted(kinds))}, not {TRAINED}"


def is_looked_at(results: Results, checkpoint: Checkpoint) -> bool:
    """Return whether the responses of a checkpoint can be generated again."""
    study = results.study
    model = study.models[checkpoint.size]
    if not isinstance(model, TinyModel) or study.evaluation.backend != "hf":
        return False
    shapes = tiny_shapes(model)
    if shapes is None or study.evaluation.max_response_tokens > MAX_TOKENS:
        return False
    tokens = study.evaluation.max_response_tokens * sum(
        results.samples(name) * study.problems(name) for _, _, name in results.cells()
    )
    work = tokens * sum(map(prod, shapes.values()))
    return work <= MAX_WORK and bool(weight_files(results, checkpoint))


@cache
def tiny_shapes(model: TinyModel) -> dict[str, tuple[int, ...]] | None:
    """Return name -> shape of a tiny model's tensors, None if it is too large to be built."""
    width = model.hidden_size * (model.intermediate_size + 128 * model.heads)
    if 3 * model.layers * width > MAX_TINY_PARAMETERS or model.layers > 100:
        return None
    import torch

    from stapo.models.tiny import build_model

    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        built = build_model(model)
    return {name: tuple(tensor.shape) for name, tensor in built.named_parameters()}


def _copies(results: Results) -> Iterator[str]:
    """Yield checkpoints without recorded weights, and pairs that should differ but have the same weights."""
    study, steps = results.study, recorded_steps(results)
    known: dict[Checkpoint, dict[str, str]] = {}
    for checkpoint in study.checkpoints():
        known[checkpoint] = named_weights(results, checkpoint)
        if results.runs and not known[checkpoint]:
            yield f"{_place(results, checkpoint)}: its training recorded no weights"
    tensors = {c: _tensor_digests(weight_files(results, c)) for c in study.checkpoints()}
    for one, other in combinations(study.checkpoints(), 2):
        equal = bool(known[one]) and set(known[one].values()) == set(known[other].values())
        names = tensors[one].keys() & tensors[other].keys()
        shared = sum(tensors[one][name] == tensors[other][name] for name in names)
        if (equal or 2 * shared > len(names)) and not may_be_equal(results, one, other, steps):
            what = "the same weights" if equal else f"{shared} of {len(names)} tensors are the same"
            yield f"{one} and {other}: {what}, although they were trained separately"


def may_be_equal(
    results: Results, one: Checkpoint, other: Checkpoint, steps: dict[TrainingRun, list[Any]]
) -> bool:
    """Return whether two checkpoints may have the same weights, since no update lies between them."""
    if one.size != other.size:
        return False
    runs = [checkpoint.run for checkpoint in (one, other) if checkpoint.run]
    ends = sorted(step_of(results.study, checkpoint) for checkpoint in (one, other))
    if len(runs) == 2 and runs[0] != runs[1]:
        if ends[0] != ends[1]:
            return False
        cut = {run: steps[run][: ends[0]] for run in runs}
        return acts_alike(results.study, runs[0], runs[1], cut)
    return all(step.gradient_norm == 0 for step in steps[runs[0]][ends[0] : ends[1]])


def step_of(study: Study, checkpoint: Checkpoint) -> int:
    """Return the optimiser step of a checkpoint in its training, 0 for the base model."""
    if checkpoint.run is None:
        return 0
    return study.training.steps if checkpoint.step is None else checkpoint.step


def _tensor_digests(files: list[Path]) -> dict[str, str]:
    """Return name -> checksum of every tensor; empty if the files are too large to be read twice."""
    if sum(path.stat().st_size for path in files) > COMPARED_BYTES:
        return {}
    found = {}
    for path in files:
        try:
            header = read_header(path)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue  # Reported by `weight_errors`.
        with untrusted.open_regular(path) as stream:
            for name, tensor in header.items():
                stream.seek(tensor.begin)
                data = stream.read(tensor.end - tensor.begin)
                found[name] = hashlib.sha256(data).hexdigest()
    return found
