"""The page of the methods of the suite and their parts, from `stapo.core.methods`."""

from collections.abc import Iterator, Mapping

from stapo.core.methods import METHODS, PARTS, Method
from stapo.core.methods.parts import Argument, Part

INTRODUCTION = """# Methods

The methods of the suite, as `stapo.core.methods` defines them, each with its source. A study names them in
[`run.methods`](study.md#run-methods), changes their settings below [`methods.NAME`](study.md#methods-name),
and derives variants from them with `base`. `stapo check STUDY` prints what every method of a study is.
"""


def methods_page() -> str:
    """Return the page in Markdown."""
    parts = [INTRODUCTION]
    parts += [_method(name, method) for name, method in METHODS.items()]
    parts.append(
        "## Parts\n\nEach is a function of [stapo.core.objective](api/core.objective.md), which explains it. "
        "Its arguments are settings of a method.\n"
    )
    for kind, declared in PARTS.items():
        parts.append(f"## Setting `{kind}`\n")
        parts += _parts(declared)
    return "\n".join(parts)


def _parts(declared: Mapping[str, Part]) -> Iterator[str]:
    for name, spec in declared.items():
        yield f"### `{name}`\n"
        rows = [_argument(key, one) for key, one in spec.arguments.items()]
        yield "\n".join(rows) + "\n" if rows else "No arguments.\n"


def _method(name: str, method: Method) -> str:
    settings = method.effective
    shown = [
        f"- `{key}`: {'off' if value is None else f'`{value}`'}" for key, value in settings.items()
    ]
    revision = f" Revision of the paper: {method.revision}." if method.revision else ""
    source = f"Source: {method.source}.{revision}"
    return "\n".join([f"## `{name}`\n", f"{method.title}. {source}\n", *shown, ""])


def _argument(name: str, argument: Argument) -> str:
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    bounds = [f"{words[key]} {bound}" for key, bound in argument.bounds.items()]
    bounds += [" or ".join(f"`{choice}`" for choice in argument.choices)] * bool(argument.choices)
    facts = ", ".join([f"default `{argument.default}`", *bounds])
    return f"- `{name}` ({facts}): {argument.description}"
