"""A benchmark from a file that the study names."""

import json
from pathlib import Path

import pandas as pd
import pytest

from stapo.evaluation.task import asked_of, rows_of
from stapo.records.responses import AnsweredProblem
from stapo.study import Checkpoint, Study, StudyError, identity, parse_study, read_study
from stapo.study.reading import published_content, resolved_content
from stapo.study.resolved import read_resolved, resolved_path, write_resolved

ROWS = [{"problem": "chain:3+4?", "answer": 7}, {"problem": "chain:9-3*4?", "answer": " 4 "}]
SHA = "a6a036e039c45a8db3125b49bb7917126657aad38ef5586072242e690a59093a"
STUDY = """
extends: smoke
name: mine
benchmarks: {own: {file: rows/q.jsonl, question: problem, answer: answer, samples: 8}}
run: {benchmarks: [own, chain-2]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows").mkdir()
    write(tmp_path, ROWS)
    (tmp_path / "mine.yaml").write_text(STUDY)
    return tmp_path


def write(folder: Path, rows: list[dict[str, object]]) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "rows" / "q.jsonl").write_text(lines)


def read(folder: Path, old: str = "", new: str = "") -> Study:
    (folder / "changed.yaml").write_text(STUDY.replace(old, new) if old else STUDY)
    return read_study(folder / "changed.yaml")


def fingerprints(study: Study) -> dict[str, str]:
    base, decoding = Checkpoint("tiny"), study.run.decodings[0]
    return {
        name: identity.score_fingerprint(study, base, decoding, name) for name in study.evaluated()
    }


def test_four_keys_are_enough(folder, monkeypatch):
    monkeypatch.chdir(folder)
    study = read_study(Path("mine.yaml"))
    assert study.problems("own") == 2
    assert study.benchmarks["own"].sha256 == SHA
    file = study.rows_file("own")
    assert file.path == folder / "rows" / "q.jsonl"
    assert file.read() == [
        {"question": "chain:3+4?", "answer": "7"},
        {"question": "chain:9-3*4?", "answer": "4"},
    ]
    assert study.rows_file("chain-2") is None


def test_the_file_lies_beside_the_study_for_a_job_elsewhere(folder, tmp_path, monkeypatch):
    study = read_study(folder / "mine.yaml")
    write_resolved(study, tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    job = read_resolved(tmp_path / resolved_path(study))
    assert job == study
    assert [row["answer"] for row in job.rows_file("own").read()] == ["7", "4"]


def test_the_content_is_in_the_fingerprint_and_the_place_is_not(folder):
    before = read(folder)
    moved = folder / "elsewhere"
    moved.mkdir()
    (moved / "rows").mkdir()
    write(moved, ROWS)
    assert fingerprints(read(moved)) == fingerprints(before)
    write(folder, [*ROWS, {"problem": "chain:1+1?", "answer": "2"}])
    after = read(folder)
    assert fingerprints(after)["own"] != fingerprints(before)["own"]
    assert fingerprints(after)["chain-2"] == fingerprints(before)["chain-2"]
    assert after.problems("own") == 3


def test_a_file_that_changed_after_the_study_was_read_stops_the_job(folder):
    file = read(folder).rows_file("own")
    write(folder, ROWS[:1])
    with pytest.raises(StudyError, match="its rows changed since the study was read"):
        file.read()


def test_a_published_study_has_the_checksum_and_no_path(folder):
    study = read(folder)
    published = published_content(study)
    assert str(folder) not in json.dumps(published)
    assert str(folder) in json.dumps(resolved_content(study))
    again = parse_study(published)
    assert fingerprints(again) == fingerprints(study)
    with pytest.raises(StudyError, match=r"benchmarks.own.file: rows/q.jsonl is not here"):
        again.rows_file("own")


def test_the_prompt_is_the_papers_where_the_training_has_an_instruction(folder):
    row = {"question": "What?", "answer": "7"}
    plain = read(folder).task("own")
    papers = read(folder, "run:", "training: {instruction: Think.}\nrun:").task("own")
    assert asked_of(plain, [row]) == [("What?", "7")]
    ((shown, _),) = asked_of(papers, [row])
    assert shown.startswith("What? Please reason step by step")
    answered = AnsweredProblem(0, shown, "7", ["a"], [1], [False], ["e"])
    assert rows_of(papers, [answered]) == [row]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("rows/q.jsonl", "rows/absent.jsonl", "absent.jsonl: No such file or directory (changed.yaml:4)"),
        ("rows/q.jsonl", "rows", "rows: expected a file that ends in .jsonl or .parquet"),
        ("question: problem", "question: text", "no column 'text'; its columns: problem, answer"),
        ("answer: answer, ", "", "benchmarks.own.answer: missing; name the column"),
        ("samples: 8", "samples: 8, rows: 3", "rows: expected 3, found 2; if this is intended"),
        ("samples: 8", f"samples: 8, sha256: {'a' * 64}", f"found {SHA}"),
        ("8}}", "8}, chain-2: {question: q}}", "chain-2.question: only for a benchmark with `file`"),
        ("file: rows/q.jsonl, ", "", "no task of this name in benchmarks/"),
        ("own", "chain-2", "is also a benchmark of benchmarks/; choose another name"),
        ("name: mine", "name: mine\nplaces: {a: /b}", "places: unknown key; remove it"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_in_a_line(folder, monkeypatch, old, new, line):
    monkeypatch.chdir(folder)
    with pytest.raises(StudyError) as error:
        read(folder, old, new)
    assert any(line in one for one in error.value.errors), error.value.errors


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"problem": "a"}\n', "q.jsonl: no column 'answer'; its columns: problem"),
        ('{"problem": "a", "answer": "1"}\n\n{"problem": "b"}\n', "line 3: column 'answer': expected"),
        ('{"problem": "a", "answer": [1]}\n', "line 1: column 'answer': expected"),
        ('{"problem": "a", "answer": true}\n', "line 1: column 'answer': expected"),
        ('{"problem": " ", "answer": "1"}\n', "line 1: column 'problem': no value"),
        ('\n{"problem": 1\n', "line 2: not JSON: Expecting ',' delimiter, at column 14 "),
        ("[1]\n", "line 1: expected an object"),
        ("", "no rows"),
        ('{"problem": "a", "answer": 1}\n{"problem": "a ", "answer": "1"}\n', "line 2: repeats the"),
        ('{"problem": "a", "answer": 1}\n{"problem": "a", "answer": 2}\n', "line 2: repeats the question of"),
        ('{"problem": "a", "answer": null}\n', "line 1: column 'answer': expected"),
        ('{"problem": "a", "answer": NaN}\n', "line 1: NaN is no number"),
        ('{"problem": "a", "answer": 1.0}\n', "line 1: column 'answer': 1.0 may have"),
        ('{"problem": "a", "answer": 1, "answer": 2}\n', "line 1: the key 'answer' is given twice"),
        ('{"problem": "a\\ud800", "answer": 1}\n', "line 1: column 'problem': the character U+D800"),
        ('{"problem": "' + "a" * 100_001 + '", "answer": 1}\n', "100001 characters; at most 100000"),
    ],
)  # fmt: skip
def test_a_faulty_file_is_refused_with_its_line(folder, text, line):
    (folder / "rows" / "q.jsonl").write_text(text)
    with pytest.raises(StudyError) as error:
        read(folder)
    assert any(line in one for one in error.value.errors), error.value.errors


def test_all_faults_of_a_file_are_said_at_once(folder):
    good = '{"problem": "a", "answer": 1}\n'
    lines = [good, "{\n", '{"problem": "b"}\n', good, "[1]\n", "\n", '{"problem": 1']
    (folder / "rows" / "q.jsonl").write_text("".join(lines))
    with pytest.raises(StudyError) as error:
        read(folder)
    said = [one.partition("q.jsonl, ")[2].partition(":")[0] for one in error.value.errors]
    assert said == ["line 2", "line 3", "line 4", "line 5", "line 7"]
    (folder / "rows" / "q.jsonl").write_text('{\n{"problem": "b"}\n')
    with pytest.raises(StudyError) as error:
        read(folder)
    assert "no column 'answer'" in error.value.errors[0]
    assert "line 1: not JSON" in error.value.errors[1]
    assert len(error.value.errors) == 2


def test_a_file_that_is_not_run_is_not_read(folder):
    (folder / "rows" / "q.jsonl").unlink()
    study = read(folder, "[own, chain-2]", "[chain-2]")
    assert study.evaluated() == ["chain-2"]


def test_parquet_and_numbers_as_they_are_written(folder):
    pd.DataFrame({"problem": ["a", "b"], "answer": [1, 2]}).to_parquet(folder / "rows/q.parquet")
    rows = read(folder, "q.jsonl", "q.parquet").rows_file("own").read()
    assert [row["answer"] for row in rows] == ["1", "2"]
    (folder / "rows" / "q.jsonl").write_text('{"problem": "a", "answer": 0.50}\n')
    assert read(folder).rows_file("own").read()[0]["answer"] == "0.50"
    (folder / "rows" / "q.parquet").write_bytes(b"PAR1")
    with pytest.raises(StudyError, match="not a Parquet file"):
        read(folder, "q.jsonl", "q.parquet")
