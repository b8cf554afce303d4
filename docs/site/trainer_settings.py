"""The page of `StapoConfig`: from its source and the schema of studies, since its class needs TRL."""

import ast

from stapo.repository import ROOT
from stapo.study import study_schema

OTHERS = ("base", "title", "training")
"""Settings of a method in a study that are none of the trainer's, besides those of its own selection."""


def trainer_settings_page() -> str:
    """Return the page in Markdown."""
    node = _settings_class()
    about = (ast.get_docstring(node) or "").split("\n\nRaises:")[0]
    parts = [
        "# stapo.training.config\n\n## StapoConfig\n",
        about.replace("\n", " ").replace("  ", "\n\n") + "\n",
        "[Recipes](../../recipes/README.md#stapotrainer) has an example. The settings of TRL that the update "
        "uses keep their meaning.\n",
    ]
    return "\n".join(
        [*parts, "### Settings\n", *_own(node), "### Settings of the method\n", *_methods()]
    )


def own_settings() -> list[str]:
    """Return the names of the settings that `StapoConfig` adds, those of the method apart."""
    return [ast.unparse(one.target) for one in _fields(_settings_class())]


def method_settings() -> list[str]:
    """Return the names of the settings of a method."""
    found = study_schema()["$defs"]["MethodSettings"]["properties"]
    return [name for name in found if name not in OTHERS and not name.startswith("selection")]


def _settings_class() -> ast.ClassDef:
    body = ast.parse((ROOT / "stapo" / "training" / "config.py").read_text()).body
    return next(one for one in body if isinstance(one, ast.ClassDef) and one.name == "_Settings")


def _fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    """Return the fields of a data class; those with an underscore are private."""
    found = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    return [one for one in found if not ast.unparse(one.target).startswith("_")]


def _own(node: ast.ClassDef) -> list[str]:
    lines = []
    for one in _fields(node):
        given = {word.arg: word.value for word in getattr(one.value, "keywords", [])}
        about = ast.literal_eval(given["metadata"])["help"]
        kind, default = ast.unparse(one.annotation), ast.unparse(given["default"])
        name = ast.unparse(one.target)
        lines.append(f"`{name}` ({kind}, default `{default}`)\n:   {about}\n")
    return lines


def _methods() -> list[str]:
    about = study_schema()["$defs"]["MethodSettings"]["properties"]
    return [
        f"[`{name}`](../study.md#methods-name-{name})\n:   {about[name]['description']}\n"
        for name in method_settings()
    ]
