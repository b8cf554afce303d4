"""What `stapo check` reads of the models on this machine: as a training does, but not large weights.

Torch is imported only where there is such a model.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stapo.suite import paths
from stapo.suite.bars import only_ours
from stapo.suite.jobs import jobs_of
from stapo.suite.jobs.prepare import recorded_base
from stapo.suite.models.worlds import WORLDS
from stapo.suite.study import Study, StudyError
from stapo.suite.study.files import model_faults
from stapo.suite.study.loader import shown_path
from stapo.suite.study.sources import (
    FileData,
    FolderModel,
    GgufModel,
    HubData,
    HubModel,
    TinyModel,
    WheelModel,
)
from stapo.suite.text import plain, visible

QUESTION = "What is 12 + 7?"
FEW_BYTES = 2 * 10**9
"""Weights whose values are read, in seconds; `stapo run base` reads those of any size."""


class Line(NamedTuple):
    """What is said of a model."""

    text: str
    is_error: bool = True


note = partial(Line, is_error=False)


def model_lines(study: Study) -> list[str]:
    """Return lines about the models of a study; a `StudyError` has what cannot be trained or evaluated."""
    report: list[Line] = []
    for model in study.run.models:
        source = study.models[model]
        if isinstance(source, TinyModel):
            report += _unwritable(study, model, source)
            continue
        folder, name = _folder(study, model), _name(source)
        if folder is None:
            absent = "not checked, since there is no folder of it yet; the run makes it"
            report.append(note(f"models.{model}: {name}: {absent}"))
            continue
        for text, is_error in _read(study, folder):
            text = text.removeprefix(f"{folder}: ").removeprefix(f"{shown_path(folder)}: ")
            report.append(Line(f"models.{model}: {name}: {text}", is_error))
    if errors := [line.text for line in report if line.is_error]:
        raise StudyError(errors)
    return [line.text for line in report]


def _unwritable(study: Study, model: str, source: TinyModel) -> Iterator[Line]:
    """Yield a line for each file with a question that the tokenizer of a tiny model cannot write."""
    from stapo.suite.training.prompts import local_rows

    words = sorted(WORLDS[source.builder].vocabulary, key=len, reverse=True)
    text = re.compile(f"(?:{'|'.join(map(re.escape, words))})*")
    rows = {f"benchmarks.{name}": study.rows_of_file(name) or [] for name in study.run.benchmarks}
    if isinstance(study.data, FileData):
        rows["data"] = local_rows(study.data)
    for place, questions in rows.items():
        for row in questions:
            if not text.fullmatch(row["question"]):
                cause = f"the tokenizer of {model} has no word of {visible(row['question'])[:40]!r}"
                yield Line(f"{place}.file: {cause}, only its own arithmetic; choose another model")
                break


def _name(model: HubModel | FolderModel | GgufModel | WheelModel) -> str:
    if isinstance(model, HubModel | WheelModel):
        return model.hub if isinstance(model, HubModel) else model.wheel
    return shown_path(Path(model.path if isinstance(model, FolderModel) else model.gguf))


def _folder(study: Study, model: str) -> Path | None:
    """Return the folder of a model: its own, the base model if it is built, or that of the Hub's cache."""
    source, job = study.models[model], jobs_of(study).job("base", model)
    if isinstance(source, FolderModel):
        return Path(source.path)
    built = Path(paths.BASE_MODEL.format(study=study.name, model=model))
    if built.is_dir() and recorded_base(job, Path()) == job.fingerprint:
        return built
    if isinstance(source, HubModel):
        from huggingface_hub import try_to_load_from_cache

        config = try_to_load_from_cache(source.hub, "config.json", revision=source.revision)
        if isinstance(config, str) and any(Path(config).parent.glob("*.safetensors")):
            return Path(config).parent
    return None


