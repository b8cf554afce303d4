"""Marks of recorded tokens: those of the builder's reader, for the whole response that was sampled."""

import pytest
from training_jobs import run

from stapo.suite.models import marked
from stapo.suite.models.tiny import build_tiny, build_tokenizer
from stapo.suite.models.worlds import WORLDS, marks_of
from stapo.suite.records.tokens import read_token_file
from stapo.suite.study.sources import TinyData, TinyModel
from stapo.suite.training.prompts import write_prompts

BUILDER = "marked-chains"


@pytest.mark.slow
def test_recorded_tokens_are_marked_in_a_world_that_knows_them(tmp_path):
    settings = TinyModel(builder=BUILDER, supervised_steps=120, supervised_batch=48, hidden_size=64)
    build_tiny(settings, tmp_path / "base")
    write_prompts(TinyData(builder=BUILDER, prompts=64), tmp_path / "prompts.jsonl")
    run(tmp_path, tmp_path / "out", steps=2, max_prompt_tokens=40, max_response_tokens=60)
    rows = read_token_file(tmp_path / "out" / "tokens.parquet").to_pylist()
    tokenizer = build_tokenizer(WORLDS[BUILDER])

    def tokens(text: str) -> list[str]:
        return tokenizer.convert_ids_to_tokens(tokenizer.encode(text))

    seen = set()
    for row in rows:
        question, mark, response = row["before"].partition("?")
        assert mark
        found = [*tokens(response), row["token"], *tokens(row["after"])]
        expected = marked.marks(tokens(question + mark), found)
        assert row["mark"] == expected[row["position"]]
        seen.add(row["mark"])
    assert len(seen) > 2
    assert marks_of(build_tokenizer()) is None  # Of another world.
