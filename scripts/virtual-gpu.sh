#!/usr/bin/env bash
# Runs a program on the virtual GPU of tests/driver, whose kernels an emulator runs:
#   scripts/virtual-gpu.sh target/debug/deps/it-.. matmul::
#   VIRTUAL_GPU=null,memory=64M scripts/virtual-gpu.sh target/release/benches host
# `cargo test` builds the driver with the tests; `cargo build -p virtual-gpu` builds it alone.
# VIRTUAL_GPU is explained in tests/driver/src/lib.rs.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
driver=${VIRTUAL_GPU_DRIVER:-$(ls -t "$root"/.gpu/libvirtual_cuda.so "$root"/target/*/libvirtual_cuda.so \
  "$root"/target/*/deps/libvirtual_cuda.so 2>/dev/null | head -n 1 || true)}
if [ -z "$driver" ]; then
  echo "there is no libvirtual_cuda.so: cargo build -p virtual-gpu makes it" >&2
  exit 1
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ln -s "$(realpath "$driver")" "$folder/libcuda.so"
LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
