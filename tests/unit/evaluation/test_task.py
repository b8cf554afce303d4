"""Every file in benchmarks/ is a task, loads its own rows, and counts every sample."""

import re
from dataclasses import replace

import pytest
import yaml
from lm_eval.tasks import TaskManager

from stapo.evaluation import task as module
from stapo.evaluation.task import (
    all_samples,
    asked_of,
    benchmark_questions,
    benchmark_rows,
    process_results,
)
from stapo.models.arithmetic import is_held_out
from stapo.records.responses import AnsweredProblem
from stapo.reference import paper
from stapo.repository import BENCHMARKS
from stapo.tasks import TASK_PREFIX, benchmark_definitions

FILES = sorted(BENCHMARKS.rglob("*.yaml"))


@pytest.fixture(scope="module")
def tasks() -> TaskManager:
    return TaskManager(include_path=str(BENCHMARKS), include_defaults=False)


def test_lm_eval_sees_every_file_under_its_name(tasks):
    """It skips a file that it cannot load without a word."""
    named = [path for path in FILES if not path.name.startswith("_")]
    names = {TASK_PREFIX + path.stem for path in named}
    assert set(tasks.all_subtasks) == names
    assert {TASK_PREFIX + name for name in benchmark_definitions()} == names
    for path in FILES:
        assert ("task:" in path.read_text()) == (path in named), path


def test_no_name_is_one_of_lm_evals_own(tasks):
    own = set(TaskManager().all_tasks)
    assert not own & set(tasks.all_subtasks)


TINY = [n for n, d in benchmark_definitions().items() if "builder" in d["metadata"]]
REAL = [n for n in benchmark_definitions() if n not in TINY]


@pytest.mark.parametrize("name", TINY)
def test_a_task_loads_and_keeps_every_repeat(tasks, name):
    task = tasks.load([TASK_PREFIX + name])["tasks"][TASK_PREFIX + name]
    definition = benchmark_definitions()[name]
    # What lm-eval asks is what `generate` asks.
    shown = [(task.doc_to_text(doc), task.doc_to_target(doc)) for doc in task.test_docs()]
    assert shown == asked_of(definition, benchmark_rows(definition["metadata"]))
    responses = [["a", "b", "c"], ["d", "e", "f"]]
    (ensemble,) = task._filters
    (step,) = ensemble.filters
    assert list(step().apply(responses, [{}, {}])) == responses
    doc = next(iter(task.test_docs()))
    answer = f"\\boxed{{{task.doc_to_target(doc)}}}"
    graded = task.process_results(doc, [[answer, "none", "\\boxed{-9}", answer]])
    assert graded == {"average_at_n": 0.5}


def test_all_n_samples_count():
    doc = {"question": "", "answer": "7"}
    results = [[r"\boxed{7}", r"\boxed{8}", r"\boxed{7}", r"\boxed{7}"]]
    assert process_results(doc, results) == {"average_at_n": 0.75}
    assert all_samples([["a", "b"]], [doc]) == [["a", "b"]]


def test_rows_of_another_checksum_are_refused():
    metadata = benchmark_definitions()["chain-2"]["metadata"]
    with pytest.raises(ValueError, match=r"expected rows with SHA-256 000.*found"):
        benchmark_rows({**metadata, "sha256": "0" * 64})
    with pytest.raises(ValueError, match="unknown builder"):
        benchmark_rows({**metadata, "builder": "other"})


def test_every_task_shows_its_questions_by_a_prompt_that_is_known(monkeypatch):
    problem = AnsweredProblem(0, "", "7", ["a"], [1], [False], ["e"])
    for definition in benchmark_definitions().values():
        function = definition["doc_to_text"].rpartition(".")[2]
        shown = replace(problem, question=getattr(module, function)({"question": "What?"}))
        assert shown.question == "What?" + module.PROMPTS[function]
        assert module.rows_of(definition, [shown]) == [{"question": "What?", "answer": "7"}]
    monkeypatch.delitem(module.PROMPTS, "question")
    with pytest.raises(ValueError, match="doc_to_text question: known are math_question"):
        module.rows_of(benchmark_definitions()["chain-2"], [problem])


def test_problems_are_held_out():
    for name in TINY:
        assert all(is_held_out(question) for question in benchmark_questions(name))


def test_every_task_says_where_its_rows_come_from():
    for path in FILES:
        content = path.read_text()
        if "task:" in content:
            metadata = yaml.safe_load(content.replace("!function", ""))["metadata"]
            assert {"version", "rows", "sha256"} <= set(metadata)
            if "hub" in metadata:
                assert {"revision", "split", "names", "licence"} <= set(metadata)


def test_the_page_says_of_the_papers_benchmarks_what_their_files_say():
    """And names those of the smoke study; another benchmark needs no row."""
    page = (BENCHMARKS / "README.md").read_text()
    rows = re.findall(rf"^\| `{TASK_PREFIX}(\S+)` \|(.*)\|$", page, re.M)
    said = {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}
    assert {*paper()["benchmarks"], "linear-equation"} == said.keys()
    for name in paper()["benchmarks"]:
        definition = benchmark_definitions()[name]
        about = definition["metadata"]
        problems, samples, source, revision, _ = said[name]
        assert (int(problems), int(samples)) == (about["rows"], definition["repeats"])
        assert source == f"{about['hub']}, {about['split']}"
        assert revision == (
            "not known here" if about["revision"] == "main" else about["revision"][:8]
        )
    assert "`stapo_chain-2` … `stapo_chain-6`" in page
