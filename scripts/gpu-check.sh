#!/usr/bin/env bash
# Runs what scripts/gpu.sh built on a machine with a GPU, in parallel: every test in a process of its own,
# then the kernels under compute-sanitizer.
#
#   scripts/gpu-check.sh OUT [tests] [sanitizer] [stress] [soak] [random]     all of them where none is named
#
# OUT gets summary.txt (a line a test: its state, seconds, name) and a log for each test that failed.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
parts=${*:-tests sanitizer stress soak random}
jobs=${JOBS:-$(nproc)}
limit=${LIMIT:-240}
tests=$PWD/.gpu/tests
export out limit tests

# One test, named by $2, after the words of $1 (an empty one, or a sanitizer and its options).
one() {
  local log=$out/${2//::/.}${3:-}.log start=$SECONDS state=ok
  export GENESIS_CACHE_DIR=$(mktemp -d)
  # shellcheck disable=SC2086
  timeout "$limit" $1 "$tests" --exact "$2" --test-threads 1 >"$log" 2>&1
  case $? in
    0) grep -q '1 passed' "$log" || state=NONE ;;
    124) state=LATE ;;
    *) state=FAIL ;;
  esac
  if [ -n "$1" ] && [ "$state" = ok ] && ! grep -qE 'ERROR SUMMARY: 0 errors|\(0 errors|0 hazards' "$log"; then
    state=FAIL
  fi
  printf '%-5s %4d  %s%s\n' "$state" $((SECONDS - start)) "$2" "${3:-}" >>"$out/summary.txt"
  rm -rf "$GENESIS_CACHE_DIR"
  [ "$state" = ok ] && rm "$log"
  return 0
}
export -f one

listed() { "$tests" --list 2>/dev/null | sed -n 's/: test$//p'; }

: >"$out/summary.txt"
for part in $parts; do
  case $part in
    # What reads sources, assembles, emulates or wants the virtual GPU has run elsewhere; stress and the
    # sanitizer's tests are parts of their own.
    tests) listed | grep -vE '^(abuse|assemble|checkpoint|emulate|exits|facts|names|outside|sanitize|stress|tidy|ui|virtual_gpu)::' |
      xargs -P "$jobs" -I{} bash -c 'one "" {}' ;;
    sanitizer) for tool in memcheck racecheck; do
      listed | grep '^sanitize::' | sed "s/\$/ $tool/"
    done | xargs -P "$jobs" -L1 bash -c 'one "compute-sanitizer --tool $1 --error-exitcode 9" "$0" ".$1"' ;;
    stress) listed | grep '^stress::' |
      GENESIS_DELAYS=1 xargs -P "$jobs" -I{} bash -c 'one "" {} .delays' ;;
    # Ten million allocations on two streams, each looked at when it is freed.
    soak) GENESIS_TEST_SOAK=10000000 limit=1200 one "" memory::no_two_buffers_share_a_byte .soak ;;
    # Random programs, half of them tile IR and half kernels, on the card and on the interpreter.
    random) GENESIS_TEST_PROGRAMS=${PROGRAMS:-20000} limit=600 \
      one "" differential::random_programs_agree_on_the_gpu .random ;;
    *) echo "gpu-check: there is no part $part" >&2; exit 2 ;;
  esac
done
sort "$out/summary.txt" | awk '{ n[$1]++ } $1 != "ok" { print } END { for (s in n) printf "%s %d  ", s, n[s]; print "" }'
! grep -qv '^ok' "$out/summary.txt"
