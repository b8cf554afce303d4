#!/bin/sh
# Create or renew .venv from the lock. Touches nothing outside the repository; safe to run again, also
# after an interruption: the stamp is written last, and whatever does not match it is built anew.
set -eu
cd "$(dirname "$0")/.."
stamp=$(cat requirements/lock.txt requirements/cuda.txt requirements/install.sh pyproject.toml | sha256sum | cut -c1-64)
[ "$(cat .venv/stamp 2>/dev/null || true)" = "$stamp" ] && exit 0

# Two makes at once: the second waits, then finds the work done.
if command -v flock >/dev/null && [ -z "${STAPO_INSTALL_LOCKED:-}" ]; then
    STAPO_INSTALL_LOCKED=1 exec flock .venv.lock requirements/install.sh
fi

for python in "${PYTHON:-}" python3.11 python3; do
    if "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then break; fi
    python=
done
if [ -z "$python" ]; then
    echo "install: no Python 3.11 found, which the lock is made for; set PYTHON=/path/to/python3.11" >&2
    exit 2
fi

echo "install: creating .venv from requirements/lock.txt (a minute or two)" >&2
export PIP_CACHE_DIR="$PWD/.cache/pip" PIP_DISABLE_PIP_VERSION_CHECK=1
rm -rf .venv
"$python" -m venv .venv
pip() { .venv/bin/python -m pip install --quiet --no-deps "$@"; }
# --no-deps: the lock is complete; pip check below proves it.
pip --require-hashes -r requirements/lock.txt
# The ordinary build of torch needs CUDA libraries, the CPU build does not.
if .venv/bin/python -c 'import importlib.metadata as m, sys; sys.exit(not any("nvidia" in r for r in m.requires("torch")))'; then
    pip --require-hashes -r requirements/cuda.txt
fi
pip --no-build-isolation --editable .
.venv/bin/python -m pip check >&2
echo "$stamp" >.venv/stamp
