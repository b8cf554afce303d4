#!/bin/sh
# Create or renew .venv-vllm: a layer over .venv with a real vLLM for the CPU. Touches nothing else.
set -eu
cd "$(dirname "$0")/.."
requirements/install.sh
stamp=$(cat .venv/stamp requirements/vllm.txt requirements/install_vllm.sh | sha256sum | cut -c1-64)
[ "$(cat .venv-vllm/stamp 2>/dev/null || true)" = "$stamp" ] && exit 0
echo "install: creating .venv-vllm from requirements/vllm.txt (a minute or two)" >&2
export PIP_CACHE_DIR="$PWD/.cache/pip" PIP_DISABLE_PIP_VERSION_CHECK=1
rm -rf .venv-vllm
.venv/bin/python -m venv .venv-vllm
.venv-vllm/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/vllm.txt
packages=$(echo .venv-vllm/lib/python3*/site-packages)
# Whatever is not in this layer comes from .venv, and stapo itself from here.
base=$(echo "$PWD"/.venv/lib/python3*/site-packages)
printf '%s\n%s\n' "$base" "$PWD" >"$packages/layer.pth"
# lm-eval and vLLM's own platform detection look for a distribution named vllm, of which the CPU build has none.
mkdir "$packages/vllm-0.31.0+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.31.0+cpu\n' >"$packages/vllm-0.31.0+cpu.dist-info/METADATA"
echo "$stamp" >.venv-vllm/stamp
