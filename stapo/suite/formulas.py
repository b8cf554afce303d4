"""The source of the formulas that a method uses, as a part of what determines its trainings.

A part of a method is a function of `stapo.core.objective`. Its checksum covers this function and all that it
calls in that package, without docstrings, comments, types and the words of errors. `CHECKSUMS` has those with
which all published trainings were made: only what differs from them is in a fingerprint. Who changes a
function without changing a result, by other names for example, writes that file again:

    python -m stapo.suite.formulas
"""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache

from stapo.core.files import read_json, write_json
from stapo.core.methods import PARTS, Method
from stapo.suite.repository import PACKAGE

OBJECTIVE = PACKAGE / "core" / "objective"
CHECKSUMS = OBJECTIVE / "formulas.json"
IMPORTED = "stapo.core.objective."
REGISTRIES = {
    "selection": ("selection", "SELECTIONS"),
    "advantage": ("advantages", "ADVANTAGES"),
    "weighting": ("weightings", "WEIGHTINGS"),
    "surrogate": ("surrogates", "SURROGATES"),
    "penalty": ("penalties", "PENALTIES"),
}
"""Part of a method -> module, and the dictionary in it that has a function for each name."""
SHARED = {"aggregation": ("aggregation", "token_weights"), "kl": ("surrogates", "kl_k3")}
"""Part of a method -> module and function."""

Place = tuple[str, str]
"""Module, and name in it."""


def changed_formulas(method: Method) -> dict[str, str]:
    """Return part -> checksum of those parts of a method whose source is not that of `CHECKSUMS`."""
    parts = {kind: str(getattr(method, kind)) for kind in PARTS}
    parts |= {"aggregation": ""} | ({"kl": ""} if method.kl_coefficient else {})
    if method.is_own:
        del parts["selection"]
    known, now = _published(), checksums()
    names = {kind: f"{kind} {name}".rstrip() for kind, name in parts.items()}
    return {kind: now[name] for kind, name in names.items() if now[name] != known.get(name)}


@cache
def _published() -> dict[str, str]:
    return read_json(CHECKSUMS)


@cache
def checksums() -> dict[str, str]:
    """Return part and name -> checksum of the source."""
    roots = {f"{kind} {name}": _entry(kind, name) for kind in PARTS for name in PARTS[kind]}
    roots |= {kind: (module, _definitions(module)[name]) for kind, (module, name) in SHARED.items()}
    return {part: _checksum(module, node) for part, (module, node) in sorted(roots.items())}


def _entry(kind: str, name: str) -> tuple[str, ast.AST]:
    """Return the module of a registry, and what it has under a name."""
    module, registry = REGISTRIES[kind]
    table = _definitions(module)[registry]
    assert isinstance(table, ast.AnnAssign)
    assert isinstance(table.value, ast.Dict)
    keys = [ast.literal_eval(key) for key in table.value.keys if key is not None]
    return module, table.value.values[keys.index(name)]


def _checksum(module: str, root: ast.AST) -> str:
    """Return the checksum of an expression or function, and of all that it calls, in any order."""
    used: dict[Place, ast.AST] = {}
    open_nodes = [(module, root)]
    while open_nodes:
        inside, node = open_nodes.pop()
        for place, definition in _named_in(inside, node):
            if place not in used:
                used[place] = definition
                open_nodes.append((place[0], definition))
    text = repr([_plain(root), *(_plain(used[place]) for place in sorted(used))])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _named_in(module: str, node: ast.AST) -> Iterator[tuple[Place, ast.AST]]:
    """Yield what of the package a node names."""
    for name in {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}:
        place = _imports(module).get(name, (module, name))
        if place[1] in _definitions(place[0]):
            yield place, _definitions(place[0])[place[1]]


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse((OBJECTIVE / f"{module}.py").read_text(encoding="utf-8"))


@cache
def _definitions(module: str) -> dict[str, ast.AST]:
    """Return name -> definition of the functions, classes and constants of a module."""
    definitions: dict[str, ast.AST] = {}
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            definitions[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (
                inner.id
                for target in targets
                for inner in ast.walk(target)
                if isinstance(inner, ast.Name)
            )
            definitions |= dict.fromkeys(names, node)
    return definitions


@cache
def _imports(module: str) -> dict[str, Place]:
    """Return name -> where it is defined, of what a module imports of the package."""
    return {
        alias.asname or alias.name: (node.module.removeprefix(IMPORTED), alias.name)
        for node in _tree(module).body
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(IMPORTED)
        and node.module
        for alias in node.names
    }


def _plain(node: object) -> object:
    """Return a node as nested lists, equal in all versions of Python, without what changes no value."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if isinstance(node, ast.Raise):
        return ["Raise"]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    body = fields.get("body")
    if isinstance(body, list):
        fields["body"] = [statement for statement in body if not _is_text(statement)]
    left_out = {"annotation", "returns", "ctx", "type_comment", "type_params", "kind"}
    kept = [[name, _plain(value)] for name, value in fields.items() if name not in left_out]
    return [type(node).__name__, *kept]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


if __name__ == "__main__":
    write_json(CHECKSUMS, checksums())
