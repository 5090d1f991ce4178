#!/usr/bin/env bash
# demo.sh: see lookupfs work, in one command (usage: --help).
#
# Owns: a temporary directory with a sample, four mounts of a daemon of its own, with --hdfs a real HDFS of its own; all of
# it is gone at the end, whatever the end was. Refuses: to say that a value is right without having compared it.
# Called by: people who are new here. demo/host.sh is a part of this script.
# shellcheck disable=SC2317 # steps are called by their names
set -euo pipefail

usage() {
  cat <<'USAGE'
mount-scripts/demo.sh [--hdfs] [--keep]: mounts a sample on four mount points and looks rows up through them

  --hdfs   the sample lies on a real HDFS that is started here on loopback (minihdfs.sh), not in a local directory
  --keep   leave mounts, sample and HDFS there at the end, and say how to look at them and how to take them down
  --help   this text

Run it as root on Debian or Ubuntu with rustup's cargo. It installs with apt-get what is missing (a C compiler; with --hdfs
Java 17 and Maven), builds the two programs, and compares every value that it reads. The first run takes minutes,
for compiling and for HDFS's jars; later runs take seconds.

Environment: CARGO_TARGET_DIR, where cargo builds (default target); TMPDIR, where the temporary directory is made;
MINIHDFS_PORT, the base port of HDFS (default: free ports from 20000 on).

Exit code: 0 every value was right, 1 something failed, 2 wrong usage.
USAGE
}

ROWS=20000     # of each of the two files of the sample
LOOKED_UP=1000 # row ids of a lookup: nine tenths at random in random order, the rest repeat some of them
SEED=7
MOUNTS=4

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MINIHDFS=$HERE/minihdfs.sh
HDFS=0 KEEP=0 WORK='' MOUNTED=0 HDFS_STARTED=0 TABLE=() MOUNT_POINTS=() THROUGH_ALL=()

now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
seconds() { printf '%d.%01d' $(($1 / 1000)) $(($1 % 1000 / 100)); } # of MILLISECONDS
BEGAN=$(now_ms)
tell() { echo "[$(printf '%6s' "$(seconds $(($(now_ms) - BEGAN)))") s] $*"; }
say() { echo "demo.sh: $*" >&2; }
die() { say "$*"; exit 1; }

# shellcheck source=/dev/null
. "$HERE/demo/host.sh"

# --- the end, whatever it was -------------------------------------------------------------------------------------------

unmount_all() { # also after a mount that failed half-way: asks the kernel what is there
  local mount_point
  for mount_point in "${MOUNT_POINTS[@]}"; do
    if grep -qF " $mount_point fuse.lookupfs " /proc/mounts; then "$LOOKUPFS" umount --lazy "$mount_point" || umount -l "$mount_point"; fi
  done
  # The daemon ends with its last mount. It has this run directory alone, so its lock says when it is gone.
  if [ -e "$LOOKUPFS_RUN_DIR/demo.lock" ] && ! flock -w 15 "$LOOKUPFS_RUN_DIR/demo.lock" true; then
    say "the daemon does not end; its log:"
    tail -n 5 "$LOOKUPFS_RUN_DIR/demo.log" >&2
    return 1
  fi
}

finish() { # CODE
  trap - EXIT
  trap '' INT TERM # a second Ctrl-C does not stop the clearing away
  local code=$1
  if [ -z "$WORK" ]; then exit "$code"; fi
  if [ "$KEEP" = 1 ] && [ "$MOUNTED" = 1 ]; then
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
  echo
  echo "Everything is still there. To look:"
  echo "  ls -l ${MOUNT_POINTS[0]}"
  echo "  $LOOKUP get narrow.parquet ${THROUGH_ALL[*]} --rows 7,9,100-103"
  echo "  LOOKUPFS_RUN_DIR=$LOOKUPFS_RUN_DIR $LOOKUPFS stats ${MOUNT_POINTS[0]}"
  echo "To take it down:"
  echo "  LOOKUPFS_RUN_DIR=$LOOKUPFS_RUN_DIR $LOOKUPFS umount ${MOUNT_POINTS[*]}"
  if [ "$HDFS_STARTED" = 1 ]; then echo "  MINIHDFS_HOME=$MINIHDFS_HOME $MINIHDFS stop"; fi
  echo "  rm -r $WORK"
}

