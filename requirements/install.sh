#!/bin/sh
# Create or renew .venv from the lock. Touches nothing outside the repository; safe to run again, also
# after an interruption: the stamp is written last, and whatever does not match it is built anew.
#
# Usage: install.sh [cuda]
#
# Without a GPU here, torch is the CPU build if a package index has it; with `cuda`, always the ordinary one.
set -eu
cd "$(dirname "$0")/.."
stamp=$(cat requirements/lock.txt requirements/cuda.txt requirements/install.sh pyproject.toml | sha256sum | cut -c1-64)
build=${1:-}
there=$(cat .venv/stamp 2>/dev/null || true)
[ "$there" = "$stamp cuda" ] && exit 0
[ -z "$build" ] && [ "$there" = "$stamp" ] && exit 0

# Two makes at once: the second waits, then finds the work done.
if command -v flock >/dev/null && [ -z "${STAPO_INSTALL_LOCKED:-}" ]; then
    STAPO_INSTALL_LOCKED=1 exec flock .venv.lock requirements/install.sh "$@"
fi

. requirements/python.sh
echo "install: pip puts requirements/lock.txt into .venv and says nothing meanwhile: 3 minutes on two cores, and the" \
    "time of the download; 2.5 GB on disk, 4 GB more with a GPU" >&2
export PIP_CACHE_DIR="$PWD/.cache/pip" PIP_DISABLE_PIP_VERSION_CHECK=1
rm -rf .venv
"$python" -m venv .venv
pip() { .venv/bin/python -m pip install --quiet --no-deps "$@"; }
if [ -e /proc/driver/nvidia/version ] || command -v nvidia-smi >/dev/null; then build=cuda; fi
if [ -z "$build" ]; then
    # The ordinary build has 4 GB of CUDA libraries. pip prefers it unless the CPU build is asked for by name.
    sed -n '/^torch==/,/[^\\]$/p' requirements/lock.txt | sed 's/^\(torch==[0-9.]*\)/\1+cpu/' >.venv/torch.txt
    pip --require-hashes -r .venv/torch.txt 2>.venv/torch.log ||
        echo "install: no CPU build of torch at your package index; its ordinary build works too" >&2
fi
# --no-deps: the lock is complete; the two checks below prove it.
pip --require-hashes -r requirements/lock.txt
# The ordinary build of torch needs CUDA libraries, the CPU build does not.
if .venv/bin/python -c 'import importlib.metadata as m, sys; sys.exit(not any("nvidia" in r for r in m.requires("torch")))'; then
    pip --require-hashes -r requirements/cuda.txt
fi
pip --no-build-isolation --editable .
.venv/bin/python -m pip check >&2
.venv/bin/python requirements/check_extras.py dev >&2
echo "$stamp${build:+ $build}" >.venv/stamp
