#!/usr/bin/env bash
# bench_test.sh: mount-scripts/bench.sh: what it refuses, and that nothing stays behind when it is stopped half-way.
#
# The second part needs root, /dev/fuse, what a real HDFS needs, and the built programs (CARGO_TARGET_DIR or target, debug). Prints a
# line for each thing it checked; exit code 0 when all held, 1 when one did not. Takes no figure.
# No set -e: a check that fails is counted and printed, and the next ones run.
set -uo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BENCH=$HERE/../mount-scripts/bench.sh
BUILT=$(realpath -m "${CARGO_TARGET_DIR:-$HERE/../target}")/debug
TMP=$(mktemp -d)
trap 'rm -rf --one-file-system "$TMP"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

FAILED=0 CHECKED=0
ok() { CHECKED=$((CHECKED + 1)); echo "ok   $1"; }
bad() { CHECKED=$((CHECKED + 1)); FAILED=$((FAILED + 1)); echo "FAIL $1"; }
equal() { if [ "$2" = "$3" ]; then ok "$1"; else bad "$1: '$2', expected '$3'"; fi; } # WHAT GOT WANTED

refuses() { # WHAT PART ARGS..: exit code 2, and PART on stderr
  local what=$1 part=$2 code=0 out
  shift 2
  out=$("$BENCH" "$@" 2>&1) || code=$?
  if [ $code = 2 ] && [[ $out == *"$part"* ]]; then ok "$what"; else bad "$what: exit $code, '$out'"; fi
}

processes() { # how many have a file of the run on their command line; by stdin, or grep would find itself
  # shellcheck disable=SC2062 # the pattern comes by stdin, the word after it is a path
  grep -lzF -f - /proc/[0-9]*/cmdline 2>/dev/null <<<"$TMP/run/" | wc -l
}

usage() {
  refuses 'no workload is wrong usage' 'there are: mounts, point, get-scan, writer, instructions'
  refuses 'a workload that is not there yet is named' "'table'" table
  refuses 'an unknown flag is named' "'--foo'" mounts --foo
  refuses 'peers are refused where none is measured' 'leave --peers out' get-scan --peers
  refuses 'and so is what would keep nothing' 'leave --keep out' writer --keep
  refuses 'and pairs of what is counted' 'leave --pairs out' instructions --pairs 3
  refuses 'pairs are a number' "'many'" mounts --pairs many
  refuses 'a missing value is named' '--seed wants a number' mounts --seed
  refuses 'a report without a name is refused' '--report wants a file' mounts --report
  refuses 'a report in no directory is refused before anything runs' 'no directory /no/such' mounts --json /no/such/f.json
  equal '--help exits with 0' "$("$BENCH" --help >/dev/null; echo $?)" 0
  equal 'and so does that of a workload' "$("$BENCH" mounts --help >/dev/null; echo $?)" 0
}

stopped() { # a signal while it measures: it answers at once, and nothing is left
  local code=0 tries=0 pid
  mkdir "$TMP/run"
  TMPDIR=$TMP/run LOOKUPFS_BIN=$BUILT/lookupfs LOOKUP_BIN=$BUILT/lookup HDFS_ALONE_BIN=$BUILT/hdfs_alone \
    "$BENCH" mounts --quick >"$TMP/out" 2>&1 &
  pid=$!
  until grep -q 'warm reads' "$TMP/out" || [ $tries = 1200 ] || ! kill -0 $pid 2>/dev/null; do
    tries=$((tries + 1))
    sleep 0.1
  done
  if grep -q 'warm reads' "$TMP/out"; then ok 'it measures'; else bad "it does not measure: $(tail -n 3 "$TMP/out")"; fi
  equal 'through its mounts' "$(grep -c " $TMP/run/lookupfs-bench[^ ]*/mnt-[0-9]* fuse.lookupfs" /proc/mounts)" 16
  kill -TERM $pid
  wait $pid || code=$?
  equal 'SIGTERM ends it with 143' $code 143
  equal 'no mount is left' "$(grep -c " $TMP/run/" /proc/mounts)" 0
  equal 'no file' "$(ls -A "$TMP/run")" ''
  equal 'and no process' "$(processes)" 0
}

usage
stopped
echo "$CHECKED checked, $FAILED failed"
[ "$FAILED" = 0 ]