def _read(study: Study, folder: Path) -> Iterator[Line]:
    """Yield what a training would meet in a folder; the first errors make others unreadable."""
    from stapo.suite.models import loading

    if faults := model_faults(folder):
        yield from map(Line, faults)
        return
    only_ours()
    errors: list[str] = []

    def tried(load: Callable[[Path], Any]) -> Any:
        try:
            return load(folder)
        except StudyError as error:
            errors.extend(error.errors)
            return None

    with loading.quiet():
        config, tokenizer = tried(loading.load_config), tried(loading.load_tokenizer)
        if config is not None:
            tried(loading.read_without_weights)
        if sum(file.stat().st_size for file in folder.glob("*.safetensors")) < FEW_BYTES:
            tried(loading.check_values)
        yield from map(Line, dict.fromkeys(errors))  # A tokenizer reads config.json too.
        if config is not None:
            yield from _positions(study, config)
        if tokenizer is not None:
            yield from _tokens(study, tokenizer, getattr(config, "vocab_size", None))
            try:
                yield from _prompts(study, tokenizer)
            except StudyError as error:
                yield from map(Line, error.errors)
    if aside := loading.set_aside(folder):
        given = ", ".join(f"{key} {value}" for key, value in sorted(aside.items()))
        yield note(f"its {loading.GENERATION} has no effect on responses ({plain(given)})")


def _positions(study: Study, config: Any) -> Iterator[Line]:
    """Yield the limits of tokens that are above the positions of a model."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None:  # It has none.
        return
    rope = getattr(config, "rope_parameters", None) or {}
    if original := rope.get("original_max_position_embeddings"):
        positions = max(positions, int(original * rope.get("factor", 1)))
    limits = {"evaluation.max_response_tokens": study.evaluation.max_response_tokens}
    if study.run.methods:
        training = study.training
        tokens = training.max_prompt_tokens + training.max_response_tokens
        limits["training.max_prompt_tokens + max_response_tokens"] = tokens
    for name, tokens in limits.items():
        if tokens > positions:
            message = f"has {positions:,} positions, and {name} is {tokens:,}"
            yield Line(f"{message}; decrease the limit, or choose another model")


def _tokens(study: Study, tokenizer: Any, rows: int | None) -> Iterator[Line]:
    """Yield what is wrong with tokens, and which of them end a response."""
    from stapo.suite.models.loading import end_token_ids

    vocabulary = tokenizer.get_vocab()
    largest = max(vocabulary.values(), default=0)
    if rows is not None and largest >= rows:
        message = f"the tokenizer has the id {largest:,}, and the embedding {rows:,} rows"
        yield Line(f"{message}; take the tokenizer that the model was trained with")
    is_given = study.end_tokens != Study.model_fields["end_tokens"].default
    if is_given and study.end_tokens and not vocabulary.keys() & {*study.end_tokens}:
        given = ", ".join(map(visible, study.end_tokens))
        yield Line(f"end_tokens: the tokenizer has none of {given}; name one that it has")
    elif tokenizer.eos_token_id is None and study.run.methods:
        yield Line("the tokenizer has no end token (eos_token in tokenizer_config.json); add it")
    else:
        ends = tokenizer.convert_ids_to_tokens(end_token_ids(tokenizer, study.end_tokens))
        yield note(f"a response ends with {' or '.join(map(visible, ends))}")


def _prompts(study: Study, tokenizer: Any) -> Iterator[Line]:
    """Yield whether the template shows the question, and how many prompts are too long."""
    from stapo.suite.training.prompts import chat_prompt, local_rows, prompt_tokens

    training = study.training
    chat = chat_prompt(QUESTION, training.instruction)
    shown = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    if QUESTION not in shown:
        yield Line("its chat template leaves out the question; correct chat_template.jinja")
    elif study.run.methods and not isinstance(study.data, HubData):
        rows, limit = local_rows(study.data), training.max_prompt_tokens
        chats = (chat_prompt(row["question"], training.instruction) for row in rows)
        if long := sum(prompt_tokens(tokenizer, chat) > limit for chat in chats):
            message = f"{long:,} of {len(rows):,} prompts are longer than {limit} tokens"
            message += " (training.max_prompt_tokens)"
            is_all = long == len(rows)
            yield Line(f"{message}{'; increase it' if is_all else ' and are left out'}", is_all)
