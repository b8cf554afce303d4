"""Keep of a resolution what other locks do not already pin to the same version.

Usage: layer_lock.py RESOLUTION LAYER LOCK...

Packages of which the resolution has another version stay: they replace those of the locks below. torch is
always that of the lock.
"""

import sys
from pathlib import Path

from tidy_lock import blocks


def main(resolution: str, layer: str, *locks: str) -> None:
    """Write the layer, with the comments that it had."""
    below = {name for lock in locks for name in blocks(lock)}
    path = Path(layer)
    old = path.read_text().splitlines() if path.exists() else []
    lines = [line for line in old if line.startswith("#")]
    for name, hashes in blocks(resolution).items():
        if name not in below and not name.startswith("torch=="):
            lines.append(" \\\n    ".join([name, *hashes]))
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
