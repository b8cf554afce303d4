"""From files to a study: what it extends, the catalogue, the files that it names, and its errors.

A study says what to compare; `workflows/catalogue.yaml` says what can be chosen. Both are merged as
Snakemake merges configuration files: mappings deeply, lists replaced. Then each setting is checked by itself,
and if all are right, what they say together and the files that they name. Relative paths mean the folder of
the study file that contains them; a study that was read has absolute ones, and a published one names alone.
Checksums of the files that it names are settings of the study, and so part of fingerprints.

A working directory keeps the merged study, in a file that is named by its content: jobs which wait on a
cluster or outlive their Snakemake continue with the version that they were started for.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stapo.core.files import (
    DamagedFileError,
    fingerprint,
    json_text,
    read_json,
    text_of,
    write_json,
)
from stapo.core.methods import METHODS
from stapo.suite import sandbox
from stapo.suite.repository import CATALOGUE, STUDIES
from stapo.suite.study.checks import cross_problems
from stapo.suite.study.golds import domain_problems, gold_problems
from stapo.suite.study.loader import (
    Document,
    Place,
    Problem,
    StudyError,
    field_problems,
    load_yaml,
    shown,
    shown_path,
)
from stapo.suite.study.method_settings import NAMED_PARTS, NEW_NAMES
from stapo.suite.study.named_files import CODE, NAMED
from stapo.suite.study.study import Study

FORMER_KEYS: dict[Place, str] = {("run", "sizes"): "models", ("engine", "sizes"): "models"}
"""Place of a former key -> its name now; former ones are read until the next version."""
OUTER = {"title", "description", "default"}
"""Of the JSON schema of a setting, what is said of it and not of its type."""
RESOLVED = "work/{study}/studies/{fingerprint}.json"
VARIABLE = "STAPO_STUDY"
"""Set for the jobs of a study: the file that they read it from."""
NULL = {"compare"}
"""Settings whose default is another than null, which they may be."""
KINDS = {"hub", "path", "gguf", "wheel", "file", "reasoning_gym", "builder"}
"""Settings of a model or of data that say where it comes from; it has one of them."""

NOTHING_TRAINED: dict[str, Any] = {
    "data": {"builder": "tiny-arithmetic", "prompts": 1},
    "training": {
        "steps": 1, "prompts_per_batch": 1, "prompts_per_mini_batch": 1, "group_size": 2,
        "micro_batch_tokens": 1, "learning_rate": 1.0, "max_prompt_tokens": 1024, "max_response_tokens": 1,
    },
}  # fmt: skip
"""What a study without methods need not say, since nothing reads it."""


def _kind_type(kind: str) -> type:
    """Return what a kind is set to; models and benchmarks may have the name of one."""
    return Mapping if kind == "reasoning_gym" else str


def merge(base: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Merge as Snakemake merges configuration files: mappings deeply, everything else replaced.

    So is a mapping whose kind changes: what comes from the Hub has nothing of what a builder makes. Null
    removes a setting.
    """
    kinds, others = (
        {kind for kind in KINDS if isinstance(settings.get(kind), _kind_type(kind))}
        for settings in (base, update)
    )
    if kinds and others and kinds.isdisjoint(others):
        return {key: value for key, value in update.items() if value is not None}
    merged = dict(base)
    for key, value in update.items():
        old = merged.get(key)
        if value is None and old is not None and key not in NULL:
            del merged[key]
            continue
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        merged[key] = merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def read_study(*paths: Path, changes: Mapping[str, Any] | None = None) -> Study:
    """Return the study of a file, merged over what it extends and over the catalogue.

    Each file is merged over those before it, and the changes over all of them, as Snakemake's --config.
    """
    given = dict(changes or {})
    config = Document(given, dict.fromkeys(_places(given), "--config"))
    documents = [*map(_loaded, paths), _placed(config, Path.cwd())]
    return _study(_extended(documents, True), is_read=True)


def parse_study(raw: Mapping[str, Any]) -> Study:
    """Return a study, merged over what it extends and over the catalogue; its files are not read."""
    if not isinstance(raw, Mapping):
        raise StudyError(["expected a mapping with name, training, run, ..."])
    return _study(_extended([_with_new_keys(Document(dict(raw)))], False), is_read=False)


