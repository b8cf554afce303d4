"""Every file in benchmarks/ is a task, loads its own rows, and counts every sample."""

from typing import Any

import pytest
from datasets import Dataset
from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager
from studies import lines_of

from stapo.core.files import write_jsonl
from stapo.suite.evaluation.task import (
    DATA_DIR,
    are_rows_of,
    asked_of,
    benchmark_rows,
    load_rows,
    normalise,
    rows_of,
)
from stapo.suite.models.worlds import is_held_out
from stapo.suite.records.responses import AnsweredProblem
from stapo.suite.repository import BENCHMARKS
from stapo.suite.study import checks, parse_study, read_study
from stapo.suite.study.files import rows_checksum
from stapo.suite.tasks import INSTRUCTION, TASK_PREFIX, benchmark_definitions, task_faults

FILES = sorted(BENCHMARKS.rglob("[!_]*.yaml"))
TINY = [n for n, d in benchmark_definitions().items() if "builder" in d["metadata"]]
REAL = {"gsm8k", "aime24", "aime25", "amc23", "math500", "minerva", "olympiadbench"}
REAL |= {"aime26", "hmmt-feb-2025", "hmmt-feb-2026"}


@pytest.fixture(scope="module")
def tasks() -> TaskManager:
    return TaskManager(include_path=str(BENCHMARKS), include_defaults=False)


def test_lm_eval_sees_every_file_under_its_name(tasks):
    """It skips a file that it cannot load without a word."""
    names = {TASK_PREFIX + path.stem for path in FILES}
    assert set(tasks.all_subtasks) == names
    assert {TASK_PREFIX + name for name in benchmark_definitions()} == names
    assert set(benchmark_definitions()) >= REAL
    for name, task in benchmark_definitions().items():
        assert task_faults(task) == []
        assert "licence" in task["metadata"] or name not in REAL


@pytest.mark.parametrize("name", TINY)
def test_a_task_loads_and_asks_what_generate_asks(tasks, name):
    loaded = tasks.load([TASK_PREFIX + name])["tasks"][TASK_PREFIX + name]
    definition = benchmark_definitions()[name]
    shown = [(loaded.doc_to_text(doc), loaded.doc_to_target(doc)) for doc in loaded.test_docs()]
    assert shown == asked_of(definition, benchmark_rows(definition["metadata"]))
    rows = benchmark_rows(definition["metadata"])
    assert all(is_held_out(row["question"]) for row in rows)


@pytest.mark.parametrize("words", ["", INSTRUCTION, "\n\nPut the answer\tafter ####. "])
def test_a_benchmark_asks_as_the_training_does_or_as_it_says(tmp_path, words):
    (tmp_path / "p.jsonl").write_text('{"question": "1+1=?", "answer": 2}\n')
    (tmp_path / "s.yaml").write_text("extends: smoke\nname: s\n")
    own = {"file": f"{tmp_path}/p.jsonl", "samples": 2}
    benchmarks = {"as-trained": own, "other": {**own, "instruction": " Guess."}}
    benchmarks |= {"chain-2": {"instruction": words}}
    changes = {"training": {"instruction": words}, "benchmarks": benchmarks}
    changes["run"] = {"benchmarks": [*benchmarks]}
    study = read_study(tmp_path / "s.yaml", changes=changes)
    for name, instruction in (("as-trained", words), ("other", " Guess."), ("chain-2", words)):
        task, rows = study.task(name), [{"question": "1+1=?", "answer": "2"}]
        assert asked_of(task, rows) == [(f"1+1=?{instruction}", "2")]
        # `verify` takes the instruction away again.
        answered = [AnsweredProblem(0, f"1+1=?{instruction}", "2", [], [], [], [], "f")]
        assert rows_of(task, answered) == rows
    # As before for what could be asked before.
    assert ("instruction" in study.task("chain-2")["metadata"]) == ("####" in words)
    assert study.task("chain-3") == benchmark_definitions()["chain-3"]


