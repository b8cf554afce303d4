"""The generated pages of the site are complete, and links of its pages lead somewhere."""

import re
import sys

import pytest
import typer.main

from stapo import paths
from stapo.cli import app
from stapo.exhibits import FIGURES, TABLES
from stapo.methods import METHODS, SELECTION_SPECS
from stapo.records.interventions import SCHEMA as INTERVENTION_TOKENS
from stapo.records.scores import SCHEMA as SCORES
from stapo.records.step import StepRecord
from stapo.records.tokens import SCHEMA as TOKENS
from stapo.repository import ROOT
from stapo.stages import jobs_of
from stapo.study import Study, read_study, study_schema

sys.path.insert(0, str(ROOT / "docs" / "site"))
from links import with_links
from reference import pages
from study_keys import sections
from trainer_settings import own_settings

LISTED = {path.removeprefix("reference/"): page for path, page in pages().items()}


def text_of(name: str) -> str:
    return LISTED[name].text()


def test_every_key_of_a_study_has_an_entry_with_a_meaning():
    schema, page = study_schema(), text_of("study.md")
    wanted = {
        (about["description"].split("\n\n")[0].replace("\n", " "), key)
        for about in (schema, *schema["$defs"].values())
        for key in about["properties"]
    }
    keys = [(section.about, key) for section in sections() for key in section.keys]
    assert {(about, key.path.rsplit(".", 1)[-1]) for about, key in keys} == wanted
    for _, key in keys:
        assert f"### `{key.path}` {{#" in page
        assert key.schema.get("description"), key.path
    anchors = re.findall(r"\{#(\S+?)[ }]", page)
    assert len(anchors) == len(set(anchors)) > 100
    assert {*Study.model_fields, "extends"} <= {key.path for _, key in keys}


def test_an_entry_has_type_unit_bounds_and_default():
    page = text_of("study.md")
    assert "integer, in optimiser steps, at least 1, at most 1,000,000; no default" in page
    assert "number, above 0, at most 1; default `1.0`" in page
    assert "integer, in MB, at least 0, at most 1,000; default `50`" in page


def test_every_command_and_option_has_an_entry():
    page = text_of("commands.md")
    for name, command in typer.main.get_command(app).commands.items():
        _, found, rest = page.partition(f"### stapo {name}\n")
        assert found, name
        part = re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]
        assert command.help.split(".")[0].split("\n")[0].split("<")[0] in part
        for option in command.params:
            assert f"`{option.opts[0]}" in part, (name, option.opts)


def test_every_file_of_a_study_has_an_entry():
    study = read_study(ROOT / "workflows" / "studies" / "smoke.yaml")
    entries = re.findall(r"^## `(.+)`$", text_of("files.md"), re.MULTILINE)
    patterns = [
        re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(one).replace(r"\{checkpoint\}", ".+"))
        for one in entries
    ]
    weights = [paths.checkpoint_path("smoke", one) for one in study.checkpoints()]
    for path in {*jobs_of(study).published(), paths.CHECKSUMS.format(study="smoke"), *weights}:
        inner = path.removeprefix("results/smoke/")
        assert any(re.fullmatch(one, inner) for one in patterns), path


def test_every_column_has_an_entry():
    page = text_of("files.md")
    for name in (
        *TOKENS.names,
        *SCORES.names,
        *INTERVENTION_TOKENS.names,
        *StepRecord.__annotations__,
    ):
        assert re.search(rf"^`{re.escape(name)}` \(.*\n:   \S", page, re.MULTILINE), name
    assert all(f"- `{name}`: " in page for name in (*FIGURES, *TABLES))


def test_every_method_and_selection_has_an_entry():
    page = text_of("methods.md")
    for name, method in METHODS.items():
        assert f"## `{name}`\n\n{method.title}. Source: {method.source}" in page
    for name, spec in SELECTION_SPECS.items():
        assert f"### `{name}`\n" in page
        assert all(f"- `{key}` (default" in page for key in spec.arguments)


def test_every_setting_of_the_trainer_has_an_entry():
    from stapo.training.config import StapoConfig

    ours = [name for name in StapoConfig.__annotations__ if not name.startswith("_")]
    assert own_settings() == ours
    page = text_of("api/training.config.md")
    assert all(f"`{name}` (" in page for name in ours)


def test_the_navigation_names_every_page():
    text = (ROOT / "mkdocs.yml").read_text()
    named = set(re.findall(r"[\w./-]+\.md\b", text[text.index("\nnav:") :]))
    docs = ROOT / "docs"
    written = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    recipes = {f"{path.relative_to(docs)}.md" for path in (docs / "recipes").glob("*.py")}
    assert named == written | recipes | set(pages())


def test_the_site_loads_nothing_from_another_server():
    text = (ROOT / "mkdocs.yml").read_text()
    assert re.search(r"^  font: false", text, re.MULTILINE)
    assert "https://" not in text
    assert "url(" not in (ROOT / "docs" / "site.css").read_text()


CODE = "```\n[x](../../nowhere)\n```"


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("[Makefile](../../Makefile)", None, "`Makefile`"),
        ("[the file](../../Makefile)", None, "the file (`Makefile`)"),
        ("[M](../../Makefile#a)", "https://e.org/s", "[M](https://e.org/s/blob/main/Makefile#a)"),
        ("[it](../../stapo)", "https://e.org/s", "[it](https://e.org/s/tree/main/stapo)"),
        ("[TRL](../recipes/trl_grpo.py)", None, "[TRL](../recipes/trl_grpo.py.md)"),
        *((text, None, text) for text in ("[x](../paper.md#y)", "[x](https://e.org/../a)", CODE)),
    ],
)
def test_links_to_the_repository(text, address, shown):
    assert with_links(text, "how-to/own.md", address, {"recipes/trl_grpo.py"}) == shown


def test_a_link_to_no_file_is_an_error():
    with pytest.raises(FileNotFoundError, match=r"how-to/own\.md: no file nowhere"):
        with_links("[x](../../nowhere)", "how-to/own.md", None, set())
