#!/bin/sh
# The unit tests of storage, layouts, arrays and the memory pool under AddressSanitizer, in a target folder of
# their own. Kernels are compiled at run time and are not instrumented; what hands memory to them is.
#
#   scripts/asan.sh [FOLDER]     target/asan where none is named
set -eu
cd "$(dirname "$0")/.."
target=x86_64-unknown-linux-gnu
export CARGO_TARGET_DIR="${1:-target/asan}"
export RUSTFLAGS="-Zsanitizer=address"
# What a process keeps until it ends, such as arenas and compiled kernels, is no leak. Requests beyond all memory
# are tested and get none.
export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"

unit() {
    crate=$1
    shift
    cargo +nightly test --target "$target" -p "$crate" --no-default-features --features dynamic-llvm --lib -- "$@"
}

unit genesis-kernel runtime::array runtime::buffer runtime::pool
# Without the pool each tensor is an allocation of its own, whose ends are watched.
GENESIS_POOL=0 unit genesis tensor:: shape::
