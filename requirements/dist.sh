#!/bin/sh
# Build a release, by the setuptools of `python`: the sdist, from it the wheel, and their checksums, in FOLDER (dist).
set -eu
cd "$(dirname "$0")/.."
mkdir -p "${1:-dist}"
target=$(cd "${1:-dist}" && pwd)
# A copy: setuptools writes into its source, and finds files there that an earlier build left.
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
cp -R pyproject.toml README.md LICENSE stapo "$source"
cd "$source"
build() { python -P -c "from setuptools import build_meta; print(build_meta.build_$1('$2'))" | tail -n 1; }
sdist=$(build sdist "$target")
tar -xf "$target/$sdist"
cd "${sdist%.tar.gz}"
wheel=$(build wheel "$target")
cd "$target"
sha256sum "$sdist" "$wheel" | tee SHA256SUMS
