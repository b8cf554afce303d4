"""Write the packages of a resolution that other locks do not pin to the same version.

Usage: layer_lock.py RESOLUTION LAYER LOCK...

Packages with another version than in the locks are kept, and replace them. torch is always that of the
locks.
"""

import sys
from pathlib import Path

from tidy_lock import blocks


def main(resolution: str, layer: str, *locks: str) -> None:
    """Write the layer, and keep its comments."""
    below = {name for lock in locks for name in blocks(lock)}
    path = Path(layer)
    old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    lines = [line for line in old if line.startswith("#")]
    for name, hashes in blocks(resolution).items():
        if name not in below and not name.startswith("torch=="):
            lines.append(" \\\n    ".join([name, *hashes]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
