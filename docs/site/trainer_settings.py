"""The page of `StapoConfig`: from its source, since its class needs TRL."""

import ast
import itertools

from stapo.suite.repository import ROOT


def trainer_settings_page() -> str:
    """Return the page in Markdown."""
    node = _settings_class()
    about = (ast.get_docstring(node) or "").split("\n\nRaises:")[0]
    parts = [
        "# stapo.core.config\n\n## StapoConfig\n",
        about.replace("\n", " ").replace("  ", "\n\n") + "\n",
        "[Examples](../../../examples/README.md#stapotrainer) has a snippet. The settings of TRL that "
        "the update uses keep their meaning.\n",
    ]
    return "\n".join([*parts, "### Settings\n", *_own(node)])


def own_settings() -> list[str]:
    """Return the names of the settings that `StapoConfig` adds."""
    return [ast.unparse(one.target) for one in _fields(_settings_class())]


def _settings_class() -> ast.ClassDef:
    body = ast.parse((ROOT / "stapo" / "core" / "config.py").read_text()).body
    return next(one for one in body if isinstance(one, ast.ClassDef) and one.name == "StapoConfig")


def _fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    """Return the fields of a data class; those with an underscore are private."""
    found = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    return [one for one in found if not ast.unparse(one.target).startswith("_")]


def _own(node: ast.ClassDef) -> list[str]:
    lines = []
    for one, about in itertools.pairwise(node.body):
        if one in _fields(node) and isinstance(one, ast.AnnAssign):
            name, kind, default = (
                ast.unparse(part) for part in (one.target, one.annotation, one.value)
            )
            lines.append(
                f"`{name}` ({kind}, default `{default}`)\n:   {ast.literal_eval(about.value)}\n"
            )
    return lines
