"""Checksums of files, and of directories of weights."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stapo.core.files import DamagedFileError, open_file, text_of, write

SUMS = "SHA256SUMS"
"""File of checksums in every directory of weights written here, in the format of `sha256sum --check`."""


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_hidden(path: Path) -> bool:
    """Return whether a relative path or one of its directories begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def checksums(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """Return path relative to `root` -> SHA-256 of files and of the visible files below directories."""
    files = [
        file
        for path in paths
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.is_file() and not is_hidden(file.relative_to(root))
    ]
    return {os.path.relpath(file, root): file_sha256(file) for file in files}


def file_sums(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Return name -> SHA-256 of files below a directory; several files are hashed in parallel."""
    names = list(names)
    with ThreadPoolExecutor() as pool:  # Hashing releases the GIL.
        return dict(zip(names, pool.map(lambda name: file_sha256(root / name), names), strict=True))


def changed_files(root: Path, stated: Mapping[str, str]) -> list[str]:
    """Return the files below a directory that are missing or whose SHA-256 is not the stated one."""
    sums = file_sums(root, [name for name in stated if (root / name).is_file()])
    return [name for name, sha in stated.items() if sums.get(name) != sha]


def write_sums(directory: Path) -> None:
    """Write the checksums of all files of a directory into it, so that later damage is detected."""
    files = [path for path in directory.rglob("*") if path.is_file() and path != directory / SUMS]
    names = sorted(path.relative_to(directory).as_posix() for path in files)
    lines = (f"{sha}  {name}\n" for name, sha in file_sums(directory, names).items())
    write(directory / SUMS, "".join(lines))


def damaged_file(directory: Path) -> str | None:
    """Return the first file that differs from its checksum; None if none does or checksums are missing."""
    path = directory / SUMS
    if not path.exists():
        return None
    pairs = [line.partition("  ") for line in text_of(path).splitlines()]
    stated = {name: sha for sha, _, name in pairs}
    changed = changed_files(directory, stated) if stated else [SUMS]
    return (changed[0] or SUMS) if changed else None  # A damaged line may contain no name.


def sums_of(directory: Path) -> str | None:
    """Return one checksum for all files of a directory of weights; None if it has no `SHA256SUMS`."""
    path = directory / SUMS
    return file_sha256(path) if path.exists() else None


def require_whole(directory: Path) -> None:
    """Raise a DamagedFileError unless a directory of weights has the checksums that it contains."""
    if name := damaged_file(directory):
        remedy = f"remove {directory} and run snakemake again, which writes it again"
        if directory.parts[:1] != ("results",):
            # Nothing writes it again, and it may be the only copy.
            remedy = f"copy it again; if you changed it yourself, remove {directory / SUMS}"
        raise DamagedFileError(
            f"{directory / name}: missing, truncated or corrupt (not the SHA-256 in {SUMS}); {remedy}"
        )