ROWS = [{"question": "What is 1 + 1?", "answer": "2"}, {"question": "And 2?", "answer": r"\frac12"}]
LAYOUTS: list[Any] = [
    lambda q, a: {"prompt": [{"content": q}], "reward_model": {"ground_truth": a, "style": "rule"}},
    lambda q, a: {"question": q, "final_answer": [a], "answer": None},
    lambda q, a: {"problem": q, "solution": f"so {a}", "answer": a, "level": 1},
    lambda q, a: {"id": 1, "problem": q, "solution": rf"\boxed{{{a}}}"},
    lambda q, a: {"question": f" {q}\n", "answer": a},
]
"""Of the JustRL authors, OlympiadBench, MATH-500, AIME24 and AMC23."""
SOURCE = {"hub": "someone/Some-Set", "revision": "main", "split": "test", "names": ["SomeSet"]}
SOURCE |= {"rows": 2, "sha256": rows_checksum(ROWS)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_rows(tmp_path, monkeypatch, layout):
    rows = [layout(row["question"], row["answer"]) for row in ROWS]
    write_jsonl(tmp_path / "SomeSet.jsonl", rows)
    monkeypatch.setenv(DATA_DIR, str(tmp_path))
    assert benchmark_rows(SOURCE) == ROWS


def test_rows_without_a_known_checksum_are_taken_and_summed(tmp_path, monkeypatch, capsys):
    """As MathArena has them, with whole numbers or LaTeX as answers."""
    rows = [
        {"problem_idx": i, "problem": f"{i}?", "answer": i if i % 2 else r"\frac{-1+\sqrt{17}}{2}"}
        for i in range(33)
    ]
    write_jsonl(tmp_path / "hmmt_feb_2026.jsonl", rows)
    monkeypatch.setenv(DATA_DIR, str(tmp_path))
    metadata = benchmark_definitions()["hmmt-feb-2026"]["metadata"]
    found = benchmark_rows(metadata)
    assert [row["question"] for row in found[:2]] == ["0?", "1?"]
    assert [row["answer"] for row in found[:2]] == [rows[0]["answer"], "1"]
    assert f"SHA-256 {rows_checksum(found)}: stated nowhere;" in capsys.readouterr().out
    with pytest.raises(ValueError, match="expected 30 rows, found 33"):
        benchmark_rows({**metadata, "rows": 30})


def test_a_study_names_a_data_set_as_a_task_file_does(tmp_path, monkeypatch, raw_study):
    write_jsonl(tmp_path / "olympics.jsonl", [LAYOUTS[3](*row.values()) for row in ROWS])
    monkeypatch.setenv(DATA_DIR, str(tmp_path))
    own = {"hub": "a/b", "revision": "0" * 40, "split": "test", "rows": 2, "samples": 4}
    raw_study["benchmarks"]["olympics"] = {**own, "sha256": rows_checksum(ROWS)}
    study = parse_study(raw_study)
    task = study.task("olympics")
    assert benchmark_rows(task["metadata"]) == ROWS
    assert (study.responses("olympics"), study.rows_of_file("olympics")) == (8, None)
    assert asked_of(task, ROWS)[0][0] == ROWS[0]["question"] + study.training.instruction
    assert task["metadata"] == {
        "version": 1, "rows": 2, "sha256": rows_checksum(ROWS), "hub": "a/b", "revision": "0" * 40,
        "split": "test", "names": ["olympics"],
    }  # fmt: skip


def test_a_checksum_of_another_task_or_none_is_a_fault():
    task = benchmark_definitions()["aime24"]
    other = benchmark_definitions()["aime25"]["metadata"]["sha256"]
    for wrong, fault in ((other, "that of aime25"), ("ab12", "expected 64 hex digits")):
        (line,) = task_faults({**task, "metadata": {**task["metadata"], "sha256": wrong}})
        assert line.startswith(f"metadata.sha256 in its task file: {fault}")
    assert task_faults(task) == []
    bare = {key: value for key, value in task["metadata"].items() if key in ("version", "hub")}
    missing = [line.split()[0] for line in task_faults({**task, "metadata": bare})]
    assert missing == [
        f"metadata.{key}" for key in ("names", "revision", "rows", "sha256", "split")
    ]


@pytest.mark.parametrize("folder", ["SomeSet", "Some-Set"])
def test_a_folder_of_a_benchmark_is_found_as_in_justrls_repository(tmp_path, monkeypatch, folder):
    (tmp_path / folder).mkdir()
    Dataset.from_list(ROWS).to_parquet(tmp_path / folder / "test.parquet")
    monkeypatch.setenv(DATA_DIR, str(tmp_path))
    assert benchmark_rows(SOURCE) == ROWS


def test_the_first_rows_are_asked_and_all_are_checked(tmp_path, monkeypatch, raw_study):
    rows = {"chain-2": 3, "chain-3": 100}
    raw_study["benchmarks"] |= {n: {"samples": 2, "rows": count} for n, count in rows.items()}
    study = parse_study(raw_study)
    task, whole = study.task("chain-2"), benchmark_definitions()
    assert study.task("chain-3") == whole["chain-3"]
    rows = benchmark_rows(task["metadata"])
    assert rows == benchmark_rows(whole["chain-2"]["metadata"])[:3]
    assert study.problems("chain-2") == len(benchmark_rows(task["metadata"])) == 3
    answered = [
        AnsweredProblem(i, q, a, [], [], [], [], "f")
        for i, (q, a) in enumerate(asked_of(task, rows))
    ]
    assert are_rows_of(task, answered)
    assert not are_rows_of(task, answered[::-1])
    monkeypatch.setenv(DATA_DIR, str(tmp_path))
    source = {**task, "metadata": {**SOURCE, "first": 1}}
    with pytest.raises(ValueError, match=r"is needed to check its first 1 rows: .*SomeSet"):
        are_rows_of(source, answered)
    write_jsonl(tmp_path / "SomeSet.jsonl", [ROWS[0], {"question": "Other?", "answer": "2"}])
    with pytest.raises(ValueError, match="expected rows with SHA-256"):
        benchmark_rows(source["metadata"])


def test_unknown_keys_of_a_task_file_are_errors(raw_study, monkeypatch):
    """lm-eval has more keys, which would change its questions and not the pipeline's."""
    tasks = benchmark_definitions()
    chain = tasks["chain-2"]
    metadata = {**chain["metadata"], "n": 1, "answer": "box"}
    odd = {**chain, "description": "Be brief.", "metadata": metadata}
    monkeypatch.setattr(checks, "benchmark_definitions", lambda: {**tasks, "chain-2": odd})
    assert [line.partition(" in its")[0] for line in lines_of(parse_study, raw_study)] == [
        f"benchmarks.chain-2: {key}" for key in ("description", "metadata.n", "metadata.answer")
    ]
    with pytest.raises(ValueError, match=r"metadata\.answer in its task file: expected boxed"):
        load_rows(**odd["metadata"])


def test_other_rows_are_refused_with_what_was_expected_and_found(tmp_path, monkeypatch):
    monkeypatch.setenv(DATA_DIR, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"STAPO_DATA_DIR.*SomeSet"):
        benchmark_rows(SOURCE)
    spaced = [{"question": "What  is 1 +\n1?", "answer": "2"}, ROWS[1]]
    write_jsonl(tmp_path / "SomeSet.jsonl", spaced)
    assert len(benchmark_rows(SOURCE)) == 2  # White space is not in the checksum.
    with pytest.raises(ValueError, match="expected 3 rows, found 2"):
        benchmark_rows({**SOURCE, "rows": 3})
    with pytest.raises(ValueError, match=f"SHA-256 {'0' * 64}, found {rows_checksum(ROWS)}"):
        benchmark_rows({**SOURCE, "sha256": "0" * 64})
    for row in ({"text": "x"}, {"problem": "x", "solution": "a proof"}):
        with pytest.raises(ValueError, match="row 7: no question or no answer in columns"):
            normalise(row, "row 7")


class FirstRight(LM):
    """Answers the first of the repeats of each problem right, and the others wrong."""

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        self.answers: dict[int, list[str]] = {}
        for one in requests:
            own = self.answers.setdefault(one.doc_id, [])
            own.append("?" if own else f"#### {one.doc['answer']}")
        return [self.answers[one.doc_id].pop(0) for one in requests]

    loglikelihood = loglikelihood_rolling = None  # Abstract in lm-eval; our tasks use neither.


def test_lm_eval_asks_and_reads_answers_as_the_task_says(tmp_path):
    source = BENCHMARKS / "tiny" / "chain-3.yaml"
    text = source.read_text().replace("_base.yaml", str(source.parent / "_base.yaml"))
    more = '  answer: {after: "####"}\n  instruction: " Briefly."\n'
    (tmp_path / "t.yaml").write_text(text + more)
    name = TASK_PREFIX + "chain-3"
    loaded = TaskManager(include_path=str(tmp_path), include_defaults=False).load([name])
    task = loaded["tasks"][name]
    assert task.doc_to_text(task.test_docs()[0]).endswith(" Briefly.")
    results = evaluate(FirstRight(), loaded, bootstrap_iters=0, limit=3)
    assert results["results"][name]["average_at_n,all-samples"] == 0.25
