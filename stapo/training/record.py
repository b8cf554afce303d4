"""The attempts of a training run, and the provenance of its result."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object

from stapo.canonical import fingerprint
from stapo.files import append_jsonl, read_jsonl
from stapo.paths import METRICS_FILE
from stapo.provenance import checksums, energy_joules, environment, file_sha256
from stapo.records.step import PHASES, from_line

ATTEMPTS = "attempts.jsonl"


@contextmanager
def attempt(work: Path, first_step: int, study: dict[str, Any] | None = None) -> Iterator[None]:
    """Record an attempt to train: a line at the start, and another with time and energy at the end.

    An attempt that is killed leaves only the first line.

    Args:
        work: directory of the run, shared by all ranks.
        first_step: number of optimiser steps that were completed before.
        study: the resolved study, whose file the command names; that file is not published.
    """
    state = PartialState()
    started, before = time.monotonic(), energy_joules()
    record: dict[str, Any] = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "after_step": first_step,
        "command": [Path(sys.executable).name, "-m", "stapo", *sys.argv[1:]],
        "host": os.uname().nodename,
        "processes": state.num_processes,
    }
    if study is not None:
        record["study"] = study
    if state.is_main_process:
        attempts(work)  # Report a damaged line now, not after the last step.
        append_jsonl(work / ATTEMPTS, record)
    yield
    after = energy_joules()
    used = None if before is None or after is None else after - before
    everywhere: list[float | None] = gather_object([used])
    if state.is_main_process:
        joules = [part for part in everywhere if part is not None]
        record["seconds"] = time.monotonic() - started
        # With one rank without an energy meter, the sum would be too small.
        record["joules"] = sum(joules) if len(joules) == len(everywhere) else None
        append_jsonl(work / ATTEMPTS, record)


def attempts(work: Path) -> list[dict[str, Any]]:
    """Return one record for each attempt; attempts that were killed have no `seconds`."""
    found: dict[str, dict[str, Any]] = {}
    for record in read_jsonl(
        work / ATTEMPTS,
        "remove this line; its attempt is then not counted, and `stapo verify` may report it as missing",
    ):
        found[f"{record['started']} {record['after_step']}"] = record
    return list(found.values())


def run_provenance(
    config: dict[str, Any],
    base: Path,
    prompts: Path,
    work: Path,
    outputs: list[Path],
    too_long: int = 0,
) -> dict[str, Any]:
    """Return the provenance of a finished run: its inputs, environment, costs, and checksums of its outputs.

    Args:
        config: everything that determines the result.
        base: directory of the base model.
        prompts: file of the training prompts.
        work: directory of the run.
        outputs: published files and directories, all in the same directory; recorded paths are relative
            to it.
        too_long: number of prompts that were left out because of their length.
    """
    metrics = [from_line(line) for line in read_jsonl(work / METRICS_FILE)]
    seconds = sum(record.seconds.get(phase, 0) for record in metrics for phase in PHASES)
    environment_now = environment()
    tried = attempts(work)
    known = [record["joules"] for record in tried if record.get("joules") is not None]
    return {
        "fingerprint": fingerprint(config),
        "config": config,
        "environment": environment_now,
        "base": checksums([base], base),
        "prompts": file_sha256(prompts),
        "prompts_too_long": too_long,
        "outputs": checksums(outputs, outputs[0].parent),
        "attempts": tried,
        "steps": len(metrics),
        # Only of steps in the result; steps that were lost by a kill count only in the attempts.
        "seconds": seconds,
        "gpu_seconds": seconds * PartialState().num_processes if environment_now["gpus"] else 0.0,
        "joules": sum(known) if known and len(known) == len(tried) else None,
    }
