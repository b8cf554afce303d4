"""The page of the files in a results folder, from `stapo.suite.paths` and the records of their fields."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stapo.suite import paths
from stapo.suite.exhibits import FIGURES, NEEDS, TABLES, Exhibit
from stapo.suite.repository import ROOT

PACKAGE = ROOT / "stapo" / "suite"

INTRODUCTION = """# Files in results

Every file that a study writes into its folder, with its columns or fields, from the modules that define them.
Names in braces vary: `{suffix}` is the format, and `{checkpoint}` is `SIZE/base`, `SIZE/METHOD/seedK` or
`SIZE/METHOD/seedK/stepN`. Accuracies in tables are in percent, entropies in nats, lengths in tokens.
"""

RECORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "METRICS": (("../core/step_record.py", "StepRecord"),),
    "TOKENS": (("records/tokens.py", "SCHEMA"),),
    "COMPLETIONS": (("records/responses.py", "AnsweredProblem"),),
    "SCORES": (("records/scores.py", "ScoreRow"), ("records/scores.py", "ScoreIdentity")),
    "VALUES": (("analysis/values.py", "Value"),),
    "INTERVENTION": (
        ("records/interventions.py", "Intervention"),
        ("records/interventions.py", "Repetition"),
        ("records/interventions.py", "ArmRecord"),
        ("records/interventions.py", "SCHEMA"),
    ),
}
"""Constant of `stapo.suite.paths` -> module and name of what defines the fields of its files."""
HEADINGS = {
    "StepRecord": "Fields of a line",
    "AnsweredProblem": "Fields of a line",
    "ScoreRow": "Columns",
    "ScoreIdentity": "Metadata, as JSON under the key `stapo` of the Parquet schema",
    "Value": "Columns",
    "SCHEMA": "Columns of the Parquet file",
    "Intervention": "Fields of the JSON file",
    "Repetition": "Fields of each of `repetitions`",
    "ArmRecord": "Fields of each of `arms`",
}


class Artefact(NamedTuple):
    """A file or folder of a study."""

    constant: str
    """Name in `stapo.suite.paths`."""
    path: str
    about: str


class FieldOfRecord(NamedTuple):
    """A column or field."""

    name: str
    kind: str
    about: str


def artefacts() -> list[Artefact]:
    """Return all files and folders of `stapo.suite.paths` below the folder of a study that have a meaning."""
    documented = _documented(ast.parse((PACKAGE / "paths.py").read_text()).body)
    return [
        Artefact(name, getattr(paths, name), about)
        for name, _, about in documented
        if about and str(getattr(paths, name, "")).startswith(paths.RESULTS + "/")
    ]


def artefacts_page() -> str:
    """Return the page in Markdown."""
    parts = [INTRODUCTION]
    for one in artefacts():
        path = one.path.removeprefix(paths.RESULTS + "/")
        parts.append(f"## `{path}`\n\n{one.about}\n")
        for module, name in RECORDS.get(one.constant, ()):
            parts.append(f"**{HEADINGS[name]}**\n")
            parts += [_entry(field) for field in fields_of(PACKAGE / module, name)]
        parts += _names(one.constant)
    return "\n".join(parts)


def fields_of(module: Path, name: str) -> list[FieldOfRecord]:
    """Return the fields of a class, or the columns of an Arrow schema, with the comments on them."""
    text = module.read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return list(_documented(node.body))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return list(_columns(node, text.splitlines()))
    raise ValueError(f"{module}: no {name}")


def _documented(body: list[ast.stmt]) -> Iterator[FieldOfRecord]:
    """Yield names that are assigned or annotated, with the string below each."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            target, kind = ast.unparse(node.target), ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign):
            target, kind = ast.unparse(node.targets[0]), ""
        else:
            continue
        about = after.value if isinstance(after, ast.Expr) else None
        text = about.value if isinstance(about, ast.Constant) else ""
        yield FieldOfRecord(target, kind, " ".join(str(text).split()))


def _columns(node: ast.Assign, lines: list[str]) -> Iterator[FieldOfRecord]:
    """Yield the columns of an Arrow schema; a comment behind a column is its meaning."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pa.field":
            name, kind = ast.literal_eval(call.args[0]), ast.unparse(call.args[1])
            comments = [line.partition("#")[2] for line in lines[call.lineno - 1 : call.end_lineno]]
            words = re.sub(r"pa\.|_?\(|\)", lambda found: " of " if "_(" in found[0] else "", kind)
            nullable = "" if call.keywords else " or null"
            yield FieldOfRecord(name, f"{words}{nullable}", "".join(comments).strip())


def _entry(field: FieldOfRecord) -> str:
    kind = field.kind.replace(" | None", " or null").replace("_", " ").rstrip()
    about = field.about[:1].upper() + field.about[1:]
    return f"`{field.name}` ({kind})\n:   {about}\n"


def _names(constant: str) -> list[str]:
    """Return what stands in place of the braces: tables and figures by name."""
    exhibits = {"FIGURE": FIGURES, "TABLE": TABLES}.get(constant, {})
    lines = [f"- `{name}`: {one.title}{_condition(one)}" for name, one in exhibits.items()]
    about = "[What the paper shows](../paper.md) explains them.\n"
    return ["\n".join(lines), "\n" + about] if lines else []


def _condition(exhibit: Exhibit) -> str:
    return f"; needs {NEEDS[exhibit.needs]}" if exhibit.needs else ""
