"""The page of all settings of a study, from the JSON schema that `stapo schema` prints."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stapo.suite.study import study_schema
from stapo.suite.study.fields import IN_WORDS

Schema = Mapping[str, Any]

LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "maxLength": "at most {} characters",
    "maxItems": "at most {} entries",
}
"""Bound in a JSON schema -> its words."""
KINDS = ("hub", "path", "gguf", "wheel", "file", "reasoning_gym", "builder")
"""Keys that tell apart the kinds of a mapping that has several."""
PLURALS = {"string": "texts", "integer": "integers", "number": "numbers"}
NAMES = {"string": "text", "object": "mapping", "boolean": "true or false"}
"""Type in a JSON schema -> its name, where it is another."""

INTRODUCTION = """# Settings of a study

Every key of a study file, from the schema that `stapo schema` prints. NAME stands for a name that the study
chooses. A setting without a default must be in the study, in one that it extends, or in
`workflows/catalogue.yaml`. Keys below `methods.NAME` that are not set keep what the method or its base has:
[methods](methods.md) lists those of the suite.
"""


class Key(NamedTuple):
    """One setting of a study."""

    path: str
    """Place in the file, such as `training.steps`."""
    schema: Schema
    """Its JSON schema."""


class Section(NamedTuple):
    """Settings that stand beside one another."""

    path: str
    """Place of their mapping; empty for the whole file."""
    kind: str
    """Key that all mappings of this kind have, if there are several kinds."""
    about: str
    """What the mapping is."""
    keys: list[Key]


def sections() -> list[Section]:
    """Return all settings of a study."""
    schema = study_schema()
    return list(_sections(schema, "", "", schema["$defs"]))


def study_page() -> str:
    """Return the page in Markdown."""
    parts = [INTRODUCTION]
    for section in sections():
        place = _anchor(section.path, section.kind)
        parts.append(f"## {_heading(section)} {{#{place}}}\n\n{section.about}\n")
        parts += [_entry(key, section) for key in section.keys]
    return "\n".join(parts)


def _heading(section: Section) -> str:
    kind = f" with `{section.kind}`" if section.kind else ""
    return f"`{section.path}`{kind}" if section.path else "The whole file"


def _anchor(path: str, kind: str) -> str:
    """Return the anchor of a setting or section; the settings of each kind have their own."""
    return "-".join([*path.lower().split("."), *[f"with-{kind}"] * bool(kind)]) or "file"


def _sections(schema: Schema, path: str, kind: str, definitions: Schema) -> Iterator[Section]:
    keys = [
        Key(f"{path}.{name}".removeprefix("."), found)
        for name, found in schema["properties"].items()
    ]
    about = schema.get("description", "").split("\n\n")[0].replace("\n", " ")
    yield Section(path, kind, about, keys)
    for key in keys:
        for place, kind_of_it, name in _mappings(key.schema, key.path):
            found = definitions[name.rsplit("/", 1)[-1]]
            inner = next((one for one in KINDS if one in found["properties"]), "")
            yield from _sections(found, place, inner if kind_of_it else "", definitions)


def _mappings(schema: Schema, path: str, several: bool = False) -> Iterator[tuple[str, bool, str]]:
    """Yield place and definition of the mappings that a setting may contain, and whether it has several."""
    if "$ref" in schema:
        yield path, several, schema["$ref"]
    for one in schema.get("anyOf", ()):
        yield from _mappings(one, path, several)
    for one in schema.get("oneOf", ()):
        yield from _mappings(one, path, several=True)
    for one in _values(schema):
        yield from _mappings(one, f"{path}.NAME")


def _values(schema: Schema) -> list[Schema]:
    """Return the schemas of the values of a mapping from names that a study chooses, or of a list."""
    found = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    found += [one for one in [schema.get("items")] if isinstance(one, Mapping) and "$ref" in one]
    return [one for one in found if isinstance(one, Mapping)]


def _entry(key: Key, section: Section) -> str:
    """Return the lines of one setting."""
    kind, anchor = _kind(key.schema), _anchor(key.path, section.kind)
    if kind.startswith("section"):
        anchor = f"entry-{anchor}"  # The section itself has the other one.
    facts = f"{kind}; {_default(key.schema)}"
    about = key.schema.get("description", "")
    return f"### `{key.path}` {{#{anchor} .key}}\n\n{facts}\n{{.facts}}\n\n{about}\n"


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return "no default"
    value = schema["default"]
    if value is None or isinstance(value, Mapping):
        return "may be left out"
    return f"default `{json.dumps(value)}`"


def _kind(schema: Schema) -> str:
    """Return type, unit and bounds in words."""
    if choices := [one for name in ("anyOf", "oneOf") for one in schema.get(name, ())]:
        words = [_kind(one) for one in choices if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(words))
    if "$ref" in schema:
        return "section"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if schema["type"] == "array":
        items = schema["items"]
        if "$ref" in items:
            return "list of sections"
        kind = PLURALS[items["type"]] if "type" in items else "numbers or texts"
        return ", ".join([f"list of {kind}", *_bounds(items), *_bounds(schema)])
    if values := _values(schema):
        return f"{_kind(values[0])} for each name"
    unit = [f"in {schema['unit']}"] if "unit" in schema else []
    return ", ".join([NAMES.get(schema["type"], schema["type"]), *unit, *_bounds(schema)])


def _bounds(schema: Schema) -> list[str]:
    pattern = schema.get("pattern")
    words = [say.format(_number(schema[name])) for name, say in LIMITS.items() if name in schema]
    return [IN_WORDS[pattern], *words] if pattern else words


def _number(value: float) -> str:
    return f"{value:,.12g}"
