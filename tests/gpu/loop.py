"""The training loop on a GPU: a training of a tiny model that is killed, and resumes to the same bytes."""

import os
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from training_jobs import job_in

from gpu.page import Page, begin
from stapo.models.tiny import build_tiny
from stapo.study.schema import TrainingSettings
from stapo.study.sources import TinyData, TinyModel
from stapo.training.prompts import write_prompts
from stapo.training.run import train

STEPS, KILLED_AFTER, SECONDS = 6, 3, 240
TRAINING = TrainingSettings(
    steps=STEPS, prompts_per_batch=4, group_size=4, prompts_per_mini_batch=2,
    micro_batch_tokens=2048, learning_rate=1e-3, max_prompt_tokens=24, max_response_tokens=24,
    checkpoint_every=1,
)  # fmt: skip


def build_world(world: Path) -> None:
    """Write a base model and prompts."""
    settings = TinyModel(builder="tiny-arithmetic", supervised_steps=2, supervised_batch=8)
    build_tiny(settings, world / "base")
    write_prompts(TinyData(builder="tiny-arithmetic", prompts=64), world / "prompts.jsonl")


def resume(page: Page) -> None:
    """Add whether a killed and resumed training gives the weights of one that was not killed."""
    with TemporaryDirectory() as folder:
        world = Path(folder)
        build_world(world)

        def start(name: str) -> subprocess.Popen[bytes]:
            program = [sys.executable, "-m", "gpu.loop", "--train", str(world), str(world / name)]
            return subprocess.Popen(program, start_new_session=True)

        def digest(name: str) -> str:
            return sha256((world / name / "model" / "model.safetensors").read_bytes()).hexdigest()

        codes = [start(name).wait(SECONDS) for name in ("one", "another")]
        killed = start("killed")
        checkpoint, deadline = world / "killed" / "work", monotonic() + SECONDS
        while not (checkpoint / f"checkpoint-{KILLED_AFTER}").is_dir() and monotonic() < deadline:
            sleep(0.05)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        codes.append(start("killed").wait(SECONDS))
        found: dict[str, Any] = {"exit codes": codes}
        if not any(codes):
            found["two runs equal"] = digest("one") == digest("another")
            found["killed and resumed equal"] = digest("one") == digest("killed")
        page.add(f"A training of {STEPS} steps, killed after {KILLED_AFTER}", **found)


def main() -> None:
    """Write the page, or train as a process of it."""
    if sys.argv[1:2] == ["--train"]:
        world, out = map(Path, sys.argv[2:])
        train(job_in(world, out, TRAINING, "stapo"))
        return
    page, _ = begin("loop", "The training loop")
    resume(page)


if __name__ == "__main__":
    main()
