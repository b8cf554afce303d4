"""Check that everything which extras of stapo ask for is installed: `pip check` does not look at extras.

Usage: check_extras.py EXTRA...

What the packages of an extra require, and the extras that they ask for in turn, are checked as well.
"""

import sys
from importlib import metadata

from packaging.requirements import Requirement


def faults(extras: list[str]) -> list[str]:
    """Return a line for every requirement of the extras that is not met."""
    found, seen, unread = [], set(), [("stapo", extra) for extra in extras]
    while unread:
        name, extra = unread.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in metadata.requires(name) or ():
            needed = Requirement(line)
            if needed.marker and not needed.marker.evaluate({"extra": extra}):
                continue
            try:
                version = metadata.version(needed.name)
            except metadata.PackageNotFoundError:
                found.append(f"{name} needs {needed}, which is not installed")
                continue
            if not needed.specifier.contains(version, prereleases=True):
                found.append(f"{name} needs {needed}, but {version} is installed")
            unread += [(needed.name, inner) for inner in ("", *needed.extras)]
    return sorted(found)


if __name__ == "__main__":
    sys.exit("\n".join(f"install: {line}" for line in faults(sys.argv[1:])) or None)
