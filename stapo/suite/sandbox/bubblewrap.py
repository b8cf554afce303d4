"""A sandbox for code of a stranger: bubblewrap, a filter of system calls, and limits. Linux only.

The code sees the Python that runs this program and the libraries of the system, and can write to nothing but
its output. It has no network, no other processes, no /proc, and no memory that outlives its address space.
The kernel ends it at its limit of processor time, and this process at the limit of time.
"""

import json
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from typing import Any

SECONDS = 4
"""Limit of processor time, of Python's start too (some hundredths of a second)."""
WALL_SECONDS = 20.0
"""Limit of time, for code that sleeps: longer, so that a busy machine does not change verdicts."""
LIMITS = {
    "RLIMIT_AS": 2**29,
    "RLIMIT_CORE": 0,
    "RLIMIT_CPU": SECONDS,
    "RLIMIT_FSIZE": 0,
    "RLIMIT_NOFILE": 16,
    "RLIMIT_SIGPENDING": 64,
}
MOST_BYTES = 2**20
"""Of output; the program ends if it writes more."""
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
INSIDE = Path(__file__).with_name("inside.py")
NOBODY = "65534"

# clone clone3 fork vfork: limits are those of one process, and root's number of processes has none. socket
# socketpair: a virtual machine's host has no network namespace. shmget msgget semget mq_open memfd_create
# memfd_secret inotify_init inotify_init1 fanotify_init vmsplice: memory that no address space contains.
# ptrace process_vm_readv process_vm_writev pidfd_getfd: a process of bubblewrap, beside the code, is without
# limits. fchmod fsetxattr: root owns /dev/null. io_setup: the machine has a limit for all its processes.
# unshare setns add_key request_key keyctl perf_event_open bpf userfaultfd io_uring_setup: nothing a function
# needs.
REFUSED = {
    "x86_64": (
        0xC000003E,
        "56 435 57 58 41 53 29 68 64 240 319 447 253 294 300 278 101 310 311 438 91 190 206 "
        "272 308 248 249 250 298 321 323 425",
    ),
    "aarch64": (
        0xC00000B7,
        "220 435 198 199 194 186 190 180 279 447 26 262 75 117 270 271 438 52 7 0 "
        "97 268 217 218 219 241 280 282 425",
    ),
}
"""Processor -> its number in audit.h, and the system calls that fail."""
FIRST_UNKNOWN = 450
"""Newer system calls fail too, and on x86-64 those of its other interface (x32)."""


def run(request: Any) -> tuple[bytes, bool]:
    """Return what `inside` writes about a request, and whether a limit of time ended it.

    Raises:
        RuntimeError: there is no sandbox.
    """
    with TemporaryFile() as given, TemporaryFile() as rules:
        for file, content in ((given, json.dumps(request).encode()), (rules, _filter())):
            file.write(content)
            file.seek(0)
        with subprocess.Popen(
            _command(rules.fileno()),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[rules.fileno()],
            # The order of sets is the same each time.
            env={"PYTHONHASHSEED": "0"},
        ) as process:
            assert process.stdout is not None
            timer = Timer(WALL_SECONDS, process.kill)
            timer.start()
            try:
                written = process.stdout.read(MOST_BYTES + 1)
            finally:
                timer.cancel()
                process.kill()
    if not written:
        raise RuntimeError("a sandbox does not start; run `stapo check` on the study")
    # SIGKILL: of bubblewrap, by the timer, or of what runs in it, by the kernel.
    is_late = process.returncode in (-9, 128 + 9) and len(written) <= MOST_BYTES
    return written, is_late


def _command(rules: int) -> list[str]:
    """Return the command line of bubblewrap, which reads the filter from a file descriptor."""
    python = Path(sys.executable).resolve()
    words = ["--unshare-all", "--unshare-user", "--uid", NOBODY, "--gid", NOBODY]
    words += ["--cap-drop", "ALL", "--die-with-parent", "--new-session"]
    for path in dict.fromkeys([*LIBRARIES, f"{sys.base_prefix}/lib", str(python)]):
        words += ["--ro-bind-try", path, path]
    words += ["--ro-bind", str(INSIDE), "/inside.py", "--remount-ro", "/", "--chdir", "/"]
    words += ["--seccomp", str(rules), "--", str(python), "-P", "-S", "/inside.py"]
    return [shutil.which("bwrap") or "bwrap", *words, json.dumps(LIMITS)]


def _filter() -> bytes:
    """Return the program of seccomp(2) by which refused system calls fail as unknown ones do."""
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    kill, allow, fail = 0x80000000, 0x7FFF0000, 0x00050000 | 38  # ENOSYS
    machine, refused = REFUSED[platform.machine()]
    numbers = [int(number) for number in refused.split()]
    left = len(numbers)
    lines = [(load, 0, 0, 4), (equal, 1, 0, machine), (end, 0, 0, kill), (load, 0, 0, 0)]
    lines.append((at_least, left + 1, 0, FIRST_UNKNOWN))
    lines += [(equal, left - i, 0, number) for i, number in enumerate(numbers)]
    lines += [(end, 0, 0, allow), (end, 0, 0, fail)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
