"""The generated pages of the reference, none of which git tracks."""

from collections.abc import Callable
from typing import NamedTuple

from artefacts import artefacts_page
from commands import commands_page
from methods_page import methods_page
from study_keys import study_page
from trainer_settings import trainer_settings_page

API = {
    "stapo.core.objective": (
        "stapo.core.objective",
        "advantages, token selections, surrogate and aggregation: pure functions of tensors",
        "",
    ),
    "stapo.core.conformance": (
        "stapo.core.conformance",
        "compares a trainer's loss with the paper's",
        "",
    ),
    "stapo.core.trainer": (
        "stapo.core.trainer.StapoTrainer",
        "TRL's trainer with the exact update",
        "{members: false, show_root_heading: true}",
    ),
    "stapo.suite.training.rewards": (
        "stapo.suite.training.rewards",
        "training rewards",
        "{members: [boxed_reward]}",
    ),
}
"""Module that others import -> what mkdocstrings shows, what it is, options."""


class Page(NamedTuple):
    """A generated page."""

    title: str
    about: str
    text: Callable[[], str]


def pages() -> dict[str, Page]:
    """Return path below `docs/` -> page."""
    found = {
        "study.md": Page("Settings of a study", "every key of a study file", study_page),
        "methods.md": Page("Methods", "what each method is, and its token selection", methods_page),
        "commands.md": Page("Commands", "every command with its options", commands_page),
        "files.md": Page("Files in results", "every file with its columns", artefacts_page),
    }
    settings = Page("stapo.core.config", "settings of the trainer", trainer_settings_page)
    found["api/core.config.md"] = settings
    for module, (shown, about, options) in API.items():
        given = f"    options: {options}\n" if options else ""
        text = f"# {module}\n\n::: {shown}\n{given}"
        name = f"api/{module.removeprefix('stapo.')}.md"
        found[name] = Page(module, about, lambda text=text: text)
    return {f"reference/{name}": page for name, page in found.items()}


def contents() -> str:
    """Return a list of links to the pages, for `docs/reference/README.md`."""
    return "\n".join(
        f"- [{page.title}]({path.removeprefix('reference/')}): {page.about}"
        for path, page in pages().items()
    )
