#!/bin/sh
# Renew the locks from pyproject.toml.
set -eu
cd "$(dirname "$0")/.."
python3.11 -m venv .cache/lock
.cache/lock/bin/python -m pip install --quiet pip-tools==7.6.2
compile() {
    .cache/lock/bin/pip-compile --quiet --generate-hashes --no-annotate --no-header --allow-unsafe \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras "$@"
}
cp requirements/lock.txt .cache/old-lock.txt
cp requirements/cuda.txt .cache/old-cuda.txt
compile --extra dev --output-file requirements/lock.txt pyproject.toml
compile --output-file requirements/cuda.txt requirements/cuda.in
python3.11 requirements/tidy_lock.py .cache/old-cuda.txt requirements/cuda.txt /dev/null
python3.11 requirements/tidy_lock.py .cache/old-lock.txt requirements/lock.txt requirements/cuda.txt
