"""What the programs of `make gpu` share: where they run, how they measure, and the page that each writes."""

import argparse
import gc
import json
import platform
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from stapo.provenance import version

ROOT = Path(__file__).parents[2]
PACKAGES = ("torch", "transformers", "trl", "accelerate", "vllm")
Row = dict[str, Any]


@dataclass
class Page:
    """Tables, written as JSON after every new row, so that a time limit loses only the last."""

    name: str
    title: str
    folder: Path
    device: str
    tables: dict[str, list[Row]] = field(default_factory=dict)

    def add(self, title: str, **row: Any) -> None:
        """Add a row to a table; print it, and write the file."""
        self.tables.setdefault(title, []).append(row)
        values = ", ".join(f"{name} {_shown(value)}" for name, value in row.items())
        say(f"{title}: {values}")
        self.folder.mkdir(parents=True, exist_ok=True)
        found = {"title": self.title, "where": where(self.device), "tables": self.tables}
        (self.folder / f"{self.name}.json").write_text(json.dumps(found, indent=1) + "\n")


def begin(name: str, title: str) -> tuple[Page, bool]:
    """Return the page of a program, and whether sizes are tiny; end the program where there is no GPU."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--out", type=Path, default=ROOT / "work" / "gpu")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the program itself")
    arguments = parser.parse_args()
    cuda = torch.cuda.is_available()
    if not cuda and not arguments.tiny:
        say(f"no GPU: tests/gpu/{name}.py was not run; run `make gpu` on a machine with one")
        sys.exit(0)
    return Page(name, title, arguments.out, "cuda" if cuda else "cpu"), arguments.tiny


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)  # noqa: T201


def where(device: str) -> dict[str, str]:
    """Return device and versions."""
    named = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "CPU"
    return {"device": named, **{name: version(name) for name in PACKAGES}}


def timed(call: Callable[[], Any], device: str, repeats: int = 3) -> tuple[float, float]:
    """Return median seconds of a call and its peak of GPU memory in GB, all included.

    Of several calls the first is not counted; with `repeats` 0 there is one alone.
    """
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    if repeats:
        call()
    times = []
    for _ in range(max(repeats, 1)):
        gc.collect()
        wait()
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        start = perf_counter()
        call()
        wait()
        times.append(perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else 0.0
    return statistics.median(times), peak


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
