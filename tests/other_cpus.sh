#!/bin/sh
# Run the tests marked `rounding` with the instructions of other CPUs (an old one, one with AVX2), and with more
# threads than cores. PyTorch's own kernels, MKL, oneDNN and OpenBLAS each have their own switch.
set -eu
cd "$(dirname "$0")/.."
# Waiting threads must not block the core of the thread that they wait for.
export OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0

with() {
    echo "other CPUs: $*"
    env "$@" python -P -m pytest -q -n 2 --dist loadfile -m rounding tests
}

with OMP_NUM_THREADS=1 ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Prescott
with OMP_NUM_THREADS=2 ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell
with OMP_NUM_THREADS=4
