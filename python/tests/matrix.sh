#!/usr/bin/env bash
# Runs the tests against several versions of torch: matrix.sh [FOLDER [VERSION ...]]
# Each version gets a virtual environment in FOLDER (.venv/matrix by default). By default the oldest
# supported version and the newest that the package index has.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-.venv/matrix}
shift || true
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(2.5.1 newest)
for version in "${versions[@]}"; do
    venv=$folder/torch-$version
    "${PYTHON:-python3}" -m venv "$venv"
    if [ "$version" = newest ]; then wanted=torch; else wanted=torch==$version; fi
    "$venv/bin/pip" install -q "$wanted" numpy safetensors pytest tqdm mypy accelerate jax ./python
    "$venv/bin/python" -c 'import torch; print("torch", torch.__version__)'
    "$venv/bin/python" -m pytest -q python/tests
done
