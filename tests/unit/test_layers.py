"""Imports point one way."""

import ast

import pytest
from programs import python

from stapo.suite.repository import ROOT

ORDER = (
    {"answers", "bars", "files", "methods", "objective", "reference", "repository", "text", "exhibits"},
    {"hub", "locks", "provenance", "records", "tasks"},
    {"study"},
    {"paths"},
    {"stages"},
    {"models"},
    {"evaluation"},
    {"training"},
    {"analysis"},
    {"conformance", "operations", "publication"},
    {"cli"},
    {"__init__", "__main__"},
)  # fmt: skip
"""Parts of the package; each imports those above it alone."""
LEVEL = {part: level for level, parts in enumerate(ORDER) for part in parts}
LATER = {"exhibits", "stages"}
"""What runs a stage is imported inside its functions: every tool reads the file of a stage."""
FILES = sorted((ROOT / "stapo").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "stapo")))
def test_a_module_imports_only_what_lies_above_it(path):
    part = path.relative_to(ROOT / "stapo").with_suffix("").parts[0]
    tree = ast.parse(path.read_text())
    for node in tree.body if part in LATER else ast.walk(tree):
        modules = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            modules = [node.module or ""]
            if node.module == "stapo":
                modules = [f"stapo.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            of, _, inner = module.partition(".")
            other = inner.split(".")[0]
            if of == "stapo" and other and other != part:
                assert LEVEL[other] < LEVEL[part], f"{path.name} may not import {module}"


def test_study_and_program_start_without_torch():
    python("-c", "import sys, stapo.suite.study, stapo.suite.cli; sys.exit('torch' in sys.modules)")
