#!/usr/bin/env bash
# bench.sh: measure mounts of a real HDFS, and hold the figures against their targets (usage: --help).
#
# Owns: a temporary directory with the data, a real HDFS of its own, daemons and mounts of its own; all of it is gone at the
# end, whatever the end was. Refuses: to measure what it has no means for; the report says then what was skipped and why.
# Called by: whoever wants figures. What is measured, and how, is in the program (`lookup bench`). bench/ holds a part.
set -euo pipefail

usage() {
  cat <<'USAGE'
mount-scripts/bench.sh WORKLOAD [--quick] [--pairs N] [--seed S] [--json FILE] [--report FILE.html] [--peers] [--keep]

  mounts   raw reads through 1 and 16 mounts of a real HDFS, warm, cold, sequential, `ls -l`, requests and memory, against
           the same files on the local disk and against the HDFS client alone
  point    rows by row id through 16 mounts of a real HDFS, narrow and of 42 columns, each from a file that is opened for it,
           against the parquet crate over the same mounts and the local disk's own limit
  get-scan one row by its key through 16 mounts of a real HDFS, in data pages of 4,096 rows and of 40, against a scan of one row
           by the parquet crate over the same mounts
  writer   the cost of size statistics when INT64, STRING and LIST columns are written: times, and the share of instructions by
           callgrind. It needs no HDFS, no mount and not root; without valgrind the share is skipped
  instructions  instructions of warm lookups by callgrind, against those that were recorded. It needs valgrind, no HDFS, no mount
           and not root

  --quick        less data, shorter runs, 5 pairs instead of 15: two minutes, set-up included; verdicts may be undecided
  --pairs N      pairs of each comparison
  --seed S       what offsets and intervals follow from (default 1)
  --json FILE    the report with all raw samples
  --report FILE  the report with charts, one HTML file
  --peers        also measure rclone's mount of the same HDFS (its cache full), if rclone is installed
  --keep         leave HDFS, mounts and data there at the end, and say how to take them down
  --help         this text

Run it as root on Debian or Ubuntu with rustup's cargo, on a machine that does nothing else. It installs with apt-get what
is missing (a C compiler, Java 17, Maven), builds the programs (release), and prints a verdict for each target. It needs 9 GB
of disk (2 GB with --quick) where TMPDIR is, which should be an ext4: the local side is read there.

Environment: CARGO_TARGET_DIR, where cargo builds (default target); LOOKUPFS_BIN, LOOKUP_BIN and HDFS_ALONE_BIN, programs to
use instead of building (all three or none; LOOKUP_BIN alone for writer and instructions); TMPDIR, where the temporary directory is made; MINIHDFS_PORT, the base port of
HDFS (default: free ports from 20000 on).

Exit code: 0 measured, whatever the verdicts are; 1 something failed; 2 wrong usage.
USAGE
}

MOUNTS=16
BLOCK_BYTES=$((128 << 20)) # HDFS's own default

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MINIHDFS=$HERE/minihdfs.sh
WORKLOAD='' QUICK=0 KEEP=0 PEERS=0 WORK='' HDFS_STARTED=0 READY=0 BENCH_PID='' PASS=() MORE=()

BEGAN=$SECONDS
tell() { echo "[$(printf '%4d' $((SECONDS - BEGAN))) s] $*" >&2; }
say() { echo "bench.sh: $*" >&2; }
die() { say "$*"; exit 1; }
die_usage() { say "$* (see mount-scripts/bench.sh --help)"; exit 2; }

# shellcheck source=/dev/null
. "$HERE/demo/host.sh"

# --- the end, whatever it was -------------------------------------------------------------------------------------------

