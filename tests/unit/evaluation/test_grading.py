"""Grading: every verdict, known traps of math-verify, hostile answers, and the worker's life."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from time import process_time

import pyarrow.parquet as pq
import pytest
from grading_fuzz import pairs

from stapo.evaluation import grading
from stapo.evaluation.grading import (
    Grade,
    failure_fraction,
    grade,
    grade_all,
    last_boxed,
    normalise,
)

NEEDS_WORKER = (r"\sqrt{25}", r"\boxed{5}")


@pytest.fixture(autouse=True, scope="module")
def _no_worker_left():
    yield
    grading._stop_idle()


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{1}", "1"),
        (r"\boxed{1} then \boxed{2}.", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{}", ""),
        (r"\boxed{1} and \boxed{2", "1"),
        (r"\boxed{\frac{1}{2} and \boxed{", None),
        (r"} } { \boxed{1} }", "1"),
        ("boxed{1}", None),
        (r"\fbox{1}", None),
        ("", None),
        (r"\boxed{a \boxed{b} c}", "b"),
    ],
)
def test_last_boxed(text, content):
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("{" * 200_000, None),
        ("}" * 200_000, None),
        (r"\boxed{" * 30_000, None),
        (r"\boxed{1}" * 20_000 + r"\boxed{", "1"),
        (r"\boxed{" * 20_000 + "2" + "}" * 20_000, "2"),
        ("\\" * 200_000, None),
    ],
    ids=["open", "close", "unclosed", "boxes", "nested", "backslashes"],
)
def test_last_boxed_is_linear(text, content):
    start = time.process_time()
    assert last_boxed(text) == content
    # Measured: 0.03 s. Anything quadratic takes minutes.
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize(
    ("gold", "normal"),
    [
        ("4.5e33", r"4.5\times10^{33}"),
        ("-2.0E+07", r"-2.0\times10^{7}"),
        ("1e-5", r"1\times10^{-5}"),
        (".5e3", r".5\times10^{3}"),
        ("4.e0", r"4.\times10^{0}"),
        ("(1e2, 2e3)", r"(1\times10^{2}, 2\times10^{3})"),
        (" x^2 ", "x^2"),
        ("2e", "2e"),
        (r"e^{33}", r"e^{33}"),
        ("3e2x", "3e2x"),
        ("3e2.5", "3e2.5"),
        ("a1e5", "a1e5"),
        ("12345", "12345"),
    ],
)
def test_scientific_notation_is_rewritten(gold, normal):
    assert normalise(gold) == normal


EQUAL = [
    ("132", "132"),
    ("132", " 132 "),
    ("132", "0132"),
    ("0.5", r"\frac12"),
    (r"\frac{1}{2}", "0.5"),
    (r"\frac{1}{3}", "0.333333"),
    (r"\sqrt{2}", "1.414214"),
    ("4.5e33", r"4.5\times10^{33}"),
    ("1e-5", "0.00001"),
    ("1000", "1,000"),
    ("1,000", "1000"),
    ("x=5", "5"),
    ("5", "x=5"),
    ("(1,2)", "(1, 2)"),
    ("(1,2)", "1,2"),
    ("1,2", "(2,1)"),
    ("1,2", "2,1"),
    (r"\{1,2\}", r"\{2,1\}"),
    (r"\{1,2\}", "1,2"),
    (r"\frac{1}{2^{99}}", "2^{-99}"),
    (r"x+\frac{1}{2^{99}}", "2^{-99}+x"),
    (r"\sin^2(1)+\cos^2(1)-1", "0"),
    (r"50\%", "50"),
    (r"50\%", "0.5"),
    ("50", r"50\%"),
    (r"\infty", r"+\infty"),
    ("f(x)^2-1", "(f(x)-1)(f(x)+1)"),
    (r"\text{Evelyn}", "Evelyn"),
    (r"(-\infty,2)\cup(3,\infty)", r"\mathbb{R}\setminus[2,3]"),
    ("y=2x+1", "2x-y+1=0"),
    ("x^2+y^2=1", "2x^2+2y^2=2"),
    ("x^2+1=0", "-1=x^2"),
    (r"\frac{y}{x}=2", "y=2x"),
    ("x>2", r"(2,\infty)"),
    (r"(2,\infty)", "x>2"),
    ("[2,3]", r"2\le x\le 3"),
    (r"(-\infty,2)\cup(3,\infty)", r"x<2\text{ or }x>3"),
    ("2x=10", "x=5"),
    ("3x=36", "x=12"),
    ("x", r"\frac{2x}{2}"),
    # How it looks.
    ("5", r"\boldsymbol{5}"),
    ("5", r"\color{red}{5}"),
    ("5", r"\mathbf{5}"),
    ("1.25", r"\text{1.25}"),
    ("(1,2)", r"\bigl(1,2\bigr)"),
    ("6", r"\fbox{6}"),
    ("5", r"\[5\]"),
    ("1000", r"1\,000"),
    ("1000", "1 000"),
    ("30+7i", "30 + 7 i"),
    (r"\sqrt{1/n}", r"1/\sqrt{n}"),
    (r"\frac{1}{4} n", "(1)/(4) n"),
    ("5", r"5\text{ cm}"),
    ("6m", "6 m"),
    ("y^{\\prime}+y=0", "y'+y=0"),
    # Chains in which all agree.
    ("5", "2+3=5"),
    ("5050", r"\sum_{k=1}^{100}k=5050"),
    ("5050", r"1+2+\ldots+100=5050"),
    (r"\frac{2}{3}", r"\frac{2}{3}\approx 0.67"),
    ("0.667", r"P=\frac{2}{3}\approx 0.667"),
    ("1.68,0.45", r"x\approx 1.68, y\approx 0.45"),
    # Bases.
    ("2516_8", "2516_{8}"),
    ("2516_8", r"2516_{\text{eight}}"),
    ("2516_8", "(2516)_8"),
    ("2516_8", "2516"),
    ("2516_8", "x = 2516_8"),
    ("2516_8", "1358_{10}=2516_8"),
    ("5", "5_{10}"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_equal_answers_are_correct(gold, answer):
    assert grade(gold, rf"So \boxed{{{answer}}}.") == Grade("correct", answer)


UNEQUAL = [
    ("132", "133"),
    ("4.5e33", r"4.5\times10^{32}"),
    (r"\frac{1}{3}", "0.3333"),
    ("(1,2)", "(2,1)"),
    ("[1,2]", "(1,2)"),
    # math-verify raises ValueError at what is no number.
    (r"\frac{1}{0}", "(1,2)"),
    # Differences below 1e-15 that math-verify chops, wherever they stand.
    (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}"),
    ("1/2^{99}", "1/2^{98}"),
    ("1/2^{400}", "1/2^{399}"),
    ("e^{-100}", "e^{-101}"),
    ("x+2^{-99}", "x+2^{-98}"),
    ("x=1/2^{99}", "x=1/2^{98}"),
    ("x<2^{-99}", "x<2^{-98}"),
    ("1/2^{99},1", "1/2^{98},1"),
    ("[1/2^{99},1]", "[1/2^{98},1]"),
    # Decimals that it rounds to six places.
    ("0.0000001", "0.0000002"),
    ("1e-7", "0.0000002"),
    # Roots in parentheses.
    ("(1,2)", r"\{1,2\}"),
    (r"\{1,2\}", "(1,2)"),
    ("(1,2,3)", r"\left\{1,2,3\right\}"),
    # Equations without real solutions.
    ("x^2+1=0", "x^2+2=0"),
    ("x+1=x", "x+2=x"),
    ("2+2=4", "5+5=4"),
    # What its reader of plain text takes for the last number.
    ("4", r"4\sqrt{2}"),
    ("3*x-1*y+13=0", "3x+4y+14=0"),
    # Bases.
    ("2516_8", "2516_7"),
    ("101_2", "101_{10}"),
    ("101_2", "5_{10}"),
    ("5", "5_7"),
    # Marks.
    ("5", "5'"),
    ("57", "5'7"),
    ("5", '5"'),
    ("5", r"5^{\prime}"),
    ("(1,34)", "(1,34')"),
    ("5", "5^T"),
    # Several answers.
    ("6", r"\[5\]\[6\]"),
    ("6", r"\(5\)\(6\)"),
    ("9", "4 5"),
    ("a", "a b c"),
    ("5", r"5\text{ is wrong; it is }\frac{6}{1}"),
    # Chains that contradict themselves.
    ("5", r"5\approx 7"),
    ("143", r"144\approx 143"),
    ("5", "2+2=5"),
    ("5,7", r"5,7\approx 8"),
    # Not worked out, or not to the end.
    ("1,2,3", r"1,2,3,\ldots"),
    ("5", r"5\ldots"),
    ("5050", r"\sum_{k=1}^{100}k"),
    (r"\frac{n(n+1)}{2}", r"\sum_{k=1}^{n}k"),
    ("5", r"\lim_{x\to 5}x"),
    ("6", r"\int_0^2 3\,dx"),
    ("5", r"\gcd(10,15)"),
    ("30", r"\operatorname{lcm}(10,15)"),
    ("2", r"2^{10}\mod 7"),
    ("5", r"5\pmod 7"),
    ("5", r"\max(3,5)"),
    ("5", r"\lfloor 5.2\rfloor"),
    # What math-verify takes for a unit.
    ("5", "5t"),
    ("3m", "3d"),
    ("6m", "6"),
    ("5", r"5\text{ million}"),
    # Other kinds than the gold's.
    ("x=5", "2x=10"),
    ("x>5", r"[5,\infty)"),
    ("2x=10", "x^2=25"),
]


@pytest.mark.parametrize(("gold", "answer"), UNEQUAL)
def test_unequal_answers_are_wrong(gold, answer):
    assert grade(gold, rf"So \boxed{{{answer}}}.") == Grade("wrong", answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        r"\fbox{4} 5",
        r"\not 4",
        r"\star 4",
        r"4\newline 6",
        r"\phantom{4}",
        "?",
        r"\text{}",
        "4\u221a(2)",
        "-1./3",
        "a ?? 4",
    ],
)
def test_an_answer_that_cannot_be_read_is_not_wrong(answer):
    assert grade("4", rf"\boxed{{{answer}}}") == Grade("unparsable", answer)


def test_no_box_is_not_wrong():
    assert grade("5", "the answer is 5") == Grade("no_box", None)


HOSTILE = {
    "tower": "9^{9^{9^{9}}}",
    "factorial": "100000!",
    "factorials": "100000!!!",
    "digits": "7" * 200_000,
    "boxes": r"\boxed{6}" * 20_000,
    "roots": r"\sqrt{" * 300 + "2" + "}" * 300,
    "braces": "{" * 5000 + "}" * 5000,
    "control": "\x00\x1b[31m\x07\u202e",
    "newlines": '1\n["correct", false]\n"correct"',
    "code": "__import__('os').system('touch executed')",
    "text code": r"\text{__import__('os').system('touch executed')}",
    "surrogate": "\ud800",
}


def test_hostile_answers_neither_hang_nor_run_nor_change_their_neighbours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = []
    for i, text in enumerate(HOSTILE.values()):
        # Unequal neighbours, or they would be graded once.
        pairs += [
            ("5", rf"\boxed{{{text}}}"),
            (rf"\frac{{{10 + 4 * i}}}{{4}}", rf"\boxed{{{i}+2.5}}"),
        ]
    # As the answer to be judged: the last box would be a harmless one.
    monkeypatch.setattr(grading, "final_answer", lambda _, response: response[len(r"\boxed{") : -1])
    grades = grade_all(pairs, seconds=1.0)
    assert [g.verdict for g in grades[1::2]] == ["correct"] * len(HOSTILE)
    hostile = dict(zip(HOSTILE, (g.verdict for g in grades[::2]), strict=True))
    assert "correct" not in hostile.values()
    assert hostile["tower"] == "timeout"
    assert hostile["code"] == "wrong"
    assert list(tmp_path.iterdir()) == []


def test_many_boxes_are_read_once():
    assert grade("4", r"\boxed{4}" * 20_000).correct
    assert grade("4", r"\boxed{" * 20_000).verdict == "no_box"


def test_too_much_memory_is_a_crash():
    # 30 MB of white space do not fit into 16 MiB.
    pairs = [(r"\frac{10}{4}", rf"\boxed{{2{' ' * 30_000_000}.5}}"), NEEDS_WORKER]
    first, second = grade_all(pairs, memory_bytes=2**24)
    assert first.verdict == "crash"
    assert second.correct


def test_too_deep_a_recursion_is_a_crash():
    first, second = grade_all([("x", rf"\boxed{{x{'!' * 300}}}"), NEEDS_WORKER])
    assert first.verdict == "crash"
    assert second.correct


def test_a_worker_may_add_the_given_memory_and_only_verdicts_leave_it():
    grading._stop_idle()
    assert grade_all([NEEDS_WORKER], memory_bytes=2**27)[0].correct
    (process,) = grading._idle[2**27]
    lines = Path(f"/proc/{process.pid}/limits").read_text().splitlines()
    (limit,) = [line.split()[3] for line in lines if line.startswith("Max address space")]
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
    added = int(limit) - pages * os.sysconf("SC_PAGE_SIZE")
    # One that had grown by more than an eighth would have been replaced.
    assert 7 / 8 * 2**27 <= added <= 2**27
    # What a library prints goes nowhere.
    assert os.readlink(f"/proc/{process.pid}/fd/1") == os.devnull


def _kill_after_start(monkeypatch, seconds):
    started = grading._start

    def start(memory_bytes):
        process = started(memory_bytes)
        threading.Timer(seconds, process.kill).start()
        return process

    monkeypatch.setattr(grading, "_start", start)


def test_a_killed_worker_is_a_crash(monkeypatch):
    grading._stop_idle()
    _kill_after_start(monkeypatch, 0.3)
    assert grade("5", r"\boxed{9^{9^{9^{9}}}}").verdict == "crash"


def test_a_worker_that_died_between_two_answers_is_nobodys_fault():
    assert grade(*NEEDS_WORKER).correct
    for process in grading._idle[grading.MEMORY_BYTES]:
        process.kill()
        process.wait()
    assert grade(*NEEDS_WORKER).correct


def test_an_interrupted_answer_is_not_taken_for_the_next(monkeypatch):
    assert grade(*NEEDS_WORKER).correct
    read = grading._read

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(grading, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        grade(*NEEDS_WORKER)
    monkeypatch.setattr(grading, "_read", read)
    assert grade(NEEDS_WORKER[0], r"\boxed{6}").verdict == "wrong"


def test_the_start_of_a_worker_does_not_count(monkeypatch):
    grading._stop_idle()
    started = grading._start
    seconds = []

    def start(memory_bytes):
        before = time.perf_counter()
        process = started(memory_bytes)
        seconds.append(time.perf_counter() - before)
        return process

    monkeypatch.setattr(grading, "_start", start)
    assert grade_all([NEEDS_WORKER], seconds=0.2)[0].correct
    assert seconds[0] > 0.2


def test_a_worker_that_does_not_start_is_an_error(monkeypatch):
    grading._stop_idle()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match=r"does not start or .*; run /bin/false"):
        grade(*NEEDS_WORKER)


def _count_requests(monkeypatch):
    requests = []
    ask = grading._ask
    monkeypatch.setattr(grading, "_ask", lambda *args: requests.append(args[1]) or ask(*args))
    return requests


@pytest.mark.parametrize("workers", [1, 2])
def test_order_is_kept_and_equal_answers_are_graded_once(monkeypatch, workers):
    requests = _count_requests(monkeypatch)
    pairs = [
        ("2", r"\boxed{\sqrt{4}}"),
        ("2", "none"),
        ("2", r"\boxed{\sqrt{5}}"),
        ("3", r"\boxed{\sqrt{4}}"),
        ("3", r"\boxed{3}"),
        ("2", r"otherwise put, \boxed{\sqrt{4}}"),
    ] * 50
    verdicts = [g.verdict for g in grade_all(pairs, workers=workers)]
    assert verdicts == ["correct", "no_box", "wrong", "wrong", "correct", "correct"] * 50
    assert len(requests) == 3


def test_what_needs_no_mathematics_needs_no_worker(monkeypatch):
    requests = _count_requests(monkeypatch)
    pairs = [
        ("np.arcsin(1)", r"\boxed{ np.arcsin(1) }"),
        ("5", r"\boxed{05}"),
        ("5", "5"),
        (r"\frac{10}{4}", r"\boxed{2.5}"),
    ]
    assert [g.verdict for g in grade_all(pairs)] == ["correct", "correct", "no_box", "correct"]
    assert grade_all([]) == []
    assert requests == []


def test_it_works_in_a_thread():
    verdicts = []
    thread = threading.Thread(target=lambda: verdicts.append(grade(*NEEDS_WORKER).verdict))
    thread.start()
    thread.join()
    assert verdicts == ["correct"]


def _run(script, *, check=True):
    """Run a script that grades; return its last line, the pid of its worker."""
    prelude = "import os, signal, sys\nfrom stapo.evaluation import grading\n"
    prelude += r"PAIR = (r'\sqrt{25}', r'\boxed{5}')" + "\n"
    prelude += "def pid(): return grading._idle[grading.MEMORY_BYTES][0].pid\n"
    result = subprocess.run(
        [sys.executable, "-c", prelude + script], capture_output=True, text=True, timeout=60
    )
    if check:
        assert result.returncode == 0, result.stderr
    return int(result.stdout.split()[-1])


def _has_ended(pid):
    # Nobody may have reaped it yet; a zombie has no address space.
    statm = Path(f"/proc/{pid}/statm")
    return not statm.exists() or statm.read_text().startswith("0 ")


def test_the_caller_never_imports_mathematics():
    assert _run(
        "assert grading.grade(*PAIR).correct\n"
        "heavy = {'torch', 'transformers', 'sympy', 'math_verify'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "print(pid())"
    )


def test_the_worker_ends_with_its_caller():
    pid = _run("grading.grade(*PAIR); print(pid())")
    assert _has_ended(pid)


def test_the_worker_ends_after_its_caller_was_killed_even_within_an_answer():
    pid = _run(
        "import threading, time\n"
        "grading.grade(*PAIR); print(pid(), flush=True)\n"
        r"hostile = ('5', r'\boxed{9^{9^{9^{9}}}}')" + "\n"
        "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()\n"
        "grading.grade_all([hostile], seconds=1.0)",
        check=False,
    )
    # One second of processor time, on a machine however busy.
    deadline = time.monotonic() + 60.0
    while not _has_ended(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _has_ended(pid)


def test_a_fork_neither_uses_nor_ends_the_worker_of_its_parent():
    _run(
        "assert grading.grade(*PAIR).correct\n"
        "mine = pid()\n"
        "if not (child := os.fork()):\n"
        "    assert grading.grade(*PAIR).correct\n"
        "    assert pid() != mine\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert grading.grade(*PAIR).correct\n"
        "assert pid() == mine\n"
        "print(mine)"
    )


def test_workers_that_timed_out_are_gone(monkeypatch):
    grading._stop_idle()
    started = grading._start
    processes = []
    monkeypatch.setattr(
        grading, "_start", lambda memory: processes.append(started(memory)) or processes[-1]
    )
    grades = grade_all([("5", rf"\boxed{{9^{{9^{{9^{{{n}}}}}}}}}") for n in (8, 9)], seconds=0.3)
    assert [g.verdict for g in grades] == ["timeout"] * 2
    assert len(processes) == 2
    # Neither running nor zombies.
    assert not any(Path(f"/proc/{process.pid}").exists() for process in processes)


def test_the_share_of_failures_counts_the_graders_own():
    verdicts = ["timeout", "crash", "wrong", "unparsable", "no_box", "correct", "correct", "wrong"]
    assert failure_fraction([Grade(verdict, None) for verdict in verdicts]) == 0.25
    assert failure_fraction([]) == 0.0


@pytest.mark.skipif(
    "STAPO_BENCHMARK_ROWS" not in os.environ,
    reason="STAPO_BENCHMARK_ROWS names no directory of parquet files with the benchmarks' rows",
)
def test_every_gold_answer_of_the_real_benchmarks_grades_itself():
    rows = [
        (path.stem, row["reward_model"]["ground_truth"])
        for path in sorted(Path(os.environ["STAPO_BENCHMARK_ROWS"]).glob("*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]
    assert rows
    boxed = grade_all([(gold, rf"\boxed{{{gold}}}") for _, gold in rows])
    assert [row for row, one in zip(rows, boxed, strict=True) if not one.correct] == []
    # Past the comparison of strings: the worker itself must agree.
    failed = [
        row
        for row in rows
        if grading._verdict(row[1], normalise(row[1]), 5.0, grading.MEMORY_BYTES) != "correct"
    ]
    assert failed == []


@pytest.mark.parametrize("text", ["7", "1.5", "1e", "0", "-", " ", ".", "1/", "{"])
def test_the_caller_reads_a_hostile_answer_in_linear_time(text):
    def seconds(length: int) -> float:
        long, times = "1e" + text * (length // len(text)) + "x", []
        for _ in range(5):
            start = process_time()
            grading._obvious("4.5e33", long, grading.without_full_stop(long))
            last_boxed(rf"\boxed{{{long}}}")
            times.append(process_time() - start)
        return min(times)

    # 16 times as long: linear work takes 16 times as long, quadratic 256 times.
    assert seconds(160_000) < 64 * seconds(10_000)


def test_what_needs_no_mathematics_is_judged_as_by_mathematics():
    numbers = [
        "3",
        "-3",
        "0.75",
        r"\frac{3}{4}",
        "3/4",
        r"\dfrac{6}{8}",
        "75",
        "4.5e3",
        "4500",
        "0",
    ]
    numbers += [r"4.50 \times 10^{3}", "4.6e3", "1e-8", "2e-8", "-0.75", "750000", "0.7501", "1/3"]
    numbers += ["0.5", "0.49"]
    told = 0
    for gold in numbers:
        for answer in numbers:
            obvious = grading._obvious(gold, answer, answer)
            if gold != answer and obvious is not None:
                told += 1
                judged = grading._verdict(gold, answer, 5.0, grading.MEMORY_BYTES)
                assert (gold, answer, obvious) == (gold, answer, judged)
    assert told > 300


def test_few_of_many_random_pairs_are_judged_wrongly():
    found = list(pairs(seed=1, count=400))
    grades = grade_all([(pair.gold, rf"\boxed{{{pair.answer}}}") for pair in found], workers=2)
    wrong = [pair for pair, one in zip(found, grades, strict=True) if one.correct != pair.equal]
    assert wrong == []


def test_a_verdict_depends_neither_on_what_came_before_nor_on_the_number_of_workers():
    found = [(p.gold, rf"\boxed{{{p.answer}}}") for p in pairs(seed=2, count=60)]
    found.insert(30, ("5", rf"\boxed{{x{'!' * 300}}}"))
    verdicts = []
    for order, workers in ((1, 1), (-1, 4)):
        grading._stop_idle()
        grades = grade_all(found[::order], workers=workers)
        verdicts.append([one.verdict for one in grades[::order]])
    assert verdicts[0] == verdicts[1]
    assert verdicts[0][30] == "crash"


SLOW = "+".join(rf"\sqrt[3]{{{k}}}" for k in range(2, 300))


def _processor_seconds(asked):
    """Return the verdict of the last pair, and the processor time of one worker that lives for them."""
    grading._stop_idle()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    verdict = grade_all(asked)[-1].verdict
    grading._stop_idle()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return verdict, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_a_busy_machine_gives_the_verdict_of_an_idle_one():
    _, start = _processor_seconds([NEEDS_WORKER])
    idle, seconds = _processor_seconds([("5", rf"\boxed{{{SLOW}}}")])
    limit = 3 * max(seconds - start, 0.5)
    # They end by themselves, should this test be killed.
    spin = f"import time; end = time.time() + {60 + 20 * limit}\nwhile time.time() < end: pass"
    spinning = [
        subprocess.Popen([sys.executable, "-c", spin]) for _ in range(4 * (os.cpu_count() or 1))
    ]
    try:
        busy = grade_all([("5", rf"\boxed{{{SLOW}}}")], seconds=limit)[0].verdict
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert (idle, busy) == ("wrong", "wrong")


def test_a_worker_that_is_stopped_from_outside_is_no_slow_answer(monkeypatch):
    grading._stop_idle()
    started = grading._start

    def start(memory_bytes):
        process = started(memory_bytes)
        process.send_signal(signal.SIGSTOP)
        # Not before: on a busy machine a worker that starts may wait this long.
        monkeypatch.setattr(grading, "STALLED_SECONDS", 0.5)
        return process

    monkeypatch.setattr(grading, "_start", start)
    assert grade(*NEEDS_WORKER).verdict == "crash"


def test_a_worker_that_cannot_judge_known_answers_does_not_start():
    # Without memory every answer would be a crash, and every score nearly zero.
    with pytest.raises(RuntimeError, match="misjudges known answers"):
        grade_all([NEEDS_WORKER], memory_bytes=0)


def test_without_an_answer_to_judge_there_is_no_bar(capsys):
    assert [one.verdict for one in grade_all([("7", r"\boxed{7}")], progress=True)] == ["correct"]
    assert capsys.readouterr().err == ""
