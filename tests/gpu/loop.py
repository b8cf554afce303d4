"""The training loop on a GPU: old log-probs and update at 1.7B's shape beside TRL's; a killed training."""

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

from gpu import beside_trl as bench
from gpu.attention import QWEN, RECOMPUTED, peak_flops
from gpu.page import Page, begin, timed
from gpu.tiny_training import STEPS, build_world, train_tiny

KILLED_AFTER, SECONDS = 3, 240


def updates(page: Page, scale: bench.Scale, trl_rows: int) -> None:
    """Add seconds of old log-probs and our update, with half of the groups flat and with none; then TRL's.

    Args:
        page: gets a row after every measurement.
        scale: model and mini-batch.
        trl_rows: responses of TRL's update, once beside ours of the same; it computes all padding.
    """
    trl, ours = bench.trainers(scale, page.device)
    trl.model.train()
    ours.model.train()
    peak = peak_flops(torch.cuda.get_device_name()) if page.device == "cuda" else 0.0
    title = f"One mini-batch of {scale.num_sequences} responses of up to {scale.longest} tokens"
    for flat in (0.5, 0.0):
        batch = bench.rollout(scale, page.device, flat)
        old_logps = partial(bench.with_statistics, ours, batch)
        old_seconds, _ = timed(old_logps, page.device, repeats=1)
        own = partial(ours._accumulate_gradients, ours.model, batch)
        seconds, memory = timed(own, page.device, repeats=1)
        ours.model.zero_grad()
        lengths = batch["completion_mask"].sum(dim=1) + scale.prompt_length
        computed = lengths[batch["advantages"] != 0].tolist()
        flops = sum(RECOMPUTED * QWEN.forward(n, n / 2) for n in computed)
        row = {
            "flat groups": flat,
            "packed": ours.args.packed,
            "old log-probs, s": old_seconds,
            "update, s": seconds,
            "share of peak": flops / seconds / peak if peak else "unknown",
            "peak GB": memory,
        }
        page.add(title, **row)
    part = replace(scale, num_sequences=trl_rows)
    batch = bench.rollout(part, page.device, 0.5)
    bench.with_statistics(ours, batch)
    rows = torch.arange(trl_rows, device=page.device).split(scale.trl_micro_batches[-1])
    calls = {
        "ours": (ours.model, partial(ours._accumulate_gradients, ours.model, batch)),
        "TRL": (trl.model, partial(bench.trl_update, trl, batch, rows)),
    }
    gradients, found = {}, {}
    for name, (model, update) in calls.items():
        # Once: what a first call does besides is small beside what it computes.
        found[name] = timed(update, page.device, repeats=0)
        gradients[name] = bench.gradient(model).cpu()
        model.zero_grad()
        title = f"{trl_rows} of them, half of the groups flat"
        page.add(title, update=name, seconds=found[name][0])
    apart = (gradients["ours"] - gradients["TRL"]).norm() / gradients["TRL"].norm()
    ratio = found["TRL"][0] / found["ours"][0]
    row = {"TRL / ours": ratio, "gradients, relative difference": apart.item()}
    page.add("TRL beside ours", **row)


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
    scale, trl_rows = bench.CPU if page.device == "cpu" else bench.GPU, 64
    if tiny:
        scale, trl_rows = replace(scale, num_sequences=16, longest=32, mean_length=12), 8
    updates(page, scale, trl_rows)


if __name__ == "__main__":
    main()
