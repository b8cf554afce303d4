"""Training prompts: unique, disjoint from the benchmarks, in a reproducible order."""

from typing import Any

import datasets
import pytest
from studies import lines_of
from training_jobs import TRAINING

from stapo.core.files import read_json, read_jsonl, write_jsonl
from stapo.suite.study import StudyError, read_study
from stapo.suite.study.sources import HubData, TinyData
from stapo.suite.training.prompts import (
    DAPO_PREFIX,
    DAPO_SUFFIX,
    check_overlap,
    prompt_order,
    write_prompts,
)


def test_as_many_different_prompts_are_made_as_a_study_asks_for(tmp_path):
    about = write_prompts(TinyData(builder="tiny-arithmetic", prompts=2000), tmp_path / "prompts")
    assert about["unique"] == about["prompts"] == 2000


def test_an_overlap_is_an_error_unless_published_and_thirteen_words_are_counted(tmp_path):
    words = [f"w{i}" for i in range(14)]
    prompts = [" What is\n1+1? ", "Start, " + " ".join(words[:13]) + "!"]
    same = "Another start: " + ", ".join(words[:13]).upper()
    path = tmp_path / "prompts.jsonl"
    write_jsonl(path, [{"question": question, "answer": "2"} for question in prompts])
    benchmarks = {"a": ["What is 1+1?"], "b": [same, " ".join(words[:12]), " ".join(words[1:])]}
    with pytest.raises(StudyError, match="1 training prompts are problems of a"):
        check_overlap(path, benchmarks)
    # Somebody else's prompts, on which the paper trained as they are, are counted.
    found = check_overlap(path, benchmarks, published=True)
    assert found["shared"] == {"a": 1, "b": 0}
    assert found["sharing_13_words"] == {"a": 0, "b": 1}


def test_the_order_is_epochs_of_permutations_and_grows_at_its_end():
    def order(steps: int, seed: int) -> list[int]:
        return prompt_order(7, TRAINING.model_copy(update={"steps": steps}), seed)

    long = order(steps=6, seed=3)  # Three rollouts of 8 prompts.
    assert len(long) == 24
    assert sorted(long[:7]) == sorted(long[7:14]) == list(range(7))
    assert long[:7] != long[7:14]
    assert order(steps=3, seed=3) == long[:16]
    assert order(steps=6, seed=4) != long


def row(question: str, answer: str) -> dict[str, Any]:
    return {"prompt": [{"content": question}], "reward_model": {"ground_truth": answer}}


def wrapped(question: str) -> str:
    return DAPO_PREFIX + question + DAPO_SUFFIX


