"""The training loop on a GPU: old log-probs and update at 1.7B's shape; a killed training."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

import torch

from gpu.attention import QWEN, RECOMPUTED, peak_flops
from gpu.page import Page, begin, timed
from gpu.rollouts import CPU, GPU, Scale, rollout, trainer_of, with_statistics
from gpu.tiny_training import STEPS, build_world, train_tiny

KILLED_AFTER, SECONDS = 3, 240


def updates(page: Page, scale: Scale) -> None:
    """Add seconds of old log-probs and of the update, with half of the groups flat and with none."""
    trainer = trainer_of(scale, page.device)
    peak = peak_flops(torch.cuda.get_device_name()) if page.device == "cuda" else 0.0
    title = f"One mini-batch of {scale.num_sequences} responses of up to {scale.longest} tokens"
    for flat in (0.5, 0.0):
        batch = rollout(scale, page.device, flat)
        old_logps = partial(with_statistics, trainer, batch)
        old_seconds, _ = timed(old_logps, page.device, repeats=1)
        update = partial(trainer._accumulate_gradients, trainer.model, batch)
        seconds, memory = timed(update, page.device, repeats=1)
        trainer.model.zero_grad()
        lengths = batch["completion_mask"].sum(dim=1) + scale.prompt_length
        computed = lengths[batch["advantages"] != 0].tolist()
        flops = sum(RECOMPUTED * QWEN.forward(n, n / 2) for n in computed)
        row = {
            "flat groups": flat,
            "packed": trainer.args.packed,
            "old log-probs, s": old_seconds,
            "update, s": seconds,
            "share of peak": flops / seconds / peak if peak else "unknown",
            "peak GB": memory,
        }
        page.add(title, **row)


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
        train_tiny(Path(sys.argv[2]), Path(sys.argv[3]), "stapo")
        return
    page, tiny = begin("loop", "The training loop")
    resume(page)
    scale = CPU if page.device == "cpu" else GPU
    if tiny:
        scale = replace(scale, num_sequences=16, longest=32, mean_length=12)
    updates(page, scale)


if __name__ == "__main__":
    main()
