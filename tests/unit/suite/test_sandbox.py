"""Functions as answers: what their tests accept, and hostile code in the sandbox."""

import json
import platform
import socket
import sys
from pathlib import Path

import pytest
from programs import missing, python
from studies import lines_of

from stapo.suite import sandbox
from stapo.suite.answers import READERS
from stapo.suite.evaluation.grading import grade_all
from stapo.suite.repository import ROOT
from stapo.suite.sandbox import bubblewrap
from stapo.suite.study import read_study
from stapo.suite.training.rewards import answer_reward

needs_bubblewrap = pytest.mark.usefixtures("installed")
GOLD = json.dumps({"function": "f", "tests": [[[1], 2], [[-1], 0]]})
RIGHT = "def f(x):\n    return x + 1"
NODE = (
    "import dataclasses\n@dataclasses.dataclass\nclass Node:\n    x: int\n    left: 'Node' = None\n"
)
REACHING = {
    "accounts": "open('/etc/passwd')",
    "repository": f"open({str(ROOT / 'pyproject.toml')!r})",
    "file of the user": "open(SECRET)",
    "processes": "open('/proc/self/maps')",
    "environment": "import os; os.environ['PATH']",
    "network": "import socket; socket.create_connection(('127.0.0.1', PORT))",
    "socket": "import socket; socket.socket()",
    "pair of sockets": "import socket; socket.socketpair()",
    "pipes": "import os; [os.pipe() for _ in range(99)]",
    "file": "open(MADE, 'w').write('x')",
    "memory file": "import os; os.write(os.memfd_create('x'), b'x')",
    "shared memory": "import ctypes; c = ctypes.CDLL(None); i = c.shmget(0, 9, 0o1600); "
    "assert i >= 0; c.shmctl(i, 0, None)",
    "process": "import os; os.fork() or os._exit(0)",
    "program": f"import subprocess; subprocess.run({sys.executable!r}, input=b'')",
    "thread": "import threading; threading.Thread(target=print).start()",
    "namespace": "import ctypes; assert ctypes.CDLL(None).unshare(0x08000000) == 0",
    "memory": "bytearray(2**30)",
    "limits": "import resource as r; r.setrlimit(r.RLIMIT_CPU, (99, 99))",
    "timers": "import ctypes as m; c, t = m.CDLL(None), m.byref(m.c_void_p()); "
    "assert not any([c.timer_create(0, None, t) for _ in range(99)])",
    **{
        call: f"import ctypes as c; c.CDLL(None, use_errno=True).{call}; assert c.get_errno() != 38"
        for call in (
            "fchmod(-1, 0)",
            "fsetxattr(-1, b'', b'', 0, 0)",
            "process_vm_readv(1, 0, 0, 0, 0, 0)",
            "process_vm_writev(1, 0, 0, 0, 0, 0)",
            "syscall(438, -1, 0, 0)",  # pidfd_getfd
            "vmsplice(-1, 0, 0, 0)",
            f"syscall({206 if platform.machine() == 'x86_64' else 0}, 0, 0)",  # io_setup
        )
    },
}
"""What is reached outside and not inside: code that fails there, before it gives the right result."""
EXHAUSTING = {
    "loop": "while True: pass",
    "power": "9**9**9**9",
    "sleep": "import time; time.sleep(60)",
    "output": "while True: print('x' * 10**6)",
    "errors": "import os\n    while True: os.write(2, b'x' * 10**6)",
    "results": "import os\n    while True: os.write(3, b'x' * 10**6)",
    "long result": "return 'x' * 10**7",
    "request": "import os; os.ftruncate(0, 2**30); return x + 1",
    "recursion": "return f(x)",
    "brackets": "(" * 10**5,
    "processes": "import os\n    while True:\n        try: os.fork()\n        except OSError: pass",
    "parent": "import os, signal; os.kill(os.getppid(), 9); os.kill(-1, 9)",
}
CHEATING = {
    "exit": "raise SystemExit",
    "end": "import os; os._exit(0)",
    "success": "import os; os.write(3, b'[true, true]'); os._exit(0)",
    "nested": "import os; os.write(3, b'[' * 10**5); os._exit(0)",
    "digits": "import os; os.write(3, b'[' + b'9' * 10**5 + b', 0]'); os._exit(0)",
    "bytes": "import os; os.write(3, bytes(range(256))); os._exit(0)",
    "equal": "return type('Equal', (int,), {'__eq__': lambda *_: True})(7)",
    "object": "return type('Equal', (), {'__eq__': lambda *_: True})()",
    "patch": "import builtins, json; builtins.all = json.loads = lambda *_: True; return True",
    "caller": "import sys; sys._getframe(2).f_locals['request'].clear()",
    "not a number": "return float('nan')",
    "name": "global f; f = None",
    "surrogate": "'\ud800'",
}