unmount_all() { # asks the kernel what is there, since a set-up may have ended half-way
  local mount_point lock
  while read -r mount_point; do
    umount "$mount_point" 2>/dev/null || umount -l "$mount_point" || true
  done < <(awk -v below="$WORK/" 'index($2, below) == 1 { print $2 }' /proc/mounts)
  # A daemon ends with its last mount, and its lock says when.
  for lock in "$WORK"/run/*.lock; do
    if [ -e "$lock" ] && ! flock -w 15 "$lock" true; then
      say "a daemon does not end; its log:"
      tail -n 5 "${lock%.lock}.log" >&2
      return 1
    fi
  done
}

finish() { # CODE
  trap - EXIT
  trap '' INT TERM # a second Ctrl-C does not stop the clearing away
  local code=$1
  if [ -n "$BENCH_PID" ]; then
    kill "$BENCH_PID" 2>/dev/null || true
    wait "$BENCH_PID" 2>/dev/null || true
  fi
  if [ -z "$WORK" ]; then exit "$code"; fi
  if [ "$KEEP" = 1 ] && [ "$READY" = 1 ]; then
    how_to_go_on
    exit "$code"
  fi
  unmount_all || code=1
  if [ "$HDFS_STARTED" = 1 ]; then "$MINIHDFS" stop || code=1; fi
  rm -rf --one-file-system "$WORK" || code=1
  tell "unmounted, nothing is left behind"
  exit "$code"
}

how_to_go_on() {
  cat <<TEXT

Everything is still there: $WORK, with its mounts in mnt-*. To look and to measure again (cold reads need a new daemon):
  export LOOKUPFS_RUN_DIR=$LOOKUPFS_RUN_DIR HADOOP_CONF_DIR=$HADOOP_CONF_DIR
  $LOOKUPFS stats --all
To take it down:
  awk '\$2 ~ "^$WORK/" { print \$2 }' /proc/mounts | xargs umount; MINIHDFS_HOME=$MINIHDFS_HOME $MINIHDFS stop; rm -r $WORK
TEXT
}

# --- set-up ---------------------------------------------------------------------------------------------------------------

parse() {
  local workload=${1:-}
  case $workload in
    mounts | point | get-scan | writer | instructions) WORKLOAD=$workload ;;
    -h | --help) usage; exit 0 ;;
    '') die_usage "no workload; there are: mounts, point, get-scan, writer, instructions" ;;
    *) die_usage "no workload '$workload'; there are: mounts, point, get-scan, writer, instructions" ;;
  esac
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --quick) QUICK=1 MORE+=(--quick) ;;
      --peers) PEERS=1 ;;
      --keep) KEEP=1 ;;
      --pairs | --seed)
        [ "$WORKLOAD$1" != instructions--pairs ] || die_usage "instructions are counted and not paired: leave --pairs out"
        [[ ${2:-} =~ ^[0-9]{1,9}$ ]] || die_usage "$1 wants a number, not '${2:-}'"
        MORE+=("$1" "$2")
        shift
        ;;
      --json | --report)
        [ -n "${2:-}" ] || die_usage "$1 wants a file"
        [ -d "$(dirname "$2")" ] || die_usage "$1: there is no directory $(dirname "$2")"
        MORE+=("$1" "$(realpath -m "$2")")
        shift
        ;;
      -h | --help) usage; exit 0 ;;
      *) die_usage "no flag '$1'" ;;
    esac
    shift
  done
  case $WORKLOAD$PEERS$KEEP in
    get-scan1? | writer1? | instructions1?) die_usage "no peer is measured by $WORKLOAD: leave --peers out" ;;
    writer?1 | instructions?1) die_usage "nothing is made for $WORKLOAD that could be kept: leave --keep out" ;;
  esac
}

is_alone() { # whether the workload needs neither HDFS nor mounts
  [ "$WORKLOAD" = writer ] || [ "$WORKLOAD" = instructions ]
}

check_host() {
  [ "$(id -u)" = 0 ] || die "mounting needs root: sudo $0 (with cargo on root's PATH)"
  need_fuse && need_java && need mvn maven || exit 1
  [[ $HERE != *[[:space:]]* ]] || die "no white space in the path of the checkout, please: $HERE"
}

build() {
  local target=${CARGO_TARGET_DIR:-$HERE/../target} cargo
  if is_alone && [ -n "${LOOKUP_BIN:-}" ]; then
    LOOKUP=$(realpath -e "$LOOKUP_BIN")
    tell "program: $LOOKUP"
    return
  fi
  if [ -n "${LOOKUPFS_BIN:-}" ] && [ -n "${LOOKUP_BIN:-}" ] && [ -n "${HDFS_ALONE_BIN:-}" ]; then
    LOOKUPFS=$(realpath -e "$LOOKUPFS_BIN") LOOKUP=$(realpath -e "$LOOKUP_BIN") HDFS_ALONE=$(realpath -e "$HDFS_ALONE_BIN")
    tell "programs: $LOOKUPFS, $LOOKUP, $HDFS_ALONE"
    return
  fi
  need_cargo || exit 1
  tell "building what is needed of lookupfs, lookup and hdfs_alone (cargo build --release; minutes when it is the first time)"
  cargo=(cargo build --release --locked --manifest-path "$HERE/../Cargo.toml")
  if is_alone; then
    "${cargo[@]}" -p lookupfs-reader || die "the build failed"
    LOOKUP=$(realpath "$target/release/lookup")
    return
  fi
  # Two builds, so that what is measured has no feature that only tests need.
  "${cargo[@]}" -p lookupfs-fs -p lookupfs-reader || die "the build failed"
  "${cargo[@]}" -p lookupfs-tests --bin hdfs_alone || die "the build failed"
  LOOKUPFS=$(realpath "$target/release/lookupfs")
  LOOKUP=$(realpath "$target/release/lookup")
  HDFS_ALONE=$(realpath "$target/release/hdfs_alone")
}

random_file() { # NAME MIB
  dd if=/dev/urandom of="$WORK/data/$1" bs=1M count="$2" status=none
}

make_rows() { # on the local disk, for `point` and `get-scan`
  local rows=1000000
  if [ "$QUICK" = 1 ]; then rows=100000; fi
  tell "writing two Parquet files of $rows rows to $WORK/data"
  mkdir -p "$WORK/data"
  if [ "$WORKLOAD" = get-scan ]; then
    "$LOOKUP" sample "$WORK/data/key.parquet" --columns key --rows $rows >/dev/null
    "$LOOKUP" sample "$WORK/data/key-40.parquet" --columns key --rows $rows --page-rows 40 >/dev/null
    return
  fi
  "$LOOKUP" sample "$WORK/data/narrow.parquet" --rows $rows >/dev/null
  "$LOOKUP" sample "$WORK/data/wide.parquet" --columns wide --rows $rows >/dev/null
}

make_data() { # on the local disk
  if [ "$WORKLOAD" != mounts ]; then make_rows; return; fi
  local warm=256 cold=3400 sequential=512 i
  FILES=10000
  if [ "$QUICK" = 1 ]; then warm=64 cold=800 sequential=128 FILES=3000; fi
  tell "writing $((warm + cold + sequential)) MiB of random bytes, $FILES empty files and 4 Parquet files to $WORK/data"
  mkdir -p "$WORK/data/many" "$WORK/data/rows"
  random_file warm.bin $warm
  random_file cold.bin $cold
  random_file sequential.bin $sequential
  for ((i = 0; i < FILES; i++)); do : >"$WORK/data/many/$(printf 'f%05d' "$i")"; done
  for i in a b c d; do "$LOOKUP" sample "$WORK/data/rows/$i.parquet" --rows 20000 >/dev/null; done
  local type
  type=$(findmnt -nro FSTYPE -T "$WORK/data")
  if [ "$type" != ext4 ]; then say "the local side lies on $type, not on ext4: set TMPDIR"; fi
}

start_hdfs() {
  export MINIHDFS_HOME=$WORK/hdfs MINIHDFS_BLOCK=$BLOCK_BYTES
  MINIHDFS_PORT=${MINIHDFS_PORT:-$(free_port_base)}
  export MINIHDFS_PORT
  tell "starting a real HDFS on loopback, one NameNode and one DataNode (the first time it downloads Hadoop: a minute)"
  HDFS_STARTED=1
  "$MINIHDFS" start -d 1 --fresh >&2
  HADOOP_CONF_DIR=$("$MINIHDFS" conf)
  export HADOOP_CONF_DIR
  tell "Hadoop $("$MINIHDFS" version) is up; putting the data into it"
  "$MINIHDFS" fs -mkdir /bench
  if [ "$WORKLOAD" != mounts ]; then
    "$MINIHDFS" fs -put "$WORK"/data/*.parquet /bench
    return
  fi
  "$MINIHDFS" fs -put "$WORK/data/warm.bin" "$WORK/data/cold.bin" "$WORK/data/sequential.bin" "$WORK/data/rows" /bench
  local made
  made=$(echo "{\"do\":\"make\",\"path\":\"many\",\"files\":$FILES}" | "$HDFS_ALONE" /bench)
  [[ $made == *'"operations":'* ]] || die "cannot make $FILES files: $made"
}

mount_on() { # DAEMON OPTIONS DIR..
  local daemon=$1 options=$2
  shift 2
  mkdir -p "$@"
  "$LOOKUPFS" mount "$BENCH_SOURCE" "$@" --daemon "$daemon" -o "hadoop_conf=$HADOOP_CONF_DIR$options"
}

mount_all() {
  local i all=() pass=()
  for ((i = 0; i < MOUNTS; i++)); do all+=("$WORK/mnt-$i") pass+=("$WORK/mnt-pass-$i"); done
  # The daemon `fresh`, and rclone, come and go by this script.
  export BENCH_WORK=$WORK BENCH_LOOKUPFS=$LOOKUPFS BENCH_RCLONE=''
  mkdir -p "$WORK/mnt-fresh"
  if [ "$WORKLOAD" != mounts ]; then
    tell "mounting $BENCH_SOURCE on $MOUNTS mount points of one daemon"
    mount_on main '' "${all[@]}"
    for i in "${all[@]}"; do PASS+=(--mount "$i"); done
    if [ "$PEERS" = 1 ]; then
      find_peers
      "$HERE/bench/fresh.sh"
    fi
    return
  fi
  tell "mounting $BENCH_SOURCE on $MOUNTS mount points of one daemon, and on one each of three daemons with options of their own"
  mount_on main '' "${all[@]}"
  mount_on exact ,page_size=4k "$WORK/mnt-exact"
  mount_on memory ,memory=256m "$WORK/mnt-memory"
  for i in "${all[@]}"; do PASS+=(--mount "$i"); done
  mount_passthrough "${pass[@]}"
  if [ "$PEERS" = 1 ]; then find_peers; fi
}

mount_passthrough() { # DIR..: on a daemon with a cache on disk; where that cannot be had, the report says so
  mkdir -p "$WORK/cache"
  if ! mount_on passthrough ",passthrough,cache_dir=$WORK/cache,cache_size=2g" "$@"; then
    say "no passthrough mount, see above: it will not be measured"
    return
  fi
  local i
  for i in "$@"; do PASS+=(--passthrough-mount "$i"); done
}

find_peers() {
  if ! command -v rclone >/dev/null; then
    say "no rclone here (apt-get install rclone fuse3): no peer will be measured"
    return
  fi
  BENCH_RCLONE=$(command -v rclone)
  tell "peer: $(rclone version 2>/dev/null | head -n 1)"
  mkdir -p "$WORK/mnt-rclone"
  PASS+=(--peer-mount "rclone=$WORK/mnt-rclone")
}

run_bench() {
  tell "measuring"
  if ! is_alone; then PASS+=(--lookupfs "$LOOKUPFS"); fi
  if [ "$WORKLOAD" = mounts ]; then
    PASS+=(--local "$WORK/data" --native "$HDFS_ALONE /bench" --exact-mount "$WORK/mnt-exact" --memory-mount "$WORK/mnt-memory"
      --fresh-mount "$WORK/mnt-fresh" --fresh-command "$HERE/bench/fresh.sh" --audit "$MINIHDFS")
  fi
  if [ "$WORKLOAD" = point ]; then PASS+=(--local "$WORK/data"); fi
  # In the background, so that a signal is answered at once and not when it has ended.
  "$LOOKUP" bench "$WORKLOAD" "${PASS[@]}" "${MORE[@]}" &
  BENCH_PID=$!
  local code=0
  wait "$BENCH_PID" || code=$?
  BENCH_PID=''
  [ "$code" = 0 ] || die "lookup bench ended with $code"
}

main() {
  parse "$@"
  trap 'finish $?' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  if is_alone; then
    build
    BEGAN=$SECONDS
    run_bench
    return
  fi
  check_host
  build
  BEGAN=$SECONDS
  WORK=$(mktemp -d "$(realpath "${TMPDIR:-/tmp}")/lookupfs-bench.XXXXXX")
  export LOOKUPFS_RUN_DIR=$WORK/run BENCH_SOURCE=hdfs:///bench
  mkdir "$LOOKUPFS_RUN_DIR"
  make_data
  start_hdfs
  mount_all
  READY=1
  run_bench
}

main "$@"
