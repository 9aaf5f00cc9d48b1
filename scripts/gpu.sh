#!/usr/bin/env bash
# Builds what a machine with a GPU runs, into .gpu/: the test binary, the benches, the command and the
# conformance runner, with LLVM linked statically. Where a GPU is present it times the benches and runs the tests
# (scripts/gpu-check.sh); elsewhere it says that it did not.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .gpu

binary() { # the path of the newest executable that cargo just built, by target name
  python3 -c '
import json, sys
found = ""
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] == sys.argv[1]:
        found = message["executable"]
print(found)' "$1"
}

# One build for all, so that they share every crate.
tests=$(cargo build --release -p genesis -p benches -p tests --bin genesis --bin benches --bin genesis-conform --test it \
  --message-format=json-render-diagnostics | binary it)
cp "$tests" .gpu/tests
cp target/release/genesis .gpu/genesis
cp target/release/benches .gpu/bench
cp target/release/genesis-conform .gpu/genesis-conform
strip .gpu/tests .gpu/genesis .gpu/bench .gpu/genesis-conform

if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
  .gpu/bench --out benches/results/h200.jsonl
  scripts/gpu-check.sh .gpu/out
else
  echo "skipped: no GPU here; .gpu/ holds what to run on a machine that has one"
fi
