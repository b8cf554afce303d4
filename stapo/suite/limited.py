"""A worker process that handles untrusted text: it limits itself, and answers lines of JSON.

The kernel ends the process at its limit of memory or processor time. Linux only.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

START_SECONDS = 60.0
"""Processor time until the first line."""


def start(words: Sequence[str], variables: Mapping[str, str]) -> "subprocess.Popen[str]":
    """Start a module with its arguments as a worker, with more environment variables."""
    # -P: no file of this directory, such as statistics.py, or of the working directory shadows a library.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **variables},
    )


def limited(memory_bytes: int) -> IO[str]:
    """Limit the address space and the start of this process; return where its answers go.

    Output of libraries goes to stderr, so that it cannot be taken as an answer.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Without a handler, the kernel ends this process at its limit, even within one multiplication.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    signal.setitimer(signal.ITIMER_PROF, START_SECONDS)
    return answers


def serve(answers: IO[str], seconds: float, *functions: Callable[..., Any]) -> None:
    """Answer each line of standard input: one line from each function, in `seconds` of processor time."""
    from sympy.core.cache import clear_cache
    from sympy.core.random import seed

    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        for function in functions:
            # Reset sympy's cache and random numbers, so that an answer does not depend on earlier ones.
            clear_cache()
            seed(0)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            answer = function(*json.loads(line))
            signal.setitimer(signal.ITIMER_PROF, 0)
            print(json.dumps(answer), file=answers, flush=True)
