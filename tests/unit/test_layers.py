"""Imports point one way: the core knows nothing of the suite, and each part imports what stands before it."""

import ast
from pathlib import Path

from programs import python

from stapo.suite.repository import ROOT

CORE = (
    "objective methods minibatch",  # the idea, as functions of tensors
    "loss step_record ranks",
    "metrics",
    "update",  # of one mini-batch, exact for any micro-batches and ranks
    "files head sampling",
    "checksums forward decoding attempts config",
    "shared_prompts checkpoints",
    "trainer conformance",
)
SUITE = (
    "answers bars limited reference repository text",
    "domains formulas hub locks provenance records sandbox tasks",
    "study",
    "paths exhibits",
    "job",
    "jobs",
    "results",
    "models",
    "evaluation",
    "training",
    "interventions",
    "analysis",
    "publication",
    "runners operations",
    "cli",
)
"""Parts of each house, line by line; each imports those of earlier lines alone."""
LEVEL = {
    f"stapo.{house}.{part}": (house == "suite", level)
    for house, lines in (("core", CORE), ("suite", SUITE))
    for level, line in enumerate(lines)
    for part in line.split()
}
FILES = sorted((ROOT / "stapo").glob("*/**/*.py"))


def part_of(module: str) -> str:
    return ".".join(module.split(".")[:3])


def imported(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module
            is_house = node.module in ("stapo.core", "stapo.suite")
            found += (
                [f"{node.module}.{name.name}" for name in node.names] if is_house else [node.module]
            )
    return found


def test_a_module_imports_only_what_stands_before_it():
    for path in FILES:
        own = part_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        if own.endswith("__init__"):
            continue
        for module in map(part_of, imported(path)):
            if module.startswith("stapo") and module != own:
                assert LEVEL[module] < LEVEL[own], f"{path} may not import {module}"
            is_core = not LEVEL[own][0]
            assert not (is_core and module.startswith(("pydantic", "snakemake"))), (path, module)


def test_study_jobs_and_program_start_without_torch():
    start = "import sys, stapo.suite.jobs, stapo.suite.cli"
    python("-c", f"{start}; sys.exit('torch' in sys.modules)")
