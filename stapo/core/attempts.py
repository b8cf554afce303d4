"""The attempts of a training: when each began and ended, on what, and the energy that it used."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from stapo.core.files import append_jsonl, read_jsonl

ATTEMPTS = "attempts.jsonl"


@contextmanager
def attempt(work: Path, first_step: int, study: dict[str, Any] | None) -> Iterator[None]:
    """Record an attempt at its start, and with time and energy at its end, which a kill leaves out."""
    state = PartialState()
    started, before = time.monotonic(), energy_joules()
    record: dict[str, Any] = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "after_step": first_step,
        "command": [Path(sys.executable).name, "-m", "stapo", *sys.argv[1:]],
        "host": os.uname().nodename,
        "processes": state.num_processes,
        **({} if study is None else {"study": study}),
    }
    if state.is_main_process:
        attempts(work)  # Report a damaged line now, not after the last step.
        append_jsonl(work / ATTEMPTS, record)
    yield
    after = energy_joules()
    used = None if before is None or after is None else after - before
    joules: list[Any] = gather_object([used])
    if state.is_main_process:
        record["seconds"] = time.monotonic() - started
        # With one rank without an energy meter, the sum would be too small.
        record["joules"] = None if None in joules else sum(joules)
        append_jsonl(work / ATTEMPTS, record)


def attempts(work: Path) -> list[dict[str, Any]]:
    """Return one record for each attempt; attempts that were killed have no `seconds`."""
    remedy = "remove this line; its attempt is then not counted, and may be reported as missing"
    lines = read_jsonl(work / ATTEMPTS, remedy)
    return [*{(record["started"], record["after_step"]): record for record in lines}.values()]


def joules_of(tried: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the energy of all steps in the result; None if that of any is unknown or was used in vain."""
    known: list[float] = [r["joules"] for r in tried if r.get("joules") is not None]
    starts = [record["after_step"] for record in tried]
    # The first steps are those of a shorter training, or an attempt made steps again.
    if starts[0] or starts != sorted({*starts}) or len(known) < len(tried):
        return None
    return sum(known)


def energy_joules() -> float | None:
    """Return the energy that this process's GPU has used since its driver was loaded; None if unknown."""

    def energy(nvml: Any) -> float:
        uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000

    joules: float | None = ask_driver(energy) if torch.cuda.is_available() else None
    return joules


def ask_driver(question: Callable[[Any], Any]) -> Any:
    """Return an answer of the driver, None without one: older GPUs measure no energy, MIG slices may not."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return question(pynvml)
    except Exception:
        return None
