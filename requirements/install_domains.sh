#!/bin/sh
# Create or renew .cache/domains: reasoning-gym and what it needs besides .venv, some of it in older versions.
# Touches nothing else.
set -eu
cd "$(dirname "$0")/.."
stamp=$(cat .venv/stamp requirements/domains.txt requirements/install_domains.sh | sha256sum | cut -c1-64)
[ "$(cat .cache/domains/stamp 2>/dev/null || true)" = "$stamp" ] && echo "reasoning-gym is installed" >&2 && exit 0
echo "install: reasoning-gym from requirements/domains.txt" >&2
export PIP_CACHE_DIR="$PWD/.cache/pip" PIP_DISABLE_PIP_VERSION_CHECK=1
rm -rf .cache/domains
# Some packages have no wheel: they are built by the lock's setuptools, one of them with a C compiler.
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --require-hashes --target .cache/domains \
    -r requirements/domains.txt
echo "$stamp" >.cache/domains/stamp