# --- set-up ---------------------------------------------------------------------------------------------------------------

check_host() {
  [ "$(id -u)" = 0 ] || die "mounting needs root: sudo $0 (with cargo on root's PATH)"
  need_cargo && need_fuse || exit 1
  if [ "$HDFS" = 1 ]; then need_java && need mvn maven || exit 1; fi
  tell "this machine has what is needed: cargo, cc, /dev/fuse$([ "$HDFS" = 0 ] || echo ", Java, Maven")"
}

build() {
  local target=${CARGO_TARGET_DIR:-$HERE/../target}
  tell "building lookupfs and lookup (cargo build --release; minutes when it is the first time)"
  # CARGO_TARGET_DIR may be relative to where we were called; so this does not change the directory.
  cargo build --release --locked --manifest-path "$HERE/../Cargo.toml" -p lookupfs-fs -p lookupfs-reader || die "the build failed"
  LOOKUPFS=$(realpath "$target/release/lookupfs")
  LOOKUP=$(realpath "$target/release/lookup")
}

make_sample() {
  tell "writing a sample of 2 files, $ROWS rows each: narrow.parquet (2 columns), wide.parquet (42 columns, nulls, zstd, dictionaries)"
  mkdir "$WORK/source"
  "$LOOKUP" sample "$WORK/source/narrow.parquet" --rows $ROWS --columns narrow >/dev/null
  "$LOOKUP" sample "$WORK/source/wide.parquet" --rows $ROWS --columns wide >/dev/null
  # Rows at random, then some of them again.
  awk -v rows=$ROWS -v wanted=$LOOKED_UP -v seed=$SEED 'BEGIN {
    srand(seed)
    for (i = 0; i < wanted * 0.9; i++) print id[i] = int(rand() * rows)
    for (n = i; n < wanted; n++) print id[int(rand() * i)]
  }' >"$WORK/ids"
  # What the rows must look like, from the local file and past every mount.
  local file
  for file in narrow wide; do look_up "$WORK/source/$file.parquet" >"$WORK/$file.want"; done
  sed 's/^{"id":\([0-9]*\),.*/\1/' "$WORK/narrow.want" | cmp - "$WORK/ids" || die "the rows are not the ones asked for, in their order"
}

start_hdfs() {
  export MINIHDFS_HOME=$WORK/hdfs
  MINIHDFS_PORT=${MINIHDFS_PORT:-$(free_port_base)}
  export MINIHDFS_PORT
  tell "starting a real HDFS on loopback, one NameNode and two DataNodes (the first time it downloads Hadoop: a minute)"
  HDFS_STARTED=1
  "$MINIHDFS" start -d 2 --fresh
  tell "Hadoop $("$MINIHDFS" version) is up; putting the sample into it"
  "$MINIHDFS" fs -put "$WORK/source" /demo
  SOURCE=hdfs:///demo
  OPTIONS=$OPTIONS,hadoop_conf=$("$MINIHDFS" conf)
}

mount_all() {
  local i
  for ((i = 0; i < MOUNTS; i++)); do
    MOUNT_POINTS+=("$WORK/mnt$i")
    THROUGH_ALL+=(--mount "$WORK/mnt$i")
    mkdir "$WORK/mnt$i"
  done
  tell "mounting $SOURCE on $MOUNTS mount points, by one daemon with one cache"
  "$LOOKUPFS" mount "$SOURCE" "${MOUNT_POINTS[@]}" --daemon demo -o "$OPTIONS"
  MOUNTED=1
  findmnt -rno SOURCE,TARGET,FSTYPE -t fuse.lookupfs | grep -F " $WORK/" | sed 's/^/             /' || true
}

# --- steps ------------------------------------------------------------------------------------------------------------------

look_up() { "$LOOKUP" get "$@" --rows - --output json <"$WORK/ids"; }

same() { # FILE HOW.. <rows: they are what the local file gives, byte by byte
  cmp - "$WORK/$1.want" || die "rows of $1.parquet read through ${*:2} differ from the rows of the local file"
}

