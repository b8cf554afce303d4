"""The grader's limits: hostile answers, workers that die, the life of the workers."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from stapo.evaluation import grading
from stapo.evaluation.grading import grade, grade_all

NEEDS_WORKER = (r"\sqrt{25}", r"\boxed{\frac{10}{2}}")
ENDLESS = r"\boxed{9^{9^{9^{9}}}}"


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


def test_hostile_answers_neither_hang_nor_run_nor_change_their_neighbours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(grading, "SECONDS", 1.0)
    # As the answer to be judged: the last box would be a harmless one.
    monkeypatch.setattr(grading, "final_answer", lambda _, response: response)
    neighbours = [(rf"\frac{{{10 + 4 * i}}}{{4}}", f"{i}+2.5") for i in range(len(HOSTILE))]
    pairs = [("5", text) for text, _ in HOSTILE.values()]
    grades = grade_all([*pairs, *neighbours])
    hostile = dict(zip(HOSTILE, (one.verdict for one in grades), strict=False))
    assert hostile == {name: verdict for name, (_, verdict) in HOSTILE.items()}
    assert all(one.correct for one in grades[len(HOSTILE) :])
    assert list(tmp_path.iterdir()) == []


def test_memory_is_limited(monkeypatch):
    assert grade(*NEEDS_WORKER).correct
    (worker,) = grading._idle
    limits = Path(f"/proc/{worker.pid}/limits").read_text().splitlines()
    (limit,) = [line.split()[3] for line in limits if line.startswith("Max address space")]
    assert int(limit) == grading.MEMORY_BYTES
    # With too little, every answer would be a crash, and every score nearly zero.
    grading._idle.clear()
    monkeypatch.setattr(grading, "MEMORY_BYTES", 2**20)
    with pytest.raises(RuntimeError, match="does not start or misjudges known answers; run"):
        grade(*NEEDS_WORKER)


def test_workers_that_die_or_are_interrupted_are_replaced(monkeypatch):
    assert grade(*NEEDS_WORKER).correct
    (worker,) = grading._idle
    worker.kill()
    worker.wait()
    # One that died between two answers is no crash, one that is killed within an answer is.
    assert grade(*NEEDS_WORKER).correct
    grading._idle.clear()
    started, workers = grading._start, []
    monkeypatch.setattr(grading, "_start", lambda: workers.append(started()) or workers[-1])
    threading.Timer(2.0, lambda: workers[0].kill()).start()
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


def counted(monkeypatch):
    asked, ask = [], grading._ask
    monkeypatch.setattr(grading, "_ask", lambda *args: asked.append(args[0].pid) or ask(*args))
    return asked


def test_order_is_kept_and_equal_answers_are_graded_once(monkeypatch, capsys):
    asked = counted(monkeypatch)
    trivial = [("np.arcsin(1)", r"\boxed{ np.arcsin(1) }"), ("5", r"\boxed{05}"), ("5", "5")]
    verdicts = [one.verdict for one in grade_all(trivial, progress=True)]
    assert (verdicts, asked, capsys.readouterr().err) == (["correct", "correct", "no_box"], [], "")
    pairs = [
        ("2", r"\boxed{\sqrt{4}}"),
        ("2", "none"),
        ("2", r"\boxed{\sqrt{5}}"),
        ("3", r"\boxed{\sqrt{4}}"),
        ("2", r"otherwise put, \boxed{\sqrt{4}}"),
    ] * 50
    expected = ["correct", "no_box", "wrong", "wrong", "correct"] * 50
    for workers in (1, 2):
        assert [one.verdict for one in grade_all(pairs, workers=workers)] == expected
    assert (len(asked), len(set(asked))) == (6, len(grading._idle))


def test_a_verdict_depends_neither_on_what_came_before_nor_on_the_number_of_workers():
    answers = (r"\sqrt{4}", "x!!", r"\text{even}", "2,3", r"\frac{4}{2}", "(1,2]", "y=2x")
    pairs = [(gold, rf"\boxed{{{answer}}}") for gold in answers for answer in answers]
    first = grade_all(pairs)
    grading._idle.clear()
    assert grade_all(pairs[::-1], workers=3)[::-1] == first


def run(script):
    """Run a script that grades, and return the pid of its worker, which it prints."""
    prelude = "import os, signal, sys, threading\nfrom stapo.evaluation import grading\n"
    prelude += f"PAIR, ENDLESS = {NEEDS_WORKER!r}, {ENDLESS!r}\n"
    prelude += "def pid(): return grading._idle[0].pid\n"
    result = subprocess.run(
        [sys.executable, "-c", prelude + script], capture_output=True, text=True, timeout=60
    )
    assert result.returncode in (0, -signal.SIGKILL), result.stderr
    return int(result.stdout.split()[-1])


LIVES = {
    "ends": "grading.grade(*PAIR); print(pid())",
    "killed within an answer": (
        "grading.SECONDS = 1.0; grading.grade(*PAIR); print(pid(), flush=True)\n"
        "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()\n"
        "grading.grade('5', ENDLESS)"
    ),
    "forks": (
        "grading.grade(*PAIR); mine = pid(); print(mine, flush=True)\n"
        "if not os.fork():\n"
        "    assert grading.grade(*PAIR).correct and pid() != mine\n"
        "    sys.exit(0)\n"
        "assert os.wait()[1] == 0\n"
        "assert grading.grade(*PAIR).correct and pid() == mine"
    ),
    "does not import mathematics": (
        "grading.grade(*PAIR); print(pid())\n"
        "assert not {'torch', 'transformers', 'sympy', 'math_verify'} & set(sys.modules)"
    ),
}


@pytest.mark.parametrize("script", LIVES.values(), ids=LIVES)
def test_a_worker_ends_with_the_process_that_started_it(script):
    pid = run(script)
    # One second of processor time, on a machine however busy; a zombie has no address space.
    statm, deadline = Path(f"/proc/{pid}/statm"), time.monotonic() + 60.0
    while statm.exists() and not statm.read_text().startswith("0 "):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_a_busy_machine_gives_the_verdict_of_an_idle_one(monkeypatch):
    # Measured: 0.6 s of processor time, so 2.6 s or more beside eight other processes on two cores.
    slow = "+".join(rf"\sqrt[3]{{{k}}}" for k in range(2, 120))
    monkeypatch.setattr(grading, "SECONDS", 2.0)
    grade(*NEEDS_WORKER)
    spin = "import time; end = time.time() + 60\nwhile time.time() < end: pass"
    spinning = [
        subprocess.Popen([sys.executable, "-c", spin]) for _ in range(4 * (os.cpu_count() or 1))
    ]
    try:
        assert grade("5", rf"\boxed{{{slow}}}").verdict == "wrong"
    finally:
        for process in spinning:
            process.kill()
            process.wait()
