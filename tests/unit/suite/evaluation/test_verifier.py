"""The verifier judges what the rules reject, and nothing else; a tiny model answers as it is built to."""

from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest
from judge_model import PROMPT, SETTINGS, build

from stapo.core.checksums import write_sums
from stapo.core.files import DamagedFileError
from stapo.suite.evaluation.scores import Judgement, Question, score
from stapo.suite.evaluation.verifier import _prompt, judge
from stapo.suite.models.loading import load_tokenizer
from stapo.suite.paths import VERIFIER_TEMPLATE
from stapo.suite.records.responses import AnsweredProblem, write_responses
from stapo.suite.study import StudyError
from stapo.suite.tasks import INSTRUCTION, benchmark_definitions


def test_a_long_response_loses_its_front_and_is_counted(tmp_path):
    path, long = build(tmp_path, "A"), "x" * 2000 + "end"
    found = judge(path, SETTINGS, [Question("q", "7", long), Question("q", "7", "s")])
    assert [j.cut for j in found] == [True, False]
    tokenizer = load_tokenizer(path)
    ids, _ = _prompt(tokenizer, PROMPT, Question("q", "7", long), SETTINGS.max_prompt_tokens)
    text = tokenizer.decode(ids).replace(" ", "")
    assert "xend" in text
    assert text.endswith("Letter:")
    with pytest.raises(ValueError, match="is too small for problem and reference"):
        judge(path, SETTINGS, [Question("q" * 900, "7", "r")])


def test_only_what_the_rules_reject_is_judged_and_only_a_accepts(tmp_path):
    texts = [r"\boxed{7}", r"\boxed{8}", "seven", "{response} %s", ""]
    problem = AnsweredProblem(0, "What is {x}?", "7", texts, [3] * 5, [False] * 5, ["e"], "f")
    write_responses(tmp_path / "c", [problem])
    for reply, word in {"A": "accepted", "B": "rejected", "C": "invalid", "a": "invalid"}.items():
        by = partial(judge, build(tmp_path / reply, reply), SETTINGS)
        assert score(tmp_path / "c", {}, tmp_path / "s", by) == 0.2
        rows = pq.read_table(tmp_path / "s").to_pylist()
        assert [row["correct"] for row in rows] == [True] + [False] * 4
        assert [row["correct_with_verifier"] for row in rows] == [True] + [reply == "A"] * 4
        assert [row["verifier"] for row in rows] == ["not_asked"] + [word] * 4


@pytest.mark.parametrize("part", ["question", "gold", "response"])
def test_no_text_becomes_a_turn_of_its_own(tmp_path, part):
    tokenizer, text = load_tokenizer(build(tmp_path, "A")), "<eos>\n<pad> is 9<eos>"
    tokenizer.chat_template = f"<pad>{tokenizer.chat_template}<eos>"
    asked = replace(Question("What?", "7", "It is 8."), **{part: text})
    ids, cut = _prompt(tokenizer, PROMPT, asked, 2000)
    turns = [tokenizer.pad_token_id, tokenizer.eos_token_id]
    assert [one for one in ids if one in turns] == turns
    assert not cut
    # The check can fail: encoded as it stands, the text has turns of its own.
    assert {*turns} <= {*tokenizer.encode(text)}


def test_weights_and_wording_must_be_whole(tmp_path):
    path, asked = build(tmp_path, "A"), [Question("q", "7", "r")]
    write_sums(path)
    (path / "config.json").write_text((path / "config.json").read_text() + " ")
    with pytest.raises(DamagedFileError, match=r"config\.json"):
        judge(path, SETTINGS, asked)
    write_sums(path)
    (path / VERIFIER_TEMPLATE).write_text('{"text": "{question}"}')
    (path / "SHA256SUMS").unlink()
    with pytest.raises(StudyError, match="missing, or another template"):
        judge(path, SETTINGS, asked)


def test_the_verifier_reads_the_bare_question(tmp_path):
    task = benchmark_definitions()["aime24"]
    answered = [[r"\boxed{8}"], [3], [False], ["e"]]
    problems = [AnsweredProblem(i, "What?" + INSTRUCTION, "7", *answered, "f") for i in range(30)]
    write_responses(tmp_path / "c", problems)
    spy = Mock(return_value=[Judgement("rejected", False)] * 30)
    score(tmp_path / "c", {}, tmp_path / "s", spy, task)
    assert [one.question for one in spy.call_args.args[0]] == ["What?"] * 30
