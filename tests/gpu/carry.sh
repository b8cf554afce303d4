#!/bin/sh
# Collect wheels for `make gpu` on a machine without network that has torch 2.11 or newer, Transformers and Accelerate,
# but not TRL, and print how to run the tests and the program there.
#
# Usage: tests/gpu/carry.sh [VERSION]     its Python, 3.12 by default
set -eu
cd "$(dirname "$0")/../.."
version=${1:-3.12} place=work/carry
. requirements/python.sh
rm -rf "$place"
mkdir -p "$place"
for name in trl datasets dill multiprocess pydantic pydantic-core annotated-types typing-inspection ruamel-yaml \
    pytest iniconfig pluggy pygments packaging; do
    sed -n "/^$name==/,/[^\\\\]\$/p" requirements/lock.txt
done >"$place/wheels.txt"
"$python" -m pip download --quiet --no-deps --require-hashes --only-binary=:all: --implementation cp \
    --python-version "$version" --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 \
    --dest "$place" -r "$place/wheels.txt"
echo "$place: $(du -sh "$place" | cut -f1) of wheels for Python $version; copy the repository with them, and run there:"
echo "python3 -m pip install --no-index --no-deps --target work/site $place/*.whl"
echo "export PYTHONPATH=work/site:.:tests"
echo "python3 -m pytest -q tests/unit/core/test_head.py tests/unit/suite/training/test_kills.py"
echo "timeout 540 python3 -m gpu.vllm   # its page: work/gpu/vllm.json"
