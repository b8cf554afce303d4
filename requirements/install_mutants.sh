#!/bin/sh
# Create or renew .cache/mutants: what `make mutants` needs besides .venv. Touches nothing else.
set -eu
cd "$(dirname "$0")/.."
stamp=$(cat .venv/stamp requirements/mutants.txt requirements/install_mutants.sh | sha256sum | cut -c1-64)
[ "$(cat .cache/mutants/stamp 2>/dev/null || true)" = "$stamp" ] && exit 0
echo "install: mutmut from requirements/mutants.txt" >&2
export PIP_CACHE_DIR="$PWD/.cache/pip" PIP_DISABLE_PIP_VERSION_CHECK=1
rm -rf .cache/mutants
.venv/bin/python -m pip install --quiet --no-deps --require-hashes --target .cache/mutants \
    -r requirements/mutants.txt
echo "$stamp" >.cache/mutants/stamp
