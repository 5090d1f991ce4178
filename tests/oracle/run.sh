#!/usr/bin/env bash
# tests/oracle/run.sh: programs that know nothing of lookupfs read through it, on a real HDFS (usage: --help).
#
# Owns: a virtual environment of pinned libraries in the cache folder, a real HDFS, 16 mounts of a daemon, all gone at the
# end but the environment. Not a part of tests/run.sh: it downloads 400 MB of libraries. What is compared is in check.py.
# shellcheck disable=SC2317 # functions of traps
set -euo pipefail

usage() {
  cat <<'USAGE'
tests/oracle/run.sh: sha256sum, pyarrow, DuckDB, polars and pylance read through 16 mounts of a real HDFS; compares all values

As root, with rustup's cargo, python3 with venv, Java 17 and Maven (installed on Debian and Ubuntu when missing).

Environment: LOOKUPFS_BIN, the binary to test (default: built here, in release mode); CARGO_TARGET_DIR; TMPDIR, where
600 MB are needed; CHECK_SEED, the seed of the parallel part.

Exit code: 0 no difference, 1 a difference or another failure, 2 wrong usage.
USAGE
}

MOUNTS=16
BIG_MIB=256

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$HERE/../..
MINIHDFS=$ROOT/mount-scripts/minihdfs.sh
WORK='' MOUNT_POINTS=()

say() { echo "oracle: $*" >&2; }
# shellcheck source=/dev/null
. "$ROOT/mount-scripts/demo/host.sh"

finish() { # CODE
  local mount_point
  trap - EXIT
  trap '' INT TERM
  for mount_point in "${MOUNT_POINTS[@]}"; do
    if grep -qF " $mount_point fuse.lookupfs " /proc/mounts; then "$LOOKUPFS_BIN" umount --lazy "$mount_point" || true; fi
  done
  if [ -e "$WORK/run/oracle.lock" ]; then flock -w 15 "$WORK/run/oracle.lock" true || say "the daemon does not end"; fi
  "$MINIHDFS" stop || true
  rm -rf --one-file-system "$WORK"
  exit "$1"
}

environment() { # sets PYTHON; one environment for each version of requirements.txt
  local folder sum
  sum=$(cat "$HERE/requirements.txt" <(python3 --version) | sha256sum | cut -c1-16)
  folder=${XDG_CACHE_HOME:-$HOME/.cache}/lookupfs-oracle/$sum
  PYTHON=$folder/bin/python
  if [ -e "$folder/complete" ]; then return; fi
  say "installing the libraries of requirements.txt into $folder"
  rm -rf "$folder"
  python3 -m venv "$folder"
  "$PYTHON" -m pip install -q --disable-pip-version-check --only-binary :all: -r "$HERE/requirements.txt"
  touch "$folder/complete"
}

check_host() {
  need_cargo && need_fuse && need_java && need mvn maven && need python3 python3 || return 1
  python3 -c 'import ensurepip' 2>/dev/null || install python3-venv
}

sums() { # sha256sum through four of the mounts at the same time
  local i wanted got failed=0 pids=()
  wanted=$(sha256sum <"$WORK/big")
  for i in 0 5 10 15; do
    sha256sum <"${MOUNT_POINTS[i]}/big" >"$WORK/sum$i" &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || failed=1; done
  for i in 0 5 10 15; do
    got=$(<"$WORK/sum$i")
    if [ "$got" = "$wanted" ]; then echo "sha256sum of $BIG_MIB MiB, mount $i: ok ${got:0:16}"; else failed=1; echo "sha256sum, mount $i: DIFFERS"; fi
  done
  return "$failed"
}

main() {
  local i failed=0 began
  case ${1:-} in
    '') ;;
    -h | --help) usage; exit 0 ;;
    *) say "no argument '$1' (see tests/oracle/run.sh --help)"; exit 2 ;;
  esac
  [ "$(id -u)" = 0 ] || { say "mounting needs root"; exit 1; }
  check_host || exit 1
  environment
  if [ -z "${LOOKUPFS_BIN:-}" ]; then
    cargo build --release --locked --manifest-path "$ROOT/Cargo.toml" -p lookupfs-fs
    LOOKUPFS_BIN=$(realpath "${CARGO_TARGET_DIR:-$ROOT/target}/release/lookupfs")
  fi
  WORK=$(mktemp -d "$(realpath "${TMPDIR:-/tmp}")/lookupfs-oracle.XXXXXX")
  export LOOKUPFS_RUN_DIR=$WORK/run MINIHDFS_HOME=$WORK/hdfs
  trap 'finish $?' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  MINIHDFS_PORT=${MINIHDFS_PORT:-$(free_port_base)}
  export MINIHDFS_PORT
  mkdir "$LOOKUPFS_RUN_DIR"
  "$MINIHDFS" start -d 2 --fresh
  echo "Hadoop $("$MINIHDFS" version)"
  head -c "${BIG_MIB}M" /dev/urandom >"$WORK/big"
  "$MINIHDFS" fs -mkdir /oracle
  "$MINIHDFS" fs -put "$WORK/big" "$ROOT"/tests/fixtures/parquet-* "$ROOT"/tests/fixtures/lance-2.* /oracle/
  for ((i = 0; i < MOUNTS; i++)); do MOUNT_POINTS+=("$WORK/mnt$i"); done
  mkdir "${MOUNT_POINTS[@]}"
  "$LOOKUPFS_BIN" mount hdfs:///oracle "${MOUNT_POINTS[@]}" --daemon oracle -o "hadoop_conf=$("$MINIHDFS" conf)"
  began=$SECONDS
  sums || failed=1
  echo "sha256sum: $((SECONDS - began)) s"
  "$PYTHON" "$HERE/check.py" "$ROOT/tests/fixtures" "${MOUNT_POINTS[@]}" || failed=1
  "$LOOKUPFS_BIN" stats "${MOUNT_POINTS[0]}" | grep -E '^ +(changed|errors|panics|reads|bytes_read|read|open|status|failed) '
  if [ "$failed" = 0 ]; then echo "oracle: no difference"; else echo "oracle: DIFFERENCES, see above"; fi
  exit "$failed"
}

main "$@"
