"""The worker process in which math-verify reads untrusted answers; `grading` starts and ends it.

It limits its own memory and processor time. Linux only.
"""

import json
import os
import resource
import signal
import sys

from sympy.core.cache import clear_cache
from sympy.core.random import seed

from stapo.evaluation.judge import judge

KNOWN = {r"\frac{2x}{2}": "correct", r"\frac{x}{2}": "wrong"}
"""Answers to x and their verdicts. A broken environment must not grade: all answers would be wrong."""
START_SECONDS = 60.0


def main(memory_bytes: int, seconds: float) -> None:
    """Write the judgement of each pair of gold and answer on standard input as a line of JSON.

    Args:
        memory_bytes: limit of the address space.
        seconds: limit of processor time per answer.
    """
    # Output of libraries goes to stderr, so that it cannot be taken as a verdict.
    verdicts = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Without a handler, the kernel ends this process at its limit, even within one multiplication.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    signal.setitimer(signal.ITIMER_PROF, START_SECONDS)
    if {answer: judge("x", answer)[0] for answer in KNOWN} != KNOWN:
        sys.exit("the grader misjudges known answers; check the versions of sympy and math-verify")
    print("ready", file=verdicts, flush=True)
    for line in sys.stdin:
        # Reset sympy's cache and random numbers, so that a verdict does not depend on earlier answers.
        clear_cache()
        seed(0)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        judgement = judge(*json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(judgement), file=verdicts, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
