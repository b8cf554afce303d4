"""Imports point one way."""

import ast

import pytest

from stapo.repository import ROOT

ALLOWED = {
    "bars": set(),
    "canonical": set(),
    "exhibits": set(),
    "files": set(),
    "hub": set(),
    "methods": set(),
    "objective": set(),
    "records": {"canonical", "files"},
    "reference": set(),
    "repository": set(),
    "text": set(),
    "tasks": {"repository"},
    "locks": {"canonical", "files"},
    "provenance": {"files", "repository"},
    "study": {"canonical", "exhibits", "files", "methods", "repository", "tasks"},
    "paths": {"exhibits", "study"},
    "gpus": {"study"},
    "models": {"bars", "canonical", "files", "hub", "paths", "provenance", "study"},
    "evaluation": {
        "bars", "canonical", "files", "hub", "locks", "paths", "provenance", "records", "repository", "study",
        "tasks", "models.arithmetic", "models.loading",
    },
    "training": {
        "bars", "canonical", "files", "gpus", "hub", "locks", "paths", "provenance", "records", "repository",
        "study", "methods", "objective", "models.arithmetic", "models.loading", "models.shapes",
        "evaluation.grading",
    },
    "analysis": {
        "canonical", "exhibits", "files", "paths", "records", "study", "methods", "reference",
        "evaluation.statistics", "evaluation.grading",
    },
    "publication": {
        "canonical", "files", "paths", "provenance", "records", "study", "tasks", "methods", "models",
        "evaluation", "training", "analysis",
    },
    "operations": {
        "canonical", "files", "hub", "locks", "paths", "provenance", "records", "repository", "study",
        "tasks", "methods", "models", "evaluation", "training", "analysis",
    },
    "conformance": {"methods", "models.tiny", "training"},
    "cli": {
        "canonical", "exhibits", "files", "hub", "locks", "paths", "study", "tasks", "gpus", "methods",
        "models", "evaluation", "training", "analysis", "conformance", "publication", "operations",
    },
    "__main__": {"cli"},
    "__init__": set(),
}  # fmt: skip
"""Part of the package -> what of ours it may import, its own modules apart."""

FILES = sorted((ROOT / "stapo").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "stapo")))
def test_a_module_imports_only_what_lies_below_it(path):
    part = path.relative_to(ROOT / "stapo").with_suffix("").parts[0]
    for node in ast.walk(ast.parse(path.read_text())):
        modules = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            modules = [node.module or ""]
            if node.module == "stapo":
                modules = [f"stapo.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            if module.split(".")[0] != "stapo":
                continue
            inner = module.removeprefix("stapo").removeprefix(".")
            own = inner.split(".")[0] == part
            allowed = any(inner == a or inner.startswith(f"{a}.") for a in {*ALLOWED[part], "text"})
            assert own or allowed, f"{path.name} may not import {module}"


def test_the_objective_knows_torch_and_nothing_else():
    for path in (ROOT / "stapo" / "objective").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in ("torch", "math", "typing", "collections", "stapo")
