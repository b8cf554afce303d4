"""The generated pages of the site are complete; that the navigation names them, `make site` checks."""

import sys

import typer.main

from stapo.core.methods import METHODS, PARTS
from stapo.suite.cli import app
from stapo.suite.repository import ROOT
from stapo.suite.study import study_schema

sys.path.insert(0, str(ROOT / "docs" / "site"))
from reference import pages
from study_keys import sections

LISTED = {path.removeprefix("reference/"): page for path, page in pages().items()}


def test_every_key_command_and_method_has_an_entry():
    study, commands, methods = (
        LISTED[name].text() for name in ("study.md", "commands.md", "methods.md")
    )
    schema = study_schema()
    wanted = {key for about in (schema, *schema["$defs"].values()) for key in about["properties"]}
    keys = [key for section in sections() for key in section.keys]
    assert {key.path.rsplit(".", 1)[-1] for key in keys} == wanted
    assert all(f"### `{key.path}` {{#" in study and key.schema["description"] for key in keys)
    for name, command in typer.main.get_command(app).commands.items():
        _, found, rest = commands.partition(f"## stapo {name}\n")
        assert found, name
        assert all(f"`{one.opts[0]}" in rest.split("\n## ")[0] for one in command.params), name
    assert all(f"## `{name}`\n" in methods for name in (*METHODS, *PARTS["selection"]))
