#!/bin/sh
# Prints the path of ptxas, the assembler of PTX. Installs it, and nvdisasm beside it, into .tools/ of
# this repository where it is missing.
#
# Looks at GENESIS_PTXAS, then .tools/, then PATH. The tools come as wheels from PyPI, pinned, and are
# only unpacked: no Python environment is touched. With WHEELS set to a folder of downloaded wheels
# nothing is fetched.
set -eu

tools=$(cd "$(dirname "$0")/.." && pwd)/.tools

if [ -n "${GENESIS_PTXAS:-}" ] && [ -x "$GENESIS_PTXAS" ]; then
    echo "$GENESIS_PTXAS"
    exit 0
fi
if [ ! -x "$tools/ptxas" ] && command -v ptxas >/dev/null 2>&1; then
    command -v ptxas
    exit 0
fi
if [ ! -x "$tools/ptxas" ]; then
    mkdir -p "$tools"
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    wheels=${WHEELS:-$scratch}
    if [ -z "${WHEELS:-}" ]; then
        python3 -m pip download --quiet --no-deps --dest "$scratch" \
            nvidia-cuda-nvcc==13.0.88 nvidia-cuda-nvdisasm==13.2.86 >&2
    fi
    unzip -q -o -j "$wheels"/nvidia_cuda_nvcc-*.whl 'nvidia/*/bin/ptxas' -d "$scratch/bin"
    unzip -q -o -j "$wheels"/nvidia_cuda_nvdisasm-*.whl 'nvidia/*/bin/nvdisasm' -d "$scratch/bin"
    chmod +x "$scratch/bin/ptxas" "$scratch/bin/nvdisasm"
    mv "$scratch/bin/nvdisasm" "$tools/nvdisasm"
    mv "$scratch/bin/ptxas" "$tools/ptxas"
fi
echo "$tools/ptxas"