PAIRS = (("1+1?", "2"), ("2+2?", "4"), ("1+1?", "2"), ("3+3?", "6"), ("3+3?", "7"))
ROWS = [row(wrapped(question), answer) for question, answer in PAIRS]
KEPT = [{"question": "1+1?", "answer": "2"}, {"question": "2+2?", "answer": "4"}]
SHA256 = "b83b3772b9b70e9eed819dc9071835f21914eb431e9b0f879655b847960d2d48"
"""printf '[["1+1?","2"],["2+2?","4"]]' | sha256sum"""


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Write the prompts of some rows on a Hub that has only them; return file, record and summary."""

    def write(rows: list[Any], reward: Any = None, **settings: Any) -> Any:
        monkeypatch.setattr(datasets, "load_dataset", lambda hub, revision, split: rows)
        data = HubData(hub="a/b", revision="0" * 40, **settings)
        path, record = tmp_path / "prompts.jsonl", tmp_path / "prompts.json"
        about = write_prompts(data, path, record, reward)
        return read_jsonl(path), read_json(record), about

    return write


def test_prompts_of_the_hub_are_stripped_counted_and_summed(hub):
    prompts, record, about = hub(ROWS, unique_prompts=3, sha256=SHA256)
    assert prompts == KEPT
    counts = {"rows": 5, "unique": 3, "conflicting": 1, "prompts": 2}
    assert record == about == {**counts, "sha256": SHA256}
    assert hub(ROWS[1::-1])[2]["sha256"] != SHA256  # The order of the training follows theirs.


def test_the_question_of_a_chat_is_its_user_turn(hub):
    """Whatever its system turn says, which all of them may share."""

    def chat(*turns: tuple[str, str]) -> dict[str, Any]:
        prompt = [{"role": role, "content": text} for role, text in turns]
        return {"prompt": prompt, "reward_model": {"ground_truth": "2"}}

    system, questions = ("system", "Be brief."), ("1+1?", "5-3?", "4/2?")
    prompts, _, _ = hub([chat(system, ("user", one)) for one in questions], wrapper="keep")
    assert [prompt["question"] for prompt in prompts] == [*questions]
    with pytest.raises(StudyError, match=r"row 0 of a/b: .*2 user turns"):
        hub([chat(("user", "Hi."), ("assistant", "Hi."), ("user", "1+1?"))], wrapper="keep")


def test_another_number_or_checksum_is_refused_and_both_are_printed(hub, tmp_path):
    number, sha256 = lines_of(hub, ROWS, unique_prompts=2, sha256="0" * 64)
    assert number.startswith("data.unique_prompts: expected 2, found 3; ")
    assert sha256.startswith(f"data.sha256: expected {'0' * 64}, found {SHA256}; ")
    assert list(tmp_path.iterdir()) == []
    for rows in ([], ROWS[3:]):
        with pytest.raises(StudyError, match="no prompt with a single answer"):
            hub(rows)


@pytest.mark.parametrize(
    "broken",
    [
        {"question": "1+1?"}, {"prompt": [], "answer": 2},
        *({"question": "1+1?", "answer": answer} for answer in (2.0, True, None, float("nan"), [2])),
        *map(lambda one: row(one, "4"), ("2+2?", DAPO_PREFIX + "2+2?", "2+2?" + DAPO_SUFFIX, wrapped(" "))),
    ],
)  # fmt: skip
def test_a_row_of_another_layout_is_a_line_and_writes_nothing(hub, tmp_path, broken):
    with pytest.raises(StudyError, match=r"^data: row 1 of a/b: expected question and answer, or"):
        hub([ROWS[0], broken])
    assert list(tmp_path.iterdir()) == []


def test_a_wrapper_may_be_kept_and_plain_columns_are_taken_as_they_are(hub):
    prompts, _, _ = hub([ROWS[0], row("2+2?", "4")], wrapper="keep")
    assert [one["question"] for one in prompts] == [wrapped("1+1?"), "2+2?"]
    prompts, _, _ = hub([{"question": q, "answer": a, "source": "x"} for q, a in PAIRS])
    assert prompts == KEPT
    rows = [("1+1?", 2), ("1/4?", 0.25), ("1 + 2?", 3), ("1  +\n2?", 4)]
    prompts, _, about = hub([{"question": q, "answer": a} for q, a in rows])
    assert [one["answer"] for one in prompts] == ["2", "0.25"]
    assert (about["unique"], about["conflicting"]) == (4, 2)


def test_prompts_whose_answer_no_response_can_have_are_left_out_or_refused(hub, capsys):
    few = [{"question": f"{i}?", "answer": i} for i in range(40)]
    odd = [{"question": "x?", "answer": r"\boxed{2}"}, {"question": "y?", "answer": ""}]
    prompts, record, about = hub([*few, *odd, few[0]], reward="boxed")
    assert [one["question"] for one in prompts] == [one["question"] for one in few]
    assert record == about
    counts = {"rows": 43, "unique": 42, "conflicting": 0, "unrewarded": 2, "prompts": 40}
    assert counts.items() <= about.items()
    assert "1 of 42 answers are empty: row 42 ('')" in capsys.readouterr().out
    # A reward of one's own may be for something else.
    assert hub([*few, *odd])[2]["prompts"] == 42
    solved = [{"question": f"{i}?", "answer": f"1 + {i}\n#### {i + 1}"} for i in range(40)]
    for reward in ({"after": "####"}, "last_number"):
        assert hub(solved, reward=reward)[2]["prompts"] == 40
    with pytest.raises(
        StudyError, match=r"^data: 40 of 40 answers are worked .*\{after: \"####\"\}"
    ):
        hub(solved, reward="boxed")


def test_prompts_of_a_file_of_the_studys_own(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text("".join(f'{{"question": "{q}", "answer": {a}}}\n' for q, a in PAIRS))
    (tmp_path / "mine.yaml").write_text("extends: smoke\nname: mine\ndata: {file: q.jsonl}\n")
    study = read_study(tmp_path / "mine.yaml")
    assert study.data.rows == 5
    out = tmp_path / "prompts.jsonl"
    about = write_prompts(study.data, out)
    assert read_jsonl(out) == KEPT
    assert about == {"rows": 5, "unique": 3, "conflicting": 1, "prompts": 2, "sha256": SHA256}
    path.write_text(path.read_text() + '{"question": "5+5?", "answer": 10}\n')
    with pytest.raises(StudyError, match="its rows changed since the study was read"):
        write_prompts(study.data, out)
