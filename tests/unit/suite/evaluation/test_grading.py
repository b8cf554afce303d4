"""The grader's limits: hostile answers, workers that die, the life of the workers."""

import json
import signal
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from programs import python

from stapo.suite.evaluation import grading
from stapo.suite.evaluation.grading import Grade, grade_all, grade_answers

NEEDS_WORKER = (r"\sqrt{25}", r"\boxed{\frac{10}{2}}")
ENDLESS = r"\boxed{9^{9^{9^{9}}}}"


def grade(gold: str, response: str) -> Grade:
    return grade_all([(gold, response)])[0]


def test_a_task_judges_also_long_answers(monkeypatch):
    told = Grade("correct", "moves")
    monkeypatch.setattr(grading, "_judged", lambda pair, verifier: told)
    assert grade_answers([("{}", "A to B, " * 1000)], "reasoning_gym") == [told]


@pytest.fixture(autouse=True)
def _new_workers():
    grading._idle.clear()
    yield
    grading._idle.clear()


HOSTILE = {
    "tower": ("9^{9^{9^{9}}}", "timeout"),
    "factorials": ("100000!!!", "timeout"),
    "recursion": ("x" + "!" * 300, "wrong"),
    "roots": (r"\sqrt{" * 200 + "2" + "}" * 200, "unparsable"),
    "digits": ("7" * 200_000, "unparsable"),
    "line": ('1\n["correct", true]\n"correct"', "unparsable"),
    "code": ("__import__('os').system('touch executed')", "unparsable"),
    "surrogate": ("\ud800", "unparsable"),
}


@pytest.mark.slow
def test_hostile_answers_neither_hang_nor_run_nor_change_their_neighbours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(grading, "SECONDS", 3.0)
    neighbours = [(rf"\frac{{{10 + 4 * i}}}{{4}}", f"{i}+2.5") for i in range(len(HOSTILE))]
    pairs = [("5", text) for text, _ in HOSTILE.values()]
    grades = grade_answers([*pairs, *neighbours])
    hostile = dict(zip(HOSTILE, (one.verdict for one in grades), strict=False))
    assert hostile == {name: verdict for name, (_, verdict) in HOSTILE.items()}
    assert all(one.correct for one in grades[len(HOSTILE) :])
    assert list(tmp_path.iterdir()) == []


def test_memory_is_limited():
    assert grade(*NEEDS_WORKER).correct
    (worker,) = grading._idle.values()
    limits = Path(f"/proc/{worker.pid}/limits").read_text().splitlines()
    (limit,) = [line.split()[3] for line in limits if line.startswith("Max address space")]
    assert int(limit) == grading.MEMORY_BYTES


@pytest.mark.slow
def test_workers_that_die_or_are_interrupted_are_replaced(monkeypatch):
    assert grade(*NEEDS_WORKER).correct
    (worker,) = grading._idle.values()
    worker.kill()
    worker.wait()
    # One that died between two answers is no crash, one that is killed within an answer is.
    assert grade(*NEEDS_WORKER).correct
    grading._idle.clear()
    started, workers = grading._start, []

    def start(verifier):
        workers.append(started(verifier))
        if len(workers) == 1:
            threading.Timer(1.0, workers[0].kill).start()
        return workers[-1]

    monkeypatch.setattr(grading, "_start", start)
    assert grade("5", ENDLESS).verdict == "crash"
    # An answer that was interrupted is not taken for the next.
    assert grade(*NEEDS_WORKER).correct
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(json, "loads", Mock(side_effect=KeyboardInterrupt))
        grade(*NEEDS_WORKER)
    assert grade(NEEDS_WORKER[0], r"\boxed{6.5}").verdict == "wrong"
    grading._idle.clear()
    monkeypatch.setattr(grading, "SECONDS", 0.3)
    assert {one.verdict for one in grade_all([("5", ENDLESS), ("6", ENDLESS)])} == {"timeout"}
    # Neither running nor zombies.
    assert not any(Path(f"/proc/{worker.pid}").exists() for worker in workers[-2:])


def test_order_is_kept_and_equal_answers_are_graded_once(monkeypatch, capsys):
    asked, ask = [], grading._ask
    monkeypatch.setattr(grading, "_ask", lambda *args: asked.append(args[0].pid) or ask(*args))
    trivial = [("np.arcsin(1)", r"\boxed{ np.arcsin(1) }"), ("5", r"\boxed{05}"), ("5", "5")]
    verdicts = [one.verdict for one in grade_all(trivial, progress=True)]
    assert (verdicts, asked, capsys.readouterr().err) == (["correct", "correct", "no_box"], [], "")
    responses = [r"\boxed{\sqrt{4}}", "none", r"\boxed{\sqrt{5}}", r"again, \boxed{\sqrt{4}}"]
    pairs = [*(("2", response) for response in responses), ("3", responses[0])] * 50
    expected = ["correct", "no_box", "wrong", "correct", "wrong"] * 50
    assert [one.verdict for one in grade_all(pairs)] == expected
    assert (len(asked), len(set(asked))) == (3, 1)


def test_a_verdict_does_not_depend_on_what_came_before():
    answers = (r"\sqrt{4}", "x!!", r"\text{even}", "2,3", r"\frac{4}{2}", "(1,2]", "y=2x")
    pairs = [(gold, rf"\boxed{{{answer}}}") for gold in answers for answer in answers]
    first = grade_all(pairs)
    grading._idle.clear()
    assert grade_all(pairs[::-1])[::-1] == first


LIFE = f"""
import os, signal, sys, threading
from stapo.suite.evaluation import grading
PAIR, ENDLESS = {NEEDS_WORKER!r}, {ENDLESS!r}
grade = lambda *pair: grading.grade_all([pair])[0]
assert grade(*PAIR).correct
assert not {{'torch', 'transformers', 'sympy', 'math_verify'}} & set(sys.modules)
worker = grading._idle["math_verify"].pid
if not os.fork():
    assert grade(*PAIR).correct and grading._idle["math_verify"].pid != worker
    sys.exit(0)
assert os.wait()[1] == 0
assert grade(*PAIR).correct and grading._idle["math_verify"].pid == worker
grading.SECONDS = 1.0
grading._idle.clear()
grade(*PAIR)
print(grading._idle["math_verify"].pid, flush=True)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
grade('5', ENDLESS)
"""


@pytest.mark.slow
def test_a_worker_ends_with_the_process_that_started_it():
    result = python("-c", LIFE, code=-signal.SIGKILL)
    # One second of processor time, on a machine however busy; a zombie has no address space.
    statm, deadline = Path(f"/proc/{result.stdout.strip()}/statm"), time.monotonic() + 60.0
    while statm.exists() and not statm.read_text().startswith("0 "):
        assert time.monotonic() < deadline
        time.sleep(0.1)
