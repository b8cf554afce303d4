"""What the programs of `make gpu` share: where they run, and the page that each writes."""

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from stapo.provenance import processor, version

ROOT = Path(__file__).parents[2]
PACKAGES = ("torch", "transformers", "trl", "accelerate", "vllm")


@dataclass
class Page:
    """Tables, written as JSON after every new row, so that a time limit loses only the last."""

    path: Path
    device: str
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, title: str, **row: Any) -> None:
        """Add a row to a table; print it, and write the file."""
        self.tables.setdefault(title, []).append(row)
        print(f"{title}:", json.dumps(row), flush=True)  # noqa: T201
        named = torch.cuda.get_device_name() if self.device == "cuda" else processor()
        where = {"device": named, **{name: version(name) for name in PACKAGES}}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"where": where, "tables": self.tables}, indent=1) + "\n")


def begin(name: str) -> tuple[Page, bool]:
    """Return the page of a program, and whether sizes are tiny; end the program where there is no GPU."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=ROOT / "work" / "gpu")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the program itself")
    arguments = parser.parse_args()
    cuda = torch.cuda.is_available()
    if not cuda and not arguments.tiny:
        told = f"no GPU: tests/gpu/{name}.py was not run; run `make gpu` on a machine with one"
        print(told, flush=True)  # noqa: T201
        sys.exit(0)
    return Page(arguments.out / f"{name}.json", "cuda" if cuda else "cpu"), arguments.tiny
