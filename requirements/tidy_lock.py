"""Convert pip-compile's output to a lock that works with both builds of torch.

Usage: tidy_lock.py OLD_LOCK NEW_LOCK CUDA_LOCK

Packages that only the default (CUDA) build of torch needs are moved to the CUDA lock. A package index shows
only one build of a version, so the hashes of torch in the old lock are kept for the same version.
"""

import re
import sys
from pathlib import Path


def blocks(path: str) -> dict[str, list[str]]:
    """Return `name==version` -> hashes of every pinned package."""
    found: dict[str, list[str]] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if re.match(r"[A-Za-z0-9]", line):
            name = line.removesuffix(" \\")
            found[name] = []
        elif line.startswith("    --hash=") and found:
            found[name].append(line.strip(" \\"))
    return found


def main(old_path: str, new_path: str, cuda_path: str) -> None:
    """Rewrite the new lock in place."""
    old_text = Path(old_path).read_text(encoding="utf-8")
    header = [line for line in old_text.splitlines() if line.startswith("#")]
    old, cuda = blocks(old_path), {name.split("==")[0] for name in blocks(cuda_path)}
    new = {
        re.sub(r"^(torch==[\d.]+)\+cpu$", r"\1", name): hashes
        for name, hashes in blocks(new_path).items()
        # An extra that builds on another names this package itself, without a version.
        if "==" in name and name.split("==")[0] not in cuda
    }
    for name, hashes in new.items():
        if name.startswith("torch=="):
            new[name] = sorted({*hashes, *old.get(name, [])})
    lines = header
    for name, hashes in sorted(new.items(), key=lambda item: item[0].split("==")[0]):
        lines += [" \\\n    ".join([name, *hashes])]
    Path(new_path).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
