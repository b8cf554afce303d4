#!/bin/sh
# Update the lock files from pyproject.toml.
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

# pip-compile keeps the pins of an output file that is there: what nothing moves stays as it is.
cp requirements/gpu.txt .cache/gpu.txt
cp requirements/mutants.txt .cache/mutants.txt

# vLLM for GPUs, in addition to the locks above, with other versions of numpy and cuda-bindings.
{
    grep -Eh '^[A-Za-z0-9].*==' requirements/lock.txt | sed 's/ \\$//' | grep -v '^numpy=='
    grep -Eh '^[A-Za-z0-9].*==' requirements/cuda.txt | sed 's/ \\$//' | grep -v '^cuda-bindings=='
} >.cache/constraints.txt
printf -- '-c constraints.txt\nvllm==0.31.0\n' >.cache/gpu.in
compile --output-file .cache/gpu.txt .cache/gpu.in
python3.11 requirements/layer_lock.py .cache/gpu.txt requirements/gpu.txt requirements/lock.txt requirements/cuda.txt

# torch alone with the tests' packages, for `make test-torch`.
for age in oldest newest; do
    compile --output-file requirements/torch-$age.txt requirements/torch-$age.in
done

# mutmut, in addition to the lock for development, without other versions.
grep -Eh '^[A-Za-z0-9].*==' requirements/lock.txt | sed 's/ \\$//' >.cache/constraints.txt
{ echo '-c constraints.txt' && cat requirements/mutants.in; } >.cache/mutants.in
compile --output-file .cache/mutants.txt .cache/mutants.in
python3.11 requirements/layer_lock.py .cache/mutants.txt requirements/mutants.txt requirements/lock.txt requirements/cuda.txt

# reasoning-gym in a folder of its own, in addition to the lock and with an older version of tabulate.
grep -Eh '^[A-Za-z0-9].*==' requirements/lock.txt | sed 's/ \\$//' | grep -v '^tabulate==' >.cache/constraints.txt
{ echo '-c constraints.txt' && grep -o 'reasoning-gym==[0-9.]*' pyproject.toml; } >.cache/domains.in
cp requirements/domains.txt .cache/domains.txt
compile --output-file .cache/domains.txt .cache/domains.in
python3.11 requirements/layer_lock.py .cache/domains.txt requirements/domains.txt requirements/lock.txt requirements/cuda.txt
