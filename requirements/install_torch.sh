#!/bin/sh
# Create or renew .cache/torch-AGE: what `pip install .` gives, with the torch of requirements/torch-AGE.txt and pytest.
# Touches nothing else.
#
# Usage: install_torch.sh oldest|newest
set -eu
cd "$(dirname "$0")/.."
lock=requirements/torch-$1.txt
place=$PWD/.cache/torch-$1
. requirements/python.sh
export PIP_CACHE_DIR="$PWD/.cache/pip" PIP_DISABLE_PIP_VERSION_CHECK=1
stamp=$(cat "$lock" requirements/install_torch.sh | sha256sum | cut -c1-64)
if [ "$(cat "$place/stamp" 2>/dev/null || true)" != "$stamp" ]; then
    echo "install: creating .cache/torch-$1 from $lock (gigabytes, some minutes)" >&2
    rm -rf "$place"
    "$python" -m venv "$place"
    "$place/bin/python" -m pip install --quiet --no-deps --require-hashes -r "$lock"
    echo "$stamp" >"$place/stamp"
fi
# The package anew each time, from a copy: a build leaves files beside its source.
rm -rf "$place/source"
mkdir "$place/source"
cp -R stapo pyproject.toml README.md LICENSE "$place/source"
"$place/bin/python" -m pip install --quiet --no-deps --no-build-isolation --force-reinstall "$place/source"
"$place/bin/python" -m pip check >&2
"$place/bin/python" -P -c 'import stapo, sys; sys.exit(not stapo.__file__.startswith(sys.prefix))'
