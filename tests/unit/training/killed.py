"""Program of the kill test: train in forked children that are killed, then once to the end.

Usage: python killed.py WORLD OUT KILLS SEED

Forking after the imports makes a start cost tenths of a second instead of ten.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
import torch
from training_jobs import run

from stapo.training.checkpoints import ASIDE, step_checkpoints, step_of


def child(world: Path, out: Path, steps: int) -> int:
    """Return the process that trains."""
    process = os.fork()
    if process:
        return process
    torch.set_num_threads(1)
    run(world, out, steps=steps)
    os._exit(0)


def newest(work: Path) -> int:
    return max((step_of(path) for path in step_checkpoints(work)), default=0)


def writing(work: Path) -> bool:
    """Return whether a checkpoint is being written; the trainer removes the folder meanwhile."""
    try:
        return any(path.name.startswith("checkpoint-") for path in (work / ASIDE).iterdir())
    except FileNotFoundError:
        return False


def ended(process: int) -> bool:
    return os.waitpid(process, os.WNOHANG)[0] != 0


def main(world: str, out: str, kills: str, seed: str, steps: str = "60") -> None:
    chance, work = random.Random(int(seed)), Path(out) / "work"
    killed = while_writing = 0
    while killed < int(kills):
        process = child(Path(world), Path(out), int(steps))
        # Of three kills one comes at any moment, one some time after a new checkpoint, and one while a
        # checkpoint is written after a new one.
        kind, before, started = killed % 3, newest(work), time.monotonic()
        wait = chance.uniform(0.05, 1.0)
        while time.monotonic() < started + (60.0 if kind else wait):
            if kind and newest(work) > before and (kind == 1 or writing(work)):
                time.sleep(wait if kind == 1 else wait / 50)
                break
            time.sleep(0.001)
        if ended(process):
            print(f"finished after {killed} kills", flush=True)
            raise SystemExit(1)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        killed += 1
        while_writing += writing(work)
    process = child(Path(world), Path(out), int(steps))
    _, status = os.waitpid(process, 0)
    print(f"{killed} kills, {while_writing} while a checkpoint was being written", flush=True)
    raise SystemExit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(*sys.argv[1:])
