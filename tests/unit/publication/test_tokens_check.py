"""Token records of a real training hold; forged ones do not, though the rest of them agrees."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import pytest
from forgeries import TOKEN_FORGERIES
from training_jobs import job_in

from stapo.files import read_jsonl
from stapo.methods import METHODS
from stapo.models.arithmetic import VOCABULARY as TINY
from stapo.models.tiny import build_tiny
from stapo.publication.tokens_check import token_faults
from stapo.records.step import from_line
from stapo.records.tokens import METADATA_KEY, read_token_file
from stapo.study.schema import TrainingSettings
from stapo.study.sources import TinyData, TinyModel
from stapo.training import rewards
from stapo.training import run as run_module
from stapo.training.prompts import write_prompts

TRAINING = TrainingSettings(
    steps=4, prompts_per_batch=4, group_size=4, prompts_per_mini_batch=2, micro_batch_tokens=512,
    learning_rate=3e-3, max_prompt_tokens=24, max_response_tokens=24, token_records_mb=1,
)  # fmt: skip
PROMPTS = 16
RARE = {"tau_p": 0.05}
"""So that a model of a few steps has candidates of both kinds in every step."""


def even(completions: Any, **_: Any) -> list[float]:
    return [1.0 - 2 * (len(conversation[-1]["content"]) % 2) for conversation in completions]


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("world")
    settings = TinyModel(
        builder="tiny-arithmetic", supervised_steps=20, supervised_batch=32, hidden_size=32
    )
    build_tiny(settings, root / "base")
    write_prompts(TinyData(builder="tiny-arithmetic", prompts=PROMPTS), root / "prompts.jsonl")
    return root


def method_of(name: str) -> Any:
    method = METHODS[name]
    if "tau_p" not in method.selection_args:
        return method
    return replace(method, selection_args={**method.selection_args, **RARE})


def train(world: Path, out: Path, name: str, training: TrainingSettings) -> None:
    with patch.dict(rewards.BUILT_IN, boxed=even):
        run_module.train(replace(job_in(world, out, training, name), method=method_of(name)))


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("stapo")
    with patch("stapo.records.tokens.ROW_BYTES", 2500):
        train(world, out, "stapo", TRAINING)
    return out


def faults(
    out: Path, name: str = "stapo", training: TrainingSettings = TRAINING, forge: Any = None
) -> list[str]:
    """Return what is found in the token records of a training, after a forgery of them."""
    table = read_token_file(out / "tokens.parquet")
    rows, about = table.to_pandas(), json.loads(table.schema.metadata[METADATA_KEY])
    if forge is not None:
        forge(rows)
        rows.reset_index(drop=True, inplace=True)
    steps = [from_line(line) for line in read_jsonl(out / "metrics.jsonl")]
    with patch("stapo.records.tokens.ROW_BYTES", 2500):
        return list(token_faults(rows, about, steps, training, method_of(name), PROMPTS, 0))


@pytest.mark.rounding
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("statistics", ["behaviour", "current"])
def test_what_a_training_records_holds(world, tmp_path, name: str, statistics: str) -> None:
    training = TRAINING.model_copy(update={"statistics": statistics})
    with patch("stapo.records.tokens.ROW_BYTES", 2500):
        train(world, tmp_path, name, training)
    assert faults(tmp_path, name, training) == []


def test_the_training_that_is_forged_has_tokens_of_every_kind(trained) -> None:
    rows = read_token_file(trained / "tokens.parquet").to_pandas()
    assert faults(trained) == []
    assert set(rows["kind"]) == {"silenced", "retained", "other"}
    assert rows.groupby("step").size().max() == 100
    assert (rows["weight"] > 1).any()


@pytest.mark.parametrize("name", TOKEN_FORGERIES)
def test_a_forgery_is_found(trained, name: str) -> None:
    forge, words = TOKEN_FORGERIES[name]
    found = faults(trained, forge=forge)
    assert found
    assert re.search(words, found[0]), found


def test_more_tokens_than_the_study_allows_are_too_many(trained) -> None:
    assert faults(trained, training=TRAINING.model_copy(update={"token_records_mb": 2})) == []
    with patch("stapo.publication.tokens_check.rows_per_step", lambda *_: 60):
        (found,) = faults(trained)
    assert "100 tokens, token_records_mb allows 60" in found


def test_metadata_of_another_version_or_none_is_refused(trained) -> None:
    rows = read_token_file(trained / "tokens.parquet").to_pandas()
    steps = [from_line(line) for line in read_jsonl(trained / "metrics.jsonl")]
    given = steps, TRAINING, METHODS["stapo"], PROMPTS, 0
    for about, words in (
        ({}, "version"),
        ({"version": 2, "vocab_size": 64}, "version"),
        ({"version": 1, "vocab_size": "64"}, "vocabulary"),
        ({"version": 1, "vocab_size": 1}, "vocabulary"),
    ):
        (found,) = token_faults(rows, about, *given)
        assert words in found


def test_a_file_without_rows_is_one_of_a_study_without_a_budget(trained) -> None:
    steps = [from_line(line) for line in read_jsonl(trained / "metrics.jsonl")]
    empty = pd.DataFrame(
        read_token_file(trained / "tokens.parquet").schema.empty_table().to_pandas()
    )
    about = {"version": 1, "vocab_size": None}
    for megabytes, right in ((0, True), (1, False)):
        training = TRAINING.model_copy(update={"token_records_mb": megabytes})
        found = list(token_faults(empty, about, steps, training, METHODS["stapo"], PROMPTS, 0))
        assert (found == []) == right


VOCABULARY = dict(enumerate(TINY))


def renamed(rows: pd.DataFrame, place: int = 0, text: str = "$") -> pd.DataFrame:
    """Rename a token everywhere."""
    rows["token"] = rows["token"].where(rows["token_id"] != rows["token_id"].iloc[place], text)
    return rows


def named(rows: pd.DataFrame, place: int = 0) -> pd.DataFrame:
    """Name a most likely token that the vocabulary does not have."""
    rows.at[place, "top_tokens"] = ["$$$", *rows.at[place, "top_tokens"][1:]]
    return rows


def cut(rows: pd.DataFrame) -> pd.DataFrame:
    """Cut texts as where the file would be too large."""
    rows["token"] = rows["token"].str[:2]
    rows["top_tokens"] = rows["top_tokens"].map(lambda top: top and [one[:2] for one in top])
    return rows


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (lambda rows: rows, None),
        (cut, None),
        (renamed, "another one in the vocabulary"),
        (named, "most likely token that is not in the vocabulary"),
    ],
)
def test_texts_are_those_of_the_vocabulary(trained, forge, words) -> None:
    table = read_token_file(trained / "tokens.parquet")
    rows, about = table.to_pandas(), json.loads(table.schema.metadata[METADATA_KEY])
    rows["top_tokens"] = [None if top is None else list(top) for top in rows["top_tokens"]]
    rows = rows[rows["top_tokens"].notna()].reset_index(drop=True) if forge is named else rows
    steps = [from_line(line) for line in read_jsonl(trained / "metrics.jsonl")]
    given = steps, TRAINING, method_of("stapo"), PROMPTS, 0, VOCABULARY
    with patch("stapo.records.tokens.ROW_BYTES", 2500):
        found = list(token_faults(forge(rows), about, *given))
    assert bool(found) == bool(words)
    if words:
        assert words in found[0]
