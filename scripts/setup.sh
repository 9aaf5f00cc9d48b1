#!/usr/bin/env bash
# Installs what Genesis needs on Debian 12, and says why. Doing it twice does nothing the second time.
#   setup.sh build   to compile        setup.sh test   to run the tests and the demo as well
set -euo pipefail

say() { printf '%s\n' "$*"; }

build=(
  "llvm-22-dev:the compiler back end (NVPTX and host)"
  "libpolly-22-dev:part of LLVM's static libraries"
  "libzstd-dev:LLVM links it"
  "zlib1g-dev:LLVM links it"
  "libz3-dev:LLVM links it"
  "libxml2-dev:LLVM links it"
  "libffi-dev:LLVM links it"
  "pkg-config:finds the libraries above"
  "g++:the linker driver for LLVM's C++"
)
test=(
  "dataset-fashion-mnist:70,000 images that the demo and the tests train on"
  "bible-kjv-text:4.4 MB of text that a sample learns to write"
  "python3-pip:fetches NVIDIA's assembler, which checks the emitted PTX"
  "unzip:unpacks it"
)

wanted=("${build[@]}")
[ "${1:-build}" = test ] && wanted+=("${test[@]}")

missing=()
for entry in "${wanted[@]}"; do
  package=${entry%%:*}
  if [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)" != "ii " ]; then
    missing+=("$entry")
  fi
done

if ! command -v cargo >/dev/null; then
  say "Rust is missing: install Rust 1.95 or newer, with cargo, and run this again."
  exit 1
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if [ ! -e /etc/debian_version ] || ! command -v apt-get >/dev/null; then
  say "This is not Debian. Install these by hand, then set LLVM_SYS_221_PREFIX to LLVM 22's folder:"
  for entry in "${missing[@]}"; do say "  ${entry%%:*}  (${entry#*:})"; done
  exit 1
fi

say "Installing with apt:"
for entry in "${missing[@]}"; do say "  ${entry%%:*}  (${entry#*:})"; done
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
"${sudo[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends \
  "${missing[@]%%:*}" >/dev/null
