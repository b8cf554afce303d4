"""Supervised training on worked solutions: tiny models from scratch, and a warm-up of pretrained ones."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from stapo.suite.bars import bar, only_ours
from stapo.suite.models.loading import load_model, load_tokenizer
from stapo.suite.study import StudyError
from stapo.suite.study.files import SOLUTION_COLUMNS, read_rows, sha256_of
from stapo.suite.study.sources import Supervised

IGNORED = -100
MICRO_BATCH_TOKENS = 1024
"""Padded tokens of one pass: at 50,000 words, their logits and the gradients take 0.4 GB."""
Row = tuple[list[int], list[int]]
"""Ids of a question and of its solution."""
Batch = tuple[Tensor, Tensor]
"""Input ids and labels, both (B, T) int64; questions and padding have no label."""


def collate(rows: Sequence[Row], pad: int) -> Batch:
    """Return the batch of some rows, padded at the right."""
    ids = [torch.tensor(question + solution) for question, solution in rows]
    labels = [torch.tensor([IGNORED] * len(question) + solution) for question, solution in rows]
    padded = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    return padded(ids, padding_value=pad), padded(labels, padding_value=IGNORED)


def fit(
    model: Any, updates: Iterator[Sequence[Batch]], steps: int, learning_rate: float, title: str
) -> None:
    """Train a model in place, with AdamW and a learning rate that falls linearly to 5 %.

    An update has the mean gradient over the tokens with a label of all its batches.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=steps)
    model.train()
    for batches in bar(title, steps, "step", over=islice(updates, steps)):
        counts = [int((labels != IGNORED).sum()) for _, labels in batches]
        for (ids, labels), count in zip(batches, counts, strict=True):
            loss = model(input_ids=ids, labels=labels).loss
            (loss * (count / sum(counts))).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()


def warm_up(path: Path, settings: Supervised) -> None:
    """Train the model in a directory on worked solutions, and replace its weights, in float32."""
    only_ours()
    if sha256_of(Path(settings.file)) != settings.sha256:
        message = "its rows changed since the study was read; run snakemake again"
        raise StudyError([f"{settings.file}: {message}"])
    torch.manual_seed(settings.seed)  # Of dropout.
    tokenizer, model = load_tokenizer(path), load_model(path, torch.float32)
    rows = _rows(settings, tokenizer)
    pad = tokenizer.eos_token_id  # Nothing attends to it: it is at the right.
    updates = ([collate(part, pad) for part in _parts(batch)] for batch in _batches(rows, settings))
    fit(model, updates, settings.steps, settings.learning_rate, "SFT warm-up")
    for old in path.glob("*.safetensors*"):
        old.unlink()
    model.save_pretrained(path)


def _rows(settings: Supervised, tokenizer: Any) -> list[Row]:
    """Return questions in the model's chat template and solutions with its end token, cut to the limit."""
    end, rows = tokenizer.eos_token_id, []
    if end is None:
        message = "the tokenizer has no end token (eos_token in tokenizer_config.json); add it"
        raise StudyError([f"{settings.file}: {message}"])
    for row in read_rows(Path(settings.file), columns=SOLUTION_COLUMNS):
        chat = [{"role": "user", "content": row["question"]}]
        asked = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        solution = [*tokenizer.encode(row["solution"], add_special_tokens=False), end]
        if room := max(settings.max_tokens - len(asked), 0):
            rows.append((asked, solution[:room]))
    if not rows:
        message = f"no question is shorter than {settings.max_tokens} tokens; increase max_tokens"
        raise StudyError([f"{settings.file}: {message}"])
    return rows


def _batches(rows: list[Row], settings: Supervised) -> Iterator[list[Row]]:
    """Yield batches without end: epoch after epoch, each in its own random order."""

    def ordered() -> Iterator[Row]:
        rng = Random(f"solutions {settings.seed}")
        while True:
            yield from rng.sample(rows, len(rows))

    endless = ordered()
    while True:
        yield [*islice(endless, settings.batch)]


def _parts(rows: list[Row]) -> list[list[Row]]:
    """Return a batch in parts of `MICRO_BATCH_TOKENS` padded tokens at most, the shortest rows first."""
    parts: list[list[Row]] = [[]]
    for row in sorted(rows, key=_length):
        # The last row is the longest.
        if parts[-1] and (len(parts[-1]) + 1) * _length(row) > MICRO_BATCH_TOKENS:
            parts.append([])
        parts[-1].append(row)
    return parts


def _length(row: Row) -> int:
    return len(row[0]) + len(row[1])
