"""The generated pages of the site are complete, and links of its pages lead somewhere."""

import re
import sys

import pytest
import typer.main

from stapo import paths
from stapo.analysis.values import CSV
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
from trainer_settings import method_settings, own_settings

LISTED = {path.removeprefix("reference/"): page for path, page in pages().items()}


def text_of(name: str) -> str:
    return LISTED[name].text()


def entry(name: str) -> str:
    """Return the line of a field or column, with its meaning."""
    found = re.search(rf"^`{re.escape(name)}` \(.*\n:   \S.*", text_of("files.md"), re.MULTILINE)
    assert found, name
    return found[0]


def keys_of_definitions() -> set[tuple[str, str]]:
    """Return definition and key of all settings, without the places where they stand."""
    schema = study_schema()
    named = {"": schema, **schema["$defs"]}
    return {
        (about["description"].split("\n\n")[0], key)
        for about in named.values()
        for key in about["properties"]
    }


def test_every_key_of_a_study_has_an_entry_with_a_meaning():
    found = {
        (section.about, key.path.rsplit(".", 1)[-1])
        for section in sections()
        for key in section.keys
    }
    wanted = {(about.replace("\n", " "), key) for about, key in keys_of_definitions()}
    assert found == wanted
    page = text_of("study.md")
    for section in sections():
        for key in section.keys:
            assert f"### `{key.path}` {{#" in page
            assert key.schema.get("description"), key.path


def test_anchors_are_unique():
    found = re.findall(r"\{#(\S+?)[ }]", text_of("study.md"))
    assert len(found) == len(set(found)) > 100


@pytest.mark.parametrize("name", ["smoke", "paper", "dose-v5"])
def test_what_studies_set_is_listed(name):
    listed = {key.path for section in sections() for key in section.keys}
    study = read_study(ROOT / "workflows" / "studies" / f"{name}.yaml").model_dump(
        exclude_none=True
    )

    def walk(value, path):
        if not isinstance(value, dict):
            yield path
            return
        for key, inner in value.items():
            places = {".".join((*path, key)).lstrip("."), ".".join((*path, "NAME")).lstrip(".")}
            own = any(
                place == one or one.startswith(f"{place}.") for place in places for one in listed
            )
            assert own or ".".join(path) in listed, (path, key)
            exact = ".".join((*path, key))
            yield from walk(
                inner,
                (
                    *path,
                    key
                    if any(one == exact or one.startswith(f"{exact}.") for one in listed)
                    else "NAME",
                ),
            )

    assert len(list(walk(study, ()))) > 50
    assert {*Study.model_fields, "extends"} <= listed


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
    page = text_of("files.md")
    study = read_study(ROOT / "workflows" / "studies" / "smoke.yaml")
    entries = [re.escape(one) for one in re.findall(r"^## `(.+)`$", page, re.MULTILINE)]
    patterns = [
        re.sub(r"\\\{\w+\\\}", "[^/]+", one.replace(r"\{checkpoint\}", ".+")) for one in entries
    ]
    written = [*jobs_of(study).published(), paths.CHECKSUMS.format(study="smoke")]
    weights = [paths.checkpoint_path("smoke", one) for one in study.checkpoints()]
    for path in {*written, *weights}:
        inner = path.removeprefix("results/smoke/")
        assert any(re.fullmatch(one, inner) for one in patterns), path
    constants = {
        value
        for name, value in vars(paths).items()
        if name.isupper() and str(value).startswith("results/{study}/")
    }
    folders = {paths.RUN, paths.RESPONSES, paths.INTERVENTIONS}
    assert constants - folders == {
        f"results/{{study}}/{one}" for one in re.findall(r"^## `(.+)`$", page, re.MULTILINE)
    }


def test_every_column_has_an_entry():
    records = [*TOKENS.names, *SCORES.names, *INTERVENTION_TOKENS.names, *vars(StepRecord(**STEP))]
    for name in records:
        assert entry(name)
    page = text_of("files.md")
    assert all(f"`{one}`" in page for one in CSV)
    assert all(f"- `{name}`: " in page for name in (*FIGURES, *TABLES))
    assert entry("weight").endswith("Of the kind / sampled, in this step")


STEP = dict.fromkeys(
    (
        "zero_advantage_fraction", "entropy", "entropy_quantiles", "num_tokens", "num_candidates",
        "num_silenced", "candidate_fraction", "silenced_fraction", "kept_fraction", "response_length",
        "clip_low_fraction", "clip_high_fraction", "loss", "kl",
    ),
    0,
)  # fmt: skip


def test_every_method_and_selection_has_an_entry():
    page = text_of("methods.md")
    for name, method in METHODS.items():
        assert f"## `{name}`\n\n{method.title}. Source: {method.source}" in page
    for name, spec in SELECTION_SPECS.items():
        assert f"### `{name}`\n" in page
        assert all(f"- `{key}` (default" in page for key in spec.arguments)


def test_every_setting_of_the_trainer_has_an_entry():
    from stapo.training.config import METHOD_SETTINGS, _Settings

    assert method_settings() == list(METHOD_SETTINGS)
    ours = [name for name in _Settings.__annotations__ if not name.startswith("_")]
    assert own_settings() == ours
    page = text_of("api/training.config.md")
    assert all(f"`{name}` (" in page for name in ours)
    assert all(
        f"[`{name}`](../study.md#methods-name-{name})\n:   " in page for name in METHOD_SETTINGS
    )


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


def test_links_to_the_repository():
    page, recipes = "how-to/own.md", {"recipes/trl_grpo.py"}

    def shown(text, address=None):
        return with_links(text, page, address, recipes)

    assert shown("[Makefile](../../Makefile)") == "`Makefile`"
    assert shown("[`schema.py`](../../stapo/study/schema.py)") == "`stapo/study/schema.py`"
    assert shown("[the file](../../Makefile)") == "the file (`Makefile`)"
    at = "https://example.org/stapo"
    assert shown("[Makefile](../../Makefile#a)", at) == f"[Makefile]({at}/blob/main/Makefile#a)"
    assert shown("[it](../../stapo)", at) == f"[it]({at}/tree/main/stapo)"
    for text in (
        "[x](../paper.md#y)",
        "[x](https://e.org/../a)",
        "![x](../images/a.svg)",
        "[x](#y)",
    ):
        assert shown(text) == text
    assert shown("[TRL](../recipes/trl_grpo.py)") == "[TRL](../recipes/trl_grpo.py.md)"
    code = "```\n[x](../../nowhere)\n```"
    assert shown(code) == code
    with pytest.raises(FileNotFoundError, match=r"how-to/own\.md: no file nowhere"):
        shown("[x](../../nowhere)")
