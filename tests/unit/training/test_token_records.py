"""Token records of whole trainings: their prompts, numbers and size limit."""

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import torch
from training_jobs import TRAINING, metrics, run

from stapo.files import read_jsonl
from stapo.methods import METHODS
from stapo.models.loading import load_tokenizer
from stapo.objective import at_resolution
from stapo.records.tokens import KINDS, read_token_file, rows_per_step
from stapo.training.prompts import chat_prompt, read_prompts

pytestmark = pytest.mark.rounding


@pytest.fixture(scope="module", params=METHODS)
def trained(request, world, tmp_path_factory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp(request.param)
    run(world, out, request.param, steps=3, token_records_mb=1)
    return request.param, out


def table(out: Path) -> pd.DataFrame:
    return read_token_file(out / "tokens.parquet").to_pandas()


def test_the_numbers_of_a_step_are_those_of_its_metrics(trained) -> None:
    name, out = trained
    for record, (_, step) in zip(metrics(out), table(out).groupby("step"), strict=True):
        sums = step.groupby("kind")["weight"].sum().reindex(KINDS, fill_value=0.0)
        assert sums.sum() == pytest.approx(record["num_tokens"])
        candidates = sums["silenced"] + sums["retained"]
        assert candidates == pytest.approx(record["num_candidates"])
        if METHODS[name].selection == "silence_spurious":
            assert sums["silenced"] == pytest.approx(record["num_silenced"])
            assert (step["kept"] == (step["kind"] != "silenced")).all()
        threshold = step["entropy_threshold"].iloc[0]
        assert pd.isna(threshold) == (candidates == 0)


def test_prompts_are_lines_of_the_file_and_contexts_begin_in_them(trained, world) -> None:
    _, out = trained
    prompts, tokenizer = read_prompts(world / "prompts.jsonl"), load_tokenizer(world / "base")
    found = table(out)
    for _, row in found.iterrows():
        chat = chat_prompt(prompts[row["prompt"]]["question"], TRAINING.instruction)
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        assert row["before"].startswith(tokenizer.decode(ids))
        assert 0 <= row["response"] < TRAINING.group_size
        assert 0 <= row["position"] < row["length"] <= TRAINING.max_response_tokens
        assert row["token"] == tokenizer.decode([row["token_id"]])
    of_step = found.groupby("step")["prompt"].nunique()
    assert (of_step <= TRAINING.prompts_per_mini_batch).all()
    assert (of_step > 1).all()


def test_candidates_are_split_by_the_threshold(trained) -> None:
    found = table(trained[1])
    tau_p = float(METHODS[trained[0]].arguments.get("tau_p", 0.002))
    rare = (found["advantage"] > 0) & (found["probability"] < tau_p)
    assert (rare == (found["kind"] != "other")).all()
    entropies = at_resolution(torch.tensor(found["entropy"].to_numpy())).numpy()
    below = entropies < found["entropy_threshold"].to_numpy()
    assert (rare & below == (found["kind"] == "silenced")).all()
    assert Counter(found["kind"])["silenced"] > 0


def test_no_budget_records_nothing_and_the_file_is_there(world, tmp_path) -> None:
    run(world, tmp_path, steps=2, token_records_mb=0)
    assert len(table(tmp_path)) == 0
    assert not (tmp_path / "work" / "tokens.jsonl").exists()


def test_the_budget_sets_only_the_number_of_tokens(world, tmp_path, monkeypatch) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    monkeypatch.setattr("stapo.records.tokens.ROW_BYTES", 25_000)
    assert rows_per_step(1, 2) == 20
    expected = run(world, few, steps=2, token_records_mb=1)
    assert run(world, many, steps=2, token_records_mb=1000) == expected
    assert [len(one["row"]) for one in read_jsonl(few / "work" / "tokens.jsonl")] == [20, 20]
    assert len(table(few)) == 40 < len(table(many))