def written(body: str) -> str:
    return f"def f(x):\n    {body}\n"


def response(code: str) -> str:
    return f"Here:\n```python\n{code}\n```"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := sandbox.missing():
        missing(reason)
    monkeypatch.setitem(bubblewrap.LIMITS, "RLIMIT_CPU", 1)
    monkeypatch.setattr(bubblewrap, "WALL_SECONDS", 4.0)


@needs_bubblewrap
def test_code_reaches_nothing_outside(tmp_path):
    secret, made = tmp_path / "secret", tmp_path / "made"
    secret.touch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        head = f"SECRET, MADE, PORT = {str(secret)!r}, {str(made)!r}, {server.getsockname()[1]}\n"
        for name, attack in REACHING.items():
            code = head + written(f"{attack}; return x + 1")
            python("-c", f"{code}assert f(1) == 2")
            made.unlink(missing_ok=True)
            assert sandbox.judge(GOLD, code) == "wrong", name
    assert [*tmp_path.iterdir()] == [secret]


@pytest.mark.slow
@needs_bubblewrap
def test_hostile_code_is_wrong_and_bounded_and_the_answers_beside_it_right():
    pairs, expected = [], []
    for name, body in {**EXHAUSTING, **CHEATING}.items():
        pairs += [(GOLD, response(written(body))), (GOLD, response(f"{RIGHT}  # {name}"))]
        expected += [False, True]
    grades = grade_all(pairs, READERS["python_function"])
    assert [grade.correct for grade in grades] == expected
    late = {name for name, grade in zip(EXHAUSTING, grades[::2], strict=False)
            if grade.verdict == "timeout"}  # fmt: skip
    assert late == {"loop", "power", "sleep", "output", "errors", "processes"}
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in lines if b"/inside.py" in line]


@needs_bubblewrap
@pytest.mark.parametrize(
    ("tests", "code", "verdict"),
    [
        ([[[[3, 1]], [1, 3]]], "def f(x):\n    print(x)\n    return tuple(sorted(x))", "correct"),
        ([[[{"a": 1}], {"a": 1.0}]], "import copy\nf = copy.deepcopy", "correct"),
        ([[[], "é"]], "class A:\n    def f(self): return 'é'\nf = A().f", "correct"),
        ([[[2], 4]], f"{NODE}def f(x): return Node(x, Node(x)).left.x * 2", "correct"),
        ([[[2], 4], [[3], 9]], "def f(x): return 4", "wrong"),
        # The same each time, for `stapo verify`.
        ([[[], 13]], "import random\ndef f(): return random.randint(1, 99)", "wrong"),
        ([[[], 50]], "import random\ndef f(): return random.randint(1, 99)", "correct"),
        ([[[1], 2]], "def g(x): return x + 1", "wrong"),
    ],
)
def test_a_function_is_right_if_all_its_results_are_equal_as_json(tests, code, verdict):
    assert sandbox.judge(json.dumps({"function": "f", "tests": tests}), code) == verdict


@needs_bubblewrap
def test_the_reward_is_the_verdict_of_evaluation():
    used = f"{response(RIGHT)}\n{response('print(f(1))')}"
    responses = [used, response(RIGHT.replace("+", "-")), RIGHT]
    assert answer_reward("python_function")(responses, [GOLD] * 3) == [1.0, -1.0, -1.0]
    grades = grade_all([(GOLD, text) for text in responses], READERS["python_function"])
    assert [grade.verdict for grade in grades] == ["correct", "wrong", "no_box"]


def test_without_bubblewrap_a_study_is_refused_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "p.jsonl").write_text(json.dumps({"question": "f?", "answer": GOLD}))
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": "g?", "answer": GOLD}))
    (tmp_path / "s.yaml").write_text(
        "extends: smoke\nname: s\ndata: {file: p.jsonl}\ntraining: {reward: python_function}\n"
        "benchmarks: {own: {file: q.jsonl, samples: 2}}\nrun: {benchmarks: [own]}\n"
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    (line,) = lines_of(read_study, tmp_path / "s.yaml")
    assert line.startswith("training.reward: bubblewrap is not installed: run `apt install ")
    with pytest.raises(RuntimeError, match="bubblewrap is not installed"):
        grade_all([(GOLD, response(RIGHT))], READERS["python_function"])
