"""A pretrained model is warmed up on worked solutions: their tokens alone, the same bits each time."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from studies import own_study

from stapo.suite.jobs import jobs_of
from stapo.suite.models.base import write_base
from stapo.suite.models.loading import load_model, load_tokenizer
from stapo.suite.models.supervised import IGNORED, _parts, _rows, collate, fit
from stapo.suite.study import Study, StudyError, parse_study, read_study
from stapo.suite.study.reading import published_content

ROWS = [
    {"question": f"{a}+{b}?", "solution": f"{a}+{b}={a + b}."}
    for a in range(1, 5)
    for b in range(5)
]


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "solutions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return folder


def read(settings: str = "batch: 8, learning_rate: 1.0e-3") -> Study:
    return own_study(f"path: weights, supervised: {{file: solutions.jsonl, steps: 6, {settings}}}")


def loss_of(folder: Path, study: Study) -> float:
    rows = _rows(study.models["own"].supervised, load_tokenizer(folder))
    ids, labels = collate(rows, 0)
    with torch.no_grad():
        return float(load_model(folder, torch.float32)(input_ids=ids, labels=labels).loss)


def test_it_learns_the_solutions_with_the_same_bits_each_time(folder):
    study = read()
    for name in ("first", "second"):
        write_base(study.models["own"], folder / name)
    first, second = (load_file(folder / name / "model.safetensors") for name in ("first", "second"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert loss_of(folder / "first", study) < 0.8 * loss_of(folder / "weights", study)


def test_only_solution_and_end_token_have_a_loss_and_the_limit_cuts(folder):
    tokenizer = load_tokenizer("weights")
    rows = _rows(read("max_tokens: 8").models["own"].supervised, tokenizer)
    question, solution = rows[0]
    assert tokenizer.decode(question) == "1+0?"
    assert tokenizer.decode(solution) == "1+0="  # Without its end.
    _, labels = collate([rows[0], (question, [*solution, tokenizer.eos_token_id])], 0)
    assert labels.tolist() == [
        [IGNORED] * 4 + solution + [IGNORED],
        [IGNORED] * 4 + [*solution, tokenizer.eos_token_id],
    ]
    whole = _rows(read("seed: 1").models["own"].supervised, tokenizer)
    assert whole[0][1][-1] == tokenizer.eos_token_id
    with pytest.raises(StudyError, match=r"no question is shorter than 4 tokens; increase max_tok"):
        _rows(read("max_tokens: 4").models["own"].supervised, tokenizer)


def test_parts_of_a_batch_give_the_update_of_the_whole(folder, monkeypatch):
    rows = _rows(read().models["own"].supervised, load_tokenizer("weights"))
    rows = [(question, solution * (1 + i % 3)) for i, (question, solution) in enumerate(rows)]
    monkeypatch.setattr("stapo.suite.models.supervised.MICRO_BATCH_TOKENS", 64)
    parts = _parts(rows)
    assert len(parts) > 4
    assert max(len(part) * max(len(q) + len(s) for q, s in part) for part in parts) <= 64
    whole, split = (load_model("weights", torch.float32) for _ in range(2))
    fit(whole, iter([[collate(rows, 0)]]), 1, 1e-3, "whole")
    fit(split, iter([[collate(part, 0) for part in parts]]), 1, 1e-3, "split")
    for one, other in zip(whole.parameters(), split.parameters(), strict=True):
        assert torch.allclose(one, other, atol=2e-4)


def test_it_is_in_the_fingerprint_by_its_content_alone(folder):
    def asked(study: Study) -> str:
        return jobs_of(study).job("base", "own").fingerprint

    study = read()
    before = asked(study)
    shutil.copy("solutions.jsonl", "moved.jsonl")
    path = folder / "own.yaml"
    path.write_text(path.read_text().replace("solutions", "moved"))
    assert asked(read_study(path)) == before
    published = published_content(study)
    assert published["models"]["own"]["supervised"]["file"] == "solutions.jsonl"
    assert asked(parse_study(published)) == before
    assert asked(read("batch: 8, learning_rate: 1.0e-3, seed: 1")) != before
    with (folder / "solutions.jsonl").open("a") as stream:
        stream.write('{"question": "1?", "answer": "1"}\n')
    with pytest.raises(StudyError, match=r"line 21: column 'solution': expected text"):
        read()
    with pytest.raises(StudyError, match="its rows changed since the study was read"):
        write_base(study.models["own"], folder / "base")
