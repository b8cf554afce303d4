"""The checkpoints that a user names: directories, Hub models and published studies."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from huggingface_hub import snapshot_download

from stapo import paths
from stapo.canonical import canonical, fingerprint
from stapo.hub import with_retries
from stapo.methods import METHODS
from stapo.models.base import HUB_FILES
from stapo.models.loading import checkpoint_fault
from stapo.provenance import file_sha256
from stapo.study import StudyError
from stapo.study.fields import IN_WORDS, TITLE
from stapo.text import refused

SUFFIXES = (".safetensors", ".json", ".jinja", ".txt", ".model")
"""Suffixes of the files of a checkpoint."""
HUB = re.compile(r"([\w.-]+/[\w.-]+)(?:@(.+))?")
RUN = re.compile(r".*?([^/]+)/runs/([^/]+)/([^/]+)/seed(\d+)/(?:model|step(\d+))")
BASE = re.compile(r".*?([^/]+)/models/([^/]+)/base")
LONGEST_NAME, LONGEST_TITLE = 80, 60


@dataclass(frozen=True)
class Argument:
    """A checkpoint, or a published study, as the user names it: `WHAT` or `LABEL=WHAT`."""

    what: str
    label: str = ""


@dataclass(frozen=True)
class FoundModel:
    """A directory of weights, with its identity."""

    path: Path
    checksum: str
    """Checksum of its files, 40 hex digits."""
    name: str
    """Name for directories; all characters except letters, digits, `.`, `+` and `-` are replaced."""
    size: str
    """Size in the study that trained it; empty if unknown."""
    title: str
    """Title of its table row."""


def parse_arguments(texts: Sequence[str]) -> tuple[list[Argument], list[str]]:
    """Return what the user names, and a line for each error that is seen without reading weights."""
    arguments, errors = [], []
    for text in texts:
        label, equals, what = text.partition("=")
        if not equals or Path(text).is_dir():
            label, what = "", text
        elif not re.fullmatch(TITLE, label) or refused(label):
            errors.append(f"{text}: a label has {IN_WORDS[TITLE]}")
        arguments.append(Argument(what, label))
        try:
            if Path(what).is_dir():
                _directories(what)
            elif not HUB.fullmatch(what):
                about = "neither a directory nor a Hub model (owner/name@revision)"
                errors.append(f"{what}: {about}")
        except StudyError as error:
            errors += error.errors
    twice = [label for label, count in Counter(a.label for a in arguments).items() if count > 1]
    errors += [f"{label}: a label of two checkpoints; choose another" for label in twice if label]
    return arguments, errors


def find_checkpoints(
    arguments: Sequence[Argument], say: Callable[[str], None]
) -> tuple[list[FoundModel], list[str]]:
    """Return all checkpoints, after downloading those of the Hub, and a line for each error in them.

    Without errors, each checkpoint can be read and has a name and a title of its own.

    Args:
        arguments: result of `parse_arguments`.
        say: called with a line about each checkpoint that is left out, since another has the same weights.

    Raises:
        RuntimeError: a model cannot be downloaded.
    """
    found: dict[str, FoundModel] = {}
    for argument in arguments:
        members = _directories(argument.what)
        for path in members:
            one = checkpoint(path, argument.what if len(members) == 1 else "")
            if argument.label:
                title = argument.label if len(members) == 1 else f"{argument.label} {one.title}"
                one = replace(one, title=title, name=_slug(title))
            if one.checksum in found:
                say(f"{one.title}: the same weights as {found[one.checksum].title}; shown once.")
            found.setdefault(one.checksum, one)
    titles = Counter(one.title for one in found.values())
    named = [
        one if titles[one.title] == 1 else replace(one, title=one.name) for one in found.values()
    ]
    names = Counter(one.name for one in named)
    errors = [
        f"{one.path}: another checkpoint is called {one.name} too; give it a label: LABEL={one.path}"
        for one in named
        if names[one.name] > 1
    ]
    return named, [*filter(None, (checkpoint_fault(one.path) for one in named)), *errors]


def checkpoint(path: Path, given: str) -> FoundModel:
    """Return the checkpoint in a directory, with its identity.

    A published checkpoint of a study is recognised by its path and by the checksums that its training
    recorded; every other checkpoint is named after `given`.

    Args:
        path: directory of the weights.
        given: what the user wrote: a directory, or a Hub model.
    """
    files = {f.name: file_sha256(f) for f in sorted(path.iterdir()) if f.suffix in SUFFIXES}
    checksum = hashlib.sha256(canonical(files).encode()).hexdigest()[:40]
    place = path.resolve().as_posix()
    if found := RUN.fullmatch(place):
        study, size, method, seed, step = found.groups()
        if _recorded(path) == files:
            name = f"{study}-{size}-{method}-seed{seed}" + (f"-step{step}" if step else "")
            known = METHODS[method].title if method in METHODS else method
            title = f"{known}, seed {seed}" + (f", step {step}" if step else "")
            return FoundModel(path, checksum, _slug(name), size, title)
    recorded = path.with_name(Path(paths.BASE_RECORD).name).is_file()
    if (found := BASE.fullmatch(place)) and (recorded or "/results/" in place):
        study, size = found.groups()
        return FoundModel(path, checksum, _slug(f"{study}-{size}-base"), size, "Base")
    given = given or str(path)
    last = Path(given).name if Path(given).is_dir() else given.partition("@")[0]
    name = _slug(last or path.resolve().name)
    return FoundModel(path, checksum, name, "", given[-LONGEST_TITLE:])


def _directories(what: str) -> list[Path]:
    """Return the directories of weights: one, or all of a published study.

    Raises:
        StudyError: it has no weights that can be read.
        RuntimeError: it cannot be downloaded.
    """
    path = Path(what) if Path(what).is_dir() else _downloaded(what)
    if any(path.glob("*.safetensors")):
        return [path]
    if (path / "runs").is_dir() or (path / "models").is_dir():
        members = [*path.glob("models/*/base"), *path.glob("runs/*/*/seed*/model")]
        if weights := [one for one in members if any(one.glob("*.safetensors"))]:
            return sorted(weights, key=_order)
        about = "a study whose weights were removed; name the directories of weights"
        raise StudyError([f"{what}: {about}"])
    raise StudyError([f"{what}: no *.safetensors, the only supported format of weights"])


def _order(path: Path) -> tuple[str, int, str, int]:
    """Return the place of a checkpoint of a study: by size, then its base model, then methods and seeds."""
    found = RUN.fullmatch(path.resolve().as_posix())
    if not found:
        return path.parent.name, -1, "", 0
    _, size, method, seed, _ = found.groups()
    known = list(METHODS)
    return size, known.index(method) if method in known else len(known), method, int(seed)


def _downloaded(model: str) -> Path:
    found = HUB.fullmatch(model)
    assert found, model
    hub, revision = found.groups()
    try:
        return Path(
            with_retries(
                lambda: snapshot_download(hub, revision=revision, allow_patterns=HUB_FILES)
            )
        )
    except Exception as error:
        # The Hub's client, httpx and the operating system have no common class of errors.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        remedy = "without internet, name the directory of a copy"
        raise RuntimeError(f"{model}: cannot be downloaded ({reason}); {remedy}") from error


def _recorded(path: Path) -> dict[str, str]:
    """Return the checksums of a checkpoint that its training recorded; empty without a record."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        outputs = json.loads((path.parent / paths.RECORD_FILE).read_text())["outputs"]
        start = f"{path.resolve().name}/"
        named = {
            key.removeprefix(start): sha for key, sha in outputs.items() if key.startswith(start)
        }
        return {name: sha for name, sha in named.items() if Path(name).suffix in SUFFIXES}
    return {}


def _slug(text: str) -> str:
    """Return a text as a name for directories; a text without any letter or digit gets its fingerprint."""
    plain = re.sub(r"[^A-Za-z0-9.+-]+", "-", text).strip("-.+")[-LONGEST_NAME:].lstrip("-.+")
    return plain or f"model-{fingerprint(text)[:8]}"
