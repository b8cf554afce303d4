"""The generated pages of the reference, none of which git tracks."""

from collections.abc import Callable
from typing import NamedTuple

from artefacts import artefacts_page
from commands import commands_page
from methods_page import methods_page
from study_keys import study_page

API = {
    "stapo.objective": "advantages, token selections, surrogate and aggregation: pure functions of tensors",
    "stapo.conformance": "compares a trainer's loss with the paper's",
    "stapo.training.config": "settings of the trainer",
    "stapo.training.trainer": "TRL's trainer with the exact update",
    "stapo.training.rewards": "training rewards",
}
"""Module that others import -> what it is."""


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
    for module, about in API.items():
        name = f"api/{module.removeprefix('stapo.')}.md"
        found[name] = Page(module, about, lambda module=module: f"# {module}\n\n::: {module}\n")
    return {f"reference/{name}": page for name, page in found.items()}


def contents() -> str:
    """Return a list of links to the pages, for `docs/reference/README.md`."""
    return "\n".join(
        f"- [{page.title}]({path.removeprefix('reference/')}): {page.about}"
        for path, page in pages().items()
    )
