#!/bin/sh
# Install vLLM for GPUs into .venv, after install.sh. It can be run again at any time.
set -eu
cd "$(dirname "$0")/.."
. requirements/python.sh
# Triton compiles C at run time; this is found out before 4 GB are downloaded.
include=$("$python" -Ic 'import sysconfig; print(sysconfig.get_path("include"))')
if ! echo '#include <Python.h>' | "${CC:-cc}" -E "-I$include" - >/dev/null; then
    echo "install: no C compiler with Python's headers; install gcc and python3-dev, or load their modules" >&2
    exit 2
fi
requirements/install.sh cuda
stamp=$(cat .venv/stamp requirements/gpu.txt requirements/install_gpu.sh | sha256sum | cut -c1-64)
[ "$(cat .venv/gpu-stamp 2>/dev/null || true)" = "$stamp" ] && exit 0
echo "install: installing vLLM for GPUs from requirements/gpu.txt (some minutes)" >&2
export PIP_CACHE_DIR="$PWD/.cache/pip" PIP_DISABLE_PIP_VERSION_CHECK=1
.venv/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/gpu.txt
# No version of numpy is both old enough for vLLM (mistral-common: < 2.4) and new enough for two other packages:
# the Slurm executor, which needs it only for a report that is disabled, and numpy-typing-compat. Other conflicts
# are errors.
if .venv/bin/python -m pip check | grep -Ev '^(snakemake-executor-plugin-slurm|numpy-typing-compat) .* has requirement numpy' |
    grep -v '^No broken requirements'; then
    echo "install: the packages above conflict; check requirements/gpu.txt" >&2
    exit 1
fi
echo "$stamp" >.venv/gpu-stamp
