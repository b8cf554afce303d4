#!/bin/sh
# Renew the locks from pyproject.toml. Afterwards look at the diff: hashes of other builds of torch 2.13.0
# (ordinary and CPU) are kept by hand, since an index shows only one of them.
set -eu
cd "$(dirname "$0")/.."
python3.11 -m venv .cache/lock
.cache/lock/bin/python -m pip install --quiet pip-tools==7.6.2
compile() {
    .cache/lock/bin/pip-compile --quiet --generate-hashes --no-annotate --no-header --allow-unsafe \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras "$@"
}
compile --extra dev --output-file requirements/lock.txt pyproject.toml
compile --output-file requirements/cuda.txt requirements/cuda.in