spread_lookups() { # one lookup that spreads its reads over all mounts
  local file spread
  for file in narrow wide; do
    for spread in hash round-robin; do
      look_up "$file.parquet" "${THROUGH_ALL[@]}" --spread $spread | same "$file" "all mounts, spread by $spread"
    done
  done
  STEP_ROWS=$((4 * LOOKED_UP)) STEP_VALUES=$((2 * LOOKED_UP * (2 + 42)))
}

single_lookups() { # the same rows through each mount alone
  local file mount_point
  for mount_point in "${MOUNT_POINTS[@]}"; do
    for file in narrow wide; do look_up "$mount_point/$file.parquet" | same "$file" "$mount_point"; done
  done
  STEP_ROWS=$((2 * MOUNTS * LOOKED_UP)) STEP_VALUES=$((MOUNTS * LOOKED_UP * (2 + 42)))
}

check_all() { # every value of the sample, against the rule that made it
  local file words
  STEP_ROWS=0 STEP_VALUES=0
  for file in narrow wide; do
    words=$("$LOOKUP" sample "$file.parquet" "${THROUGH_ALL[@]}" --rows $ROWS --columns $file --spread round-robin --verify)
    [[ $words =~ ([0-9]+)\ rows,\ ([0-9]+)\ values ]] || die "cannot read '$words'"
    STEP_ROWS=$((STEP_ROWS + BASH_REMATCH[1])) STEP_VALUES=$((STEP_VALUES + BASH_REMATCH[2]))
  done
}

everything() {
  local rows=0 values=0 part
  for part in spread_lookups single_lookups check_all; do
    "$part"
    rows=$((rows + STEP_ROWS)) values=$((values + STEP_VALUES))
  done
  STEP_ROWS=$rows STEP_VALUES=$values
}

source_requests() { # statuses, listings, opens and reads that the daemon has asked of the source so far
  "$LOOKUPFS" stats "${MOUNT_POINTS[0]}" --json | grep -o '"requests":{[^}]*}' |
    grep -oE '"(list|open|read|read_link|status)":[0-9]+' | awk -F: '{ sum += $2 } END { print sum + 0 }'
}

step() { # TITLE FUNCTION: a row of the table
  local began asked mark='' namenode=-
  tell "$1"
  asked=$(source_requests)
  if [ "$HDFS" = 1 ]; then mark=$("$MINIHDFS" audit mark); fi
  began=$(now_ms)
  "$2"
  began=$(($(now_ms) - began))
  ASKED=$(($(source_requests) - asked))
  if [ "$HDFS" = 1 ]; then namenode=$("$MINIHDFS" audit count --since "$mark"); fi
  TABLE+=("$(printf '%-45s %7s %7d %10d %6d %8d %9s' "$1" "$(seconds $began)" "$STEP_ROWS" "$STEP_VALUES" $MOUNTS "$ASKED" "$namenode")")
}

main() {
  while [ $# -gt 0 ]; do
    case $1 in
      --hdfs) HDFS=1 ;;
      --keep) KEEP=1 ;;
      -h | --help) usage; exit 0 ;;
      *) say "no flag '$1' (see mount-scripts/demo.sh --help)"; exit 2 ;;
    esac
    shift
  done
  trap 'finish $?' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  check_host
  build
  WORK=$(mktemp -d "$(realpath "${TMPDIR:-/tmp}")/lookupfs-demo.XXXXXX")
  export LOOKUPFS_RUN_DIR=$WORK/run
  mkdir "$LOOKUPFS_RUN_DIR"
  SOURCE=file://$WORK/source
  OPTIONS=ttl=600 # within it a name that is known is not asked for again, so that "again" shows what the cache saves
  make_sample
  if [ "$HDFS" = 1 ]; then start_hdfs; fi
  mount_all
  step "look up $LOOKED_UP row ids, all mounts, cold" spread_lookups
  step "look up $LOOKED_UP row ids, each mount alone" single_lookups
  step "check every value of the sample" check_all
  step "all of that again, warm" everything
  echo
  printf '%-45s %7s %7s %10s %6s %8s %9s\n' '' seconds rows 'values' mounts source NameNode '' '' '' 'compared' '' requests requests
  printf '%s\n' "${TABLE[@]}"
  echo
  [ "$ASKED" = 0 ] || die "the warm pass asked the source $ASKED times, where 0 were expected"
  tell "every value was right, and the warm pass asked the source nothing"
}

main "$@"
