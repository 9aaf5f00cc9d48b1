#!/usr/bin/env bash
# Runs what scripts/gpu.sh built on a machine with a GPU, in parallel: every test in a process of its own,
# then the kernels under compute-sanitizer.
#
#   scripts/gpu-check.sh OUT [tests] [sanitizer] [stress] [soak] [random]     all of them where none is named
#   scripts/gpu-check.sh OUT emulated                                          needs many cores and no GPU
#
# OUT gets summary.txt (a line a test: its state, seconds, name) and a log for each test that failed; of
# random programs (PROGRAMS of them, from SEED on, for SECONDS_OF_RANDOM at most) a log for each process,
# which says every ten seconds how many ran, and random.txt (emulated.txt) with the sums.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
parts=${*:-tests sanitizer stress soak random}
jobs=${JOBS:-$(nproc)}
limit=${LIMIT:-240}
tests=$PWD/.gpu/tests
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || gpus=1
export out limit tests gpus

# One test, named by $2, after the words of $1 (an empty one, or a sanitizer and its options). Of several GPUs it
# has the one of its slot; tests of ranks have all.
one() {
  local log=$out/${2//::/.}${3:-}.log start=$SECONDS state=ok
  [[ $2 == distributed::* ]] || export CUDA_VISIBLE_DEVICES=$((${SLOT:-0} % gpus))
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

# The share of one process, number $2, of the random programs that part $1 runs in test $3. The driver
# assembles for a process one program after the other, and keeps no copies for a next time.
share() {
  local log=$out/$1.$2.log start=$SECONDS state=ok
  GENESIS_TEST_PROGRAMS=$share GENESIS_TEST_SEED=$((seed + $2 * share)) GENESIS_TEST_THREADS=1 \
    GENESIS_TEST_SECONDS=$seconds CUDA_CACHE_DISABLE=1 CUDA_VISIBLE_DEVICES=$(($2 % gpus)) \
    timeout $((seconds + 60)) "$tests" --exact "differential::$3" --nocapture >"$log" 2>&1
  case $? in
    0) grep -q 'Kernels: [0-9]* programs' "$log" || state=NONE ;;
    124) state=LATE ;;
    *) state=FAIL ;;
  esac
  printf '%-5s %4d  %s.%s\n' "$state" $((SECONDS - start)) "$1" "$2" >>"$out/summary.txt"
}
export -f share

# Part $1: random programs, half of them tile IR and half kernels, in test $2, a process for each core.
shares() {
  share=$(((${PROGRAMS:-20000} + jobs - 1) / jobs)) seed=${SEED:-0} seconds=${SECONDS_OF_RANDOM:-480}
  export share seed seconds
  rm -f "$out/$1".*.log
  seq 0 $((jobs - 1)) | xargs -P "$jobs" -I{} bash -c 'share "$0" {} "$1"' "$1" "$2"
  sums "$1" | tee "$out/$1.txt"
}

# The sums of what the processes of part $1 say at their ends; of one that did not get there, of what it said last.
sums() {
  for log in "$out/$1".*.log; do
    for kind in TileIr Kernels; do
      grep -oE "$kind: [0-9]+ programs.*" "$log" | tail -1 | sed 's/^[A-Za-z]*: //'
    done
    grep -q 'Kernels: ' "$log" || grep -E '^[0-9]+ programs' "$log" | tail -1
  done | sed 's/,[^:]*:/,/' | awk -F', ' '
    { n["programs"] += $1; for (i = 2; i <= NF; i++) { split($i, of, " "); n[of[1]] += of[2] } }
    END { for (name in n) printf "%s %d  ", name, n[name]; print "" }'
}

listed() { "$tests" --list 2>/dev/null | sed -n 's/: test$//p'; }

: >"$out/summary.txt"
for part in $parts; do
  case $part in
    # What reads sources, assembles, emulates or wants the virtual GPU has run elsewhere; stress and the
    # sanitizer's tests are parts of their own.
    tests) listed | grep -vE '^(abuse|assemble|checkpoint|emulate|exits|facts|names|outside|sanitize|stress|tidy|ui|virtual_gpu)::' |
      xargs -P "$jobs" --process-slot-var=SLOT -I{} bash -c 'one "" {}' ;;
    sanitizer) for tool in memcheck racecheck; do
      listed | grep '^sanitize::' | sed "s/\$/ $tool/"
    done | xargs -P "$jobs" --process-slot-var=SLOT -L1 bash -c 'one "compute-sanitizer --tool $1 --error-exitcode 9" "$0" ".$1"' ;;
    stress) listed | grep '^stress::' |
      GENESIS_DELAYS=1 xargs -P "$jobs" --process-slot-var=SLOT -I{} bash -c 'one "" {} .delays' ;;
    # Ten million allocations on two streams, each looked at when it is freed.
    soak) GENESIS_TEST_SOAK=10000000 limit=1200 one "" memory::no_two_buffers_share_a_byte .soak ;;
    random) shares random random_programs_agree_on_the_gpu ;;
    emulated) shares emulated random_programs_agree_on_the_cpu_and_emulated_gpus ;;
    *) echo "gpu-check: there is no part $part" >&2; exit 2 ;;
  esac
done
sort "$out/summary.txt" | awk '{ n[$1]++ } $1 != "ok" { print } END { for (s in n) printf "%s %d  ", s, n[s]; print "" }'
! grep -qv '^ok' "$out/summary.txt"
