"""The tiny base model: a small Qwen3, trained from scratch on sloppy solutions of `arithmetic`."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from stapo.suite.bars import only_ours
from stapo.suite.models import marked
from stapo.suite.models.arithmetic import Problem
from stapo.suite.models.shapes import HEAD_SIZE
from stapo.suite.models.supervised import collate, fit
from stapo.suite.models.worlds import WORLDS, World, training_problems
from stapo.suite.study.sources import TinyModel

INITIAL_SCALE = 0.1
"""About 1 / sqrt(width); with Qwen3's 0.02, warm starts of this length stayed below 20 % accuracy."""


def build_tokenizer(world: World = WORLDS["tiny-arithmetic"]) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a world: one token per digit, sign, task name and connecting word."""
    vocabulary = world.vocabulary
    ordered = sorted(vocabulary, key=len, reverse=True)
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(vocabulary)}))
    pattern = Regex("|".join(re.escape(token) for token in ordered))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        padding_side="left",
        model_max_length=world.context,
        chat_template="{% for message in messages %}{{ message['content'] }}{% endfor %}",
        clean_up_tokenization_spaces=False,
    )


def build_model(settings: TinyModel) -> Qwen3ForCausalLM:
    """Return the model with random weights drawn from `settings.seed`."""
    torch.manual_seed(settings.seed)
    world = WORLDS[settings.builder]
    config = Qwen3Config(
        vocab_size=len(world.vocabulary),
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=max(settings.heads // 2, 1),
        head_dim=HEAD_SIZE,
        initializer_range=INITIAL_SCALE,
        max_position_embeddings=world.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        pad_token_id=world.vocabulary.index("<pad>"),
        eos_token_id=world.vocabulary.index("<eos>"),
        dtype="float32",
    )
    return Qwen3ForCausalLM(config)


def supervised_batches(
    tokenizer: PreTrainedTokenizerFast, settings: TinyModel
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (input ids, labels), both (B, T) int64, without end; the question has no loss."""
    rng = Random(f"solutions {settings.seed}")
    problems = training_problems(settings.seed, settings.builder)
    while True:
        rows = [
            _supervised_row(tokenizer, problem, settings, rng)
            for problem in islice(problems, settings.supervised_batch)
        ]
        yield collate(rows, tokenizer.pad_token_id)


def _supervised_row(
    tokenizer: PreTrainedTokenizerFast,
    problem: Problem | marked.Chain,
    settings: TinyModel,
    rng: Random,
) -> tuple[list[int], list[int]]:
    world = WORLDS[settings.builder]
    text = world.write(problem, rng, settings.connecting_word_rate)
    # A random token in place of some.
    response = [
        rng.randrange(2, len(world.vocabulary)) if rng.random() < settings.slip_rate else token
        for token in tokenizer.encode(text)
    ]
    return tokenizer.encode(problem.question), [*response, tokenizer.eos_token_id]


def supervise(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, settings: TinyModel
) -> None:
    """Train the model in place on worked solutions."""
    updates = ([batch] for batch in supervised_batches(tokenizer, settings))
    fit(model, updates, settings.supervised_steps, settings.learning_rate, "SFT warm start")


def build_tiny(settings: TinyModel, path: Path) -> None:
    """Build, train and save the base model and its tokenizer."""
    only_ours()
    tokenizer = build_tokenizer(WORLDS[settings.builder])
    model = build_model(settings)
    supervise(model, tokenizer, settings)
    # Neutral settings: evaluation and rollouts set every sampling field themselves.
    model.generation_config.do_sample = True
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
