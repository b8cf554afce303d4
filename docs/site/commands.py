"""The page of the commands of `stapo`, from the program itself."""

from typing import Any

import typer.main

from stapo.suite.cli import app

INTRODUCTION = """# Commands

What `stapo COMMAND --help` prints. [Command line](../command-line.md) has examples and the keys of
`--json`.
"""


def commands_page() -> str:
    """Return the page in Markdown."""
    return "\n".join([INTRODUCTION, *(_command(name) for name in _program().commands)])


def _program() -> Any:
    return typer.main.get_command(app)


def _command(name: str) -> str:
    command = _program().commands[name]
    context = command.make_context(f"stapo {name}", [], resilient_parsing=True)
    usage = command.get_usage(context).removeprefix("Usage: ")
    records = [one.get_help_record(context) for one in command.get_params(context)]
    options = [
        f"`{option}`\n:   {_text(about)}\n"
        for option, about in filter(None, records)
        if option != "--help"
    ]
    return "\n".join([f"## stapo {name}\n", f"```\n{usage}\n```\n", _help(command.help), *options])


def _help(text: str) -> str:
    """Return the help text of a command, with its example as code."""
    paragraphs = []
    for paragraph in text.strip().split("\n\n"):
        label, found, example = paragraph.partition("Example: ")
        if found:
            paragraphs.append(f"{label}Example:\n\n```\n{example}\n```")
        else:
            paragraphs.append(_text(paragraph))
    return "\n\n".join(paragraphs) + "\n"


def _text(text: str) -> str:
    """Return text that Markdown shows as it is, except code in backticks."""
    return " ".join(text.split()).replace("*", r"\*").replace("<", "&lt;").replace("[", r"\[")
