"""Scores count copies and answers that are too expensive, and refuse responses of several engines."""

import hashlib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stapo.suite.answers import built_in
from stapo.suite.evaluation import grading, scores
from stapo.suite.evaluation.scores import score
from stapo.suite.evaluation.task import reader_of
from stapo.suite.records.responses import AnsweredProblem, read_responses, write_responses
from stapo.suite.records.scores import read_identity

READERS_OF_ONES_OWN = """
def first(response):
    return response[0] if response[0] != "#" else None
def length(response):
    return len(response)
"""


def write(path: Path, responses: list[str], tokens: int) -> Path:
    samples = len(responses)
    ends = [tokens] * samples, [False] * samples, ["vllm 1 on A"]
    one = AnsweredProblem(0, "q", "7", responses, *ends, "f")
    right = [f"{i} \\boxed{{7}}" for i in range(samples)]
    write_responses(path, [one, replace(one, problem=1, responses=right)])
    return path


def test_copies_are_counted_and_those_of_long_responses_warn(tmp_path, capsys):
    copies = [r"long \boxed{7}"] * 4
    for tokens, warned in ((100, True), (99, False)):  # Short ones coincide by chance.
        assert score(write(tmp_path / "c", copies, tokens), {}, tmp_path / "s") == 1.0
        told = "37.5% of the responses of 100 tokens and more are copies" in capsys.readouterr().err
        assert told == warned
    found = pq.read_table(tmp_path / "s")["duplicate"].to_pylist()
    assert found == [False, True, True, True] + [False] * 4


def test_answers_are_read_and_golds_too(tmp_path):
    path = tmp_path / "c"
    (tmp_path / "mine.py").write_text(READERS_OF_ONES_OWN)
    sha256 = hashlib.sha256(READERS_OF_ONES_OWN.encode()).hexdigest()

    def scored(answer, gold, responses):
        write(path, responses, 5)
        first, _ = read_responses(path)
        write_responses(path, [replace(first, gold=gold)])
        average = score(path, {}, tmp_path / "s", reader=reader_of(answer, sha256))
        rows = pq.read_table(tmp_path / "s").to_pylist()
        return average, {row["gold"] for row in rows}, [row["answer"] for row in rows]

    responses = ["so 7\n#### 1,450", r"7, \boxed{7}", "7", "#### 1450.0"]
    found = scored({"after": "####"}, "29 * 50\n#### 1450", responses)
    assert found == (0.5, {"1450"}, ["1,450", None, None, "1450.0"])
    assert scored("last_number", "7", responses) == (0.5, {"7"}, ["1450", "7", "7", "1450.0"])
    assert scored(f"{tmp_path}/mine.py:first", "s", responses)[2] == ["s", "7", "7", None]
    with pytest.raises(TypeError, match=r"mine\.py:length: .*expected a text or None, found int"):
        scored(f"{tmp_path}/mine.py:length", "7", responses)


def test_responses_on_which_reward_and_grader_differ_are_counted(tmp_path):
    late, spaced = r"\boxed{7}" + "." * 200, r"\boxed{ 7 }"
    path = write(tmp_path / "c", [late, spaced, r"\boxed{7}", r"\boxed{8} #### 7"], 5)
    # The second problem has four right boxes.
    for reward, found in (
        ("boxed", {"accepted": 2, "rewarded": 0}),
        ({"after": "####"}, {"accepted": 7, "rewarded": 1}),
    ):
        score(path, {}, tmp_path / "s", reward=built_in(reward))
        assert read_identity(tmp_path / "s")["differs_from_reward"] == found


def test_versions_are_not_mixed_and_devices_where_allowed(tmp_path):
    path = write(tmp_path / "c", ["a", "b"], 5)
    first, second = read_responses(path)
    for other, allowed in (("vllm 1 on B", "same"), ("vllm 2 on A", "mixed")):
        write_responses(path, [first, replace(second, engines=[other])])
        with pytest.raises(RuntimeError, match=f"vllm 1 on A and by {other}"):
            score(path, {}, tmp_path / "s", devices=allowed)
    write_responses(path, [first, replace(second, engines=["vllm 1 on B"])])
    score(path, {}, tmp_path / "s", devices="mixed")
    assert read_identity(tmp_path / "s")["engine"] == "vllm 1 on A and vllm 1 on B"


def test_answers_that_are_too_expensive_warn_and_a_machine_without_memory_refuses(
    tmp_path, monkeypatch, capsys
):
    completions = write(tmp_path / "c", [str(i) for i in range(20)], 5)
    failed, right = grading.Grade("timeout", "7"), grading.Grade("correct", "7")
    monkeypatch.setattr(scores, "grade_answers", lambda *a, **k: [failed] * 20 + [right] * 20)
    assert score(completions, {}, tmp_path / "few") == 0.5
    assert "20 of 40 answers were too expensive for the grader" in capsys.readouterr().err
    crash = grading.Grade("crash", "7")
    crashes = [crash] * 30 + [right] * 10
    for easy, error in ((right, None), (crash, "on 30 of 40 answers, and on an easy one")):
        graded = {40: crashes, 1: [easy]}
        monkeypatch.setattr(scores, "grade_answers", lambda a, graded=graded, **_: graded[len(a)])
        with pytest.raises(RuntimeError, match=error) if error else nullcontext():
            assert score(completions, {}, tmp_path / str(error is None)) == 0.25
    assert not (tmp_path / "False").exists()


def test_differences_from_math_verify_are_counted_and_printed(tmp_path, capsys):
    responses = [r"\boxed{7.}", r"\boxed{7}", r"\boxed{8}", r"\boxed{7.} again", "7"]
    score(write(tmp_path / "c", responses, 5), {"fingerprint": "f"}, tmp_path / "s")
    found = read_identity(tmp_path / "s")
    names = ("differs_from_math_verify", "engine", "fingerprint")
    assert [found[name] for name in names] == [2, "vllm 1 on A", "f"]
    assert "2 of 10 verdicts differ from math-verify's" in capsys.readouterr().err
