"""Training prompts: unique, disjoint from the benchmarks, in a reproducible order."""

import json
from itertools import cycle, islice

import pytest

from stapo.artifacts import read_jsonl
from stapo.evaluation.task import benchmark_questions
from stapo.models.arithmetic import FAMILIES, training_problems
from stapo.schema import TinyData
from stapo.study import StudyError
from stapo.training import prompts as prompts_module
from stapo.training.prompts import (
    check_overlap,
    overlap,
    prompt_order,
    read_prompts,
    sharing_words,
    write_prompts,
)


def test_prompts_are_unique_and_share_nothing_with_the_benchmarks(tmp_path):
    path = tmp_path / "prompts.jsonl"
    write_prompts(TinyData(builder="tiny-arithmetic", prompts=2000), path)
    questions = [record["question"] for record in read_jsonl(path)]
    assert len(set(questions)) == 2000
    found = check_overlap(path, {name: benchmark_questions(name) for name in FAMILIES})
    assert found["shared"] == dict.fromkeys(FAMILIES, 0)


def test_more_prompts_than_the_world_has_is_an_error(tmp_path, monkeypatch):
    ten = list(islice(training_problems(0), 10))
    monkeypatch.setattr(prompts_module, "training_problems", lambda seed: cycle(ten))
    with pytest.raises(StudyError, match=r"data\.prompts.*fewer"):
        write_prompts(TinyData(builder="tiny-arithmetic", prompts=11), tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_an_overlap_names_benchmark_count_and_first_problem(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"question": " What is\\n1+1? ", "answer": "2"}\n')
    with pytest.raises(StudyError) as caught:
        check_overlap(path, {"a": ["What is 1+1?"], "b": ["Other?"]})
    (line,) = caught.value.errors
    assert "1 training prompts are problems of a" in line
    # Somebody else's prompts, on which the paper trained as they are, are counted.
    found = check_overlap(path, {"a": ["What is 1+1?"], "b": ["Other?"]}, published=True)
    assert found["shared"] == {"a": 1, "b": 0}
    assert overlap(["x"], ["y"]) == []


def test_no_prompts_are_an_error_not_an_endless_order(tmp_path):
    with pytest.raises(StudyError, match="no training prompts"):
        check_overlap(tmp_path / "none.jsonl", {"a": ["What is 1+1?"]})
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(StudyError, match="no training prompts"):
        read_prompts(tmp_path / "empty.jsonl")


def test_the_order_is_epochs_of_permutations_and_grows_at_its_end():
    order = prompt_order(7, 20, seed=3)
    assert sorted(order[:7]) == sorted(order[7:14]) == list(range(7))
    assert order[:7] != order[7:14]
    assert prompt_order(7, 12, seed=3) == order[:12]
    assert prompt_order(7, 20, seed=4) != order


def test_thirteen_words_in_a_row_are_counted_and_not_refused(tmp_path):
    words = [f"w{i}" for i in range(14)]
    prompt = "Start, " + " ".join(words[:13]) + "!"
    same = "Another start: " + ", ".join(words[:13]).upper()
    assert sharing_words([prompt], [same, " ".join(words[:12]), " ".join(words[1:])]) == [same]
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"question": prompt, "answer": "1"}) + "\n")
    found = check_overlap(path, {"a": [same], "b": ["Other?"]})
    assert found["sharing_13_words"] == {"a": 1, "b": 0}
    assert found["shared"] == {"a": 0, "b": 0}