def _places(given: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the places of all settings, such as `training.learning_rate`."""
    for key, value in given.items():
        if isinstance(value, Mapping) and value:
            yield from _places(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def _loaded(path: Path) -> Document:
    return _placed(load_yaml(path), path.parent)


def _with_new_keys(document: Document, warn: bool = False) -> Document:
    """Return a study with new keys in place of former ones, which with `warn` give a warning."""
    content = deepcopy(document.content)
    for path, new in FORMER_KEYS.items():
        for settings, place in matching(content, path):
            settings.setdefault(new, settings.pop(path[-1]))
            if warn:
                _warn(document, (place, f"is called {new} now; write {new}"))
    return Document(content, document.lines)


def _placed(document: Document, folder: Path) -> Document:
    """Return a study file with absolute paths and without former keys, which give a warning."""
    document = _with_new_keys(document, warn=True)

    def absolute(name: str) -> str:
        return os.path.abspath(folder / os.path.expanduser(name))

    content, name = _with_paths(document.content, absolute), document.content.get("extends")
    if isinstance(name, str) and shipped(name) is None:
        beside = Path(absolute(name if name.endswith(".yaml") else f"{name}.yaml"))
        if os.path.isfile(beside):  # Otherwise an error names it as it was written.
            content["extends"] = str(beside.resolve())
    return Document(content, document.lines)


def shipped(name: str) -> Path | None:
    """Return the file of a study of `workflows/studies`, None if there is none of that name."""
    return next((path for path in STUDIES.rglob("*.yaml") if path.stem == name), None)


def command_for(study: Study) -> str:
    """Return the command that makes the results of a study."""
    file = shipped(study.name)
    return f"snakemake --configfile {shown_path(file) if file else 'STUDY'}"


def _with_paths(raw: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return a study with the paths changed in all settings that name a file."""
    content = deepcopy(raw)
    for path in NAMED:
        for section, place in matching(content, path):
            value = section[place[-1]]
            if isinstance(value, str) and value and _is_file(path, value):
                file, colon, function = value.rpartition(":") if path in CODE else (value, "", "")
                section[place[-1]] = f"{change(file)}{colon}{function}"
    return content


def _is_file(path: Place, value: Any) -> bool:
    """Return whether the value of a setting that may name a file does."""
    return path not in CODE or (isinstance(value, str) and ":" in value)


def matching(section: Any, path: Place, above: Place = ()) -> Iterator[tuple[Any, Place]]:
    """Yield each mapping with a setting whose place matches a path with `*`, and that place."""
    if isinstance(section, dict):
        for key in [*section] if path[0] == "*" else [path[0]] if path[0] in section else []:
            if len(path) == 1:
                yield section, (*above, key)
            else:
                yield from matching(section[key], path[1:], (*above, key))


def _over(base: Document, update: Document) -> Document:
    """Return a document merged over another, with the lines of both."""
    return Document(merge(base.content, update.content), base.lines | update.lines)


def _extended(documents: Sequence[Document], is_read: bool) -> Document:
    """Return the files of a study merged over the one that it extends, and so on, down to the catalogue.

    A name means a study of `workflows/studies`; with `is_read`, an absolute path any other file.
    """
    document = reduce(_over, documents, Document())
    if "extends" in document.content and "name" not in document.content:
        # Its results would be written among those of the study that it extends.
        message = "name missing; a study that extends another has one of its own"
        raise document.error((("extends",), message))
    chain, seen = [document], list[Path]()
    while "extends" in chain[-1].content:
        name, path = chain[-1].content["extends"], None
        if isinstance(name, str):
            path = shipped(name) or (Path(name) if is_read and os.path.isabs(name) else None)
        if path is None or not os.path.isfile(path) or path in seen:
            message = f"no such study: neither beside this file nor in {shown_path(STUDIES)}"
            message = "extends itself; choose another" if path in seen else message
            raise chain[-1].error((("extends",), f"{shown(name)}: {message}"))
        seen.append(path)
        chain.append(_loaded(path))
    name = document.content.get("name")
    if name in [parent.content.get("name") for parent in chain[1:]]:
        message = "the study that it extends has this name, and results; choose another"
        raise document.error((("name",), f"{shown(name)}: {message}"))
    # One after another: a null in a first file removes what it inherits, not what a later file says.
    merged = reduce(_over, [*reversed(chain[1:]), *documents], load_yaml(CATALOGUE))
    merged.content.pop("extends", None)
    return merged


def _study(document: Document, is_read: bool) -> Study:
    """Return the study of a merged document."""
    raw = document.content
    if isinstance(raw.get("run"), dict) and raw["run"].get("methods") == []:
        raw = {**merge(NOTHING_TRAINED, raw), "compare": None}
    if problems := [*_several_sources(raw)]:
        raise document.error(*problems)
    try:
        study = Study.model_validate(raw)
    except ValidationError as error:
        raise document.error(*field_problems(error, raw)) from error
    if is_read:
        _warn(document, *_former_names(raw))
    content = resolved_content(study)
    problems = [*cross_problems(study), *_problems_of_files(study, content, is_read)]
    if is_read and not problems:
        problems = [*gold_problems(study), *domain_problems(study), *_sandbox_problems(study)]
    if problems:
        raise document.error(*problems)
    return Study.model_validate(content)


def _warn(document: Document, *problems: Problem) -> None:
    for line in document.error(*problems).errors:
        sys.stderr.write(f"warning: {line}\n")


def _former_names(raw: dict[str, Any]) -> Iterator[Problem]:
    for kind in NAMED_PARTS:
        for section, place in matching(raw, ("methods", "*", kind)):
            if name := NEW_NAMES.get(str(section[kind])):
                yield place, f"{section[kind]} is called {name} now; write {name}"


def _several_sources(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield data and models that say twice where they come from; a wheel has a `file`."""
    sections: dict[Place, Any] = {("data",): raw.get("data")}
    if isinstance(models := raw.get("models"), Mapping):
        sections |= {("models", name): model for name, model in models.items()}
    for place, section in sections.items():
        kinds = [key for key in section if key in KINDS] if isinstance(section, Mapping) else []
        if len(kinds) > 1 and set(kinds) != {"wheel", "file"}:
            yield place, f"has {' and '.join(kinds)}; keep one of them"


def _sandbox_problems(study: Study) -> Iterator[Problem]:
    """Yield why no function can be judged on this machine, if one is to be."""
    asked: dict[Place, Any] = {
        ("benchmarks", name, "answer"): study.answer(name) for name in study.run.benchmarks
    }
    if study.run.methods:
        asked["training", "reward"] = study.training.reward
    places = [place for place, reader in asked.items() if reader == "python_function"]
    if places and (reason := sandbox.missing()):
        yield places[-1], reason


def _problems_of_files(study: Study, content: dict[str, Any], is_read: bool) -> Iterator[Problem]:
    """Add the settings that the files of a study give to its content, in place, and yield problems.

    Where its files are not read, as of a published study, it must contain the settings.
    """
    methods = [*study.run.methods, study.interventions.method]
    used = {
        "benchmarks": study.run.benchmarks,
        "models": study.run.models,
        "methods": {ancestor for name in methods for ancestor in study.lineage(name)}
        - METHODS.keys(),
    }
    for path, (keys, read) in NAMED.items():
        for section, place in matching(content, path):
            is_unused = "*" in path and place[1] not in used[str(place[0])]
            if is_unused or not _is_file(path, section[place[-1]]):
                continue
            if not is_read:
                if absent := [key for key in keys if key not in section]:
                    yield place, f"the file was not read; {' and '.join(absent)} missing"
                continue
            try:
                given = read(section)
            except StudyError as error:
                yield from ((place, line) for line in error.errors)
                continue
            for key in keys:
                if section.get(key, given[key]) != given[key]:
                    message = f"expected {section[key]}, found {given[key]}"
                    yield place, f"{key}: {message}; if this is intended, write the found value"
            section |= given


def resolved_content(study: Study) -> dict[str, Any]:
    """Return a study as JSON has it, from which it can be read again."""
    content = study.model_dump(mode="json", exclude_none=True)
    # Left out, it would be read again as the default, the comparison of STAPO.
    return {**content, "compare": None} if study.compare is None else content


def published_content(study: Study) -> dict[str, Any]:
    """Return a study as it is published: without where files lie on this machine."""
    return _with_paths(resolved_content(study), os.path.basename)


def study_schema() -> dict[str, Any]:
    """Return the JSON schema of study files, for editors."""
    schema: dict[str, Any] = Study.model_json_schema()
    schema["$defs"]["Run"]["properties"]["methods"]["items"]["examples"] = list(METHODS)
    # What a file leaves out may stand in the study that it extends, or in the catalogue.
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Study that this one changes: a name in workflows/studies, or a file beside this one; "
        "default: none",
    }
    for part in (schema, *schema["$defs"].values()):
        part.pop("required", None)
        part["properties"] = {key: _nullable(value) for key, value in part["properties"].items()}
    return schema


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a setting that may also be null, as may the entries of a mapping."""
    for key in ("additionalProperties", "patternProperties"):
        if isinstance(value := schema.get(key), dict):
            is_one = key == "additionalProperties"
            schema[key] = (
                _nullable(value) if is_one else {k: _nullable(v) for k, v in value.items()}
            )
    outer = {key: schema.pop(key) for key in [*schema] if key in OUTER}
    return {**outer, "anyOf": [schema, {"type": "null"}]}


def resolved_path(study: Study) -> str:
    """Return where the resolved study lies, from the working directory."""
    return RESOLVED.format(study=study.name, fingerprint=fingerprint(study.model_dump(mode="json")))


def write_resolved(study: Study) -> None:
    """Write the resolved study atomically, unless it is there and undamaged."""
    path, content = Path(resolved_path(study)), resolved_content(study)
    if text_of(path) != json_text(content):
        write_json(path, content)


def read_resolved(path: Path) -> Study:
    """Return the study of a resolved file."""
    if not os.path.exists(path):
        remedy = "Snakemake writes it when a run starts; give the study file instead"
        raise StudyError([f"{path}: no such file; {remedy}"])
    try:
        return parse_study(read_json(path))
    except DamagedFileError as error:
        raise StudyError([str(error)]) from error
