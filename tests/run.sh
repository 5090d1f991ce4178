#!/usr/bin/env bash
# All checks of this repository, set-up included (usage: --help).
#
# Owns: which suites there are, what each needs from the host, and the table at the end. Refuses: to skip. What is
# missing is installed, or named and failed. Called by: people before a change, and .ci/run.
# shellcheck disable=SC2317 # suites are called by their names
set -euo pipefail

SUITES=(fmt clippy arrows tidy unit reader fuse hdfs scripts docs)

usage() {
  cat <<'USAGE'
tests/run.sh [SUITE...]: checks everything (all), or the suites named

  fmt      sources are formatted
  clippy   no lint, all targets and features
  arrows   crates depend on each other as ARCHITECTURE says (cargo tree), and the check itself can fail
  tidy     the house's rules: links, sizes, names, flags, promises (tests/tidy.rs)
  unit     unit and integration tests of cache, fs and reader
  reader   tests of the tests package that need neither a mount nor HDFS
  fuse     tests that mount; needs /dev/fuse
  hdfs     tests against a real HDFS on loopback (mount-scripts/minihdfs.sh), started here and stopped at the end
  scripts  shellcheck on every script, and the scripts' own tests (tests/*_test.sh), on a mount and on a real HDFS
  docs     documentation builds without a warning, and its examples run
  all      all of these, in this order (the default)

All suites run, also after a failure. What is not installed is installed when run as root on Debian or Ubuntu, and named
otherwise. Nothing is skipped: what cannot run has failed.

Environment:
  CARGO_TARGET_DIR       where cargo builds (default target)
  LOOKUPFS_TEST_HADOOP   lines of Hadoop for the suites hdfs and scripts, one after another, as in "3.3.6 2.7.3"
                         (default: what minihdfs.sh takes, which is 3.3.6 wherever it can be fetched)
  LOOKUPFS_TEST_SCALE    4: the test of scans with 2 GiB and 1,000 footers (default 1: a quarter of that)
  LOOKUPFS_TEST_SEED     seed of the random tests, as a failed run printed it

Exit code: 0 all passed, 1 something failed, 2 wrong usage.
USAGE
}

say() { echo "run.sh: $*" >&2; }

# The same packages and features for every cargo command that builds: nothing is compiled twice.
CARGO_ARGS=(--locked --workspace --features lookupfs-tests/hdfs-tests)

# --- what the host needs -----------------------------------------------------------------------------------------

# shellcheck source=/dev/null
. "$(dirname "${BASH_SOURCE[0]}")/../mount-scripts/demo/host.sh"

need_hadoop() {
  need_java && need mvn maven && need pip3 python3-pip
}

# --- suites: each runs in a subshell of its own under set -e -------------------------------------------------------

build() { # every target once, the two binaries included
  cargo build "${CARGO_ARGS[@]}" --all-targets
}

suite_fmt() { cargo fmt --all --check; }

suite_clippy() { cargo clippy "${CARGO_ARGS[@]}" --all-targets -- -D warnings; }

suite_tidy() { cargo test "${CARGO_ARGS[@]}" --test tidy; }

suite_unit() {
  local file tests=()
  for file in cache/tests/*.rs fs/tests/*.rs reader/tests/*.rs; do
    if [ -e "$file" ]; then tests+=(--test "$(basename "$file" .rs)"); fi
  done
  cargo test "${CARGO_ARGS[@]}" --lib --bins "${tests[@]}"
}

targets() { # none|fuse-tests|hdfs-tests: the names of the [[test]]s of tests/Cargo.toml that require it
  awk -v wanted="$1" '
    function tell() { if (name != "" && name != "tidy" && need == wanted) print name }
    /^\[/ { tell(); name = ""; need = "none"; inside = ($0 == "[[test]]") }
    inside && /^name *=/ { split($0, part, "\""); name = part[2] }
    inside && /^required-features *=/ { need = /hdfs-tests/ ? "hdfs-tests" : "fuse-tests" }
    END { tell() }' tests/Cargo.toml
}

run_targets() { # none|fuse-tests|hdfs-tests
  local name names tests=()
  names=$(targets "$1")
  for name in $names; do tests+=(--test "$name"); done
  if [ -z "$names" ]; then
    say "the suite is empty, which proves nothing: in tests/Cargo.toml no [[test]] has required features '$1'"
    return 1
  fi
  cargo test "${CARGO_ARGS[@]}" "${tests[@]}"
}

suite_reader() { run_targets none; }

suite_fuse() { need_fuse && run_targets fuse-tests; }

hdfs_line() ( # LINE or '': one HDFS for all tests, in a folder of its own; nothing is left behind
  set -e
  script=$PWD/mount-scripts/minihdfs.sh
  [ -x "$script" ] || { say "no $script"; exit 1; }
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/lookupfs-hdfs.XXXXXX")
  trap '"$script" stop || true; rm -rf "$scratch"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  export MINIHDFS_HOME=$scratch/run
  MINIHDFS_PORT=$(free_port_base)
  export MINIHDFS_PORT
  if [ -n "$1" ]; then export MINIHDFS_HADOOP=$1; fi
  "$script" start -d 2 --fresh
  echo "== Hadoop $("$script" version)"
  # Tests that need the NameNode's tools, its audit log or a fault call the script; the others only need the folder.
  LOOKUPFS_TEST_HDFS_CONF=$("$script" conf)
  export LOOKUPFS_TEST_HDFS_CONF LOOKUPFS_TEST_MINIHDFS=$script
  run_targets hdfs-tests
)

suite_hdfs() {
  local line failed=0
  need_fuse && need_hadoop || return 1
  if [ -z "${LOOKUPFS_TEST_HADOOP:-}" ]; then
    hdfs_line ''
    return
  fi
  for line in $LOOKUPFS_TEST_HADOOP; do
    set +e # a broken line does not hide the next
    hdfs_line "$line"
    # shellcheck disable=SC2181 # a condition would turn set -e off inside
    if [ $? != 0 ]; then failed=1; fi
    set -e
  done
  return "$failed"
}

scripts() { # every script, and the parts that scripts source
  local file first
  git -c safe.directory='*' ls-files --cached --others --exclude-standard | while IFS= read -r file; do
    if [ ! -f "$file" ]; then continue; fi
    first=
    IFS= read -r first <"$file" 2>/dev/null || true
    if [[ $file == *.sh || $first =~ ^'#!'.*[/\ ](ba)?sh ]]; then echo "$file"; fi
  done
}

suite_scripts() {
  local file line failed=0
  need shellcheck shellcheck
  while IFS= read -r file; do
    if [[ $(head -c 2 "$file") == '#!' ]]; then
      shellcheck "$file" || failed=1
    else # a part: its variables are set and used by the script that sources it
      shellcheck -s bash -e SC2034,SC2154 "$file" || failed=1
    fi
  done < <(scripts)
  need_fuse && need_hadoop || return 1
  cargo build "${CARGO_ARGS[@]}" --bins
  for file in tests/*_test.sh; do
    if [ "$file" != tests/minihdfs_test.sh ]; then # only that one is about a line of Hadoop
      echo "== $file"
      "$file" || failed=1
      continue
    fi
    for line in ${LOOKUPFS_TEST_HADOOP:-default}; do
      echo "== $file, Hadoop $line"
      MINIHDFS_TEST_PORT=$(free_port_base)
      export MINIHDFS_TEST_PORT
      if [ "$line" = default ]; then "$file" || failed=1; else "$file" "$line" || failed=1; fi
    done
  done
  return "$failed"
}

suite_docs() {
  RUSTDOCFLAGS='-D warnings' cargo doc "${CARGO_ARGS[@]}" --no-deps
  cargo test "${CARGO_ARGS[@]}" --doc
}

# --- arrows ----------------------------------------------------------------------------------------------------------

depends_on() { # PACKAGE ARGS..: all it depends on, over normal, build and dev edges, one a line
  local package=$1
  shift
  cargo tree --locked -p "$package" -e normal,build,dev --prefix none "$@" | awk '{ print $1 }' | sort -u
}

forbid() { # WHAT PATTERN <names: none of them matches the pattern as a whole
  local names found
  names=$(cat)
  if [ -z "$names" ]; then
    echo "arrow: $1: cargo tree printed nothing"
    return 1
  fi
  found=$(grep -Ex -- "$2" <<<"$names" | tr '\n' ' ' || true)
  if [ -n "$found" ]; then
    echo "arrow: $1, yet there is: $found"
    return 1
  fi
  echo "arrow: $1: kept"
}

refused() { # TITLE PATTERN <names: forbid must say no
  if forbid "$@" >/dev/null; then
    echo "arrow: the check '$1' cannot fail"
    return 1
  fi
}

suite_arrows() {
  local failed=0
  forbid 'reader knows neither cache nor fs' 'lookupfs-(cache|fs|tests)' < <(depends_on lookupfs-reader --all-features) || failed=1
  forbid 'cache knows neither FUSE nor a command line' 'fuser|clap|lookupfs-(fs|reader|tests)' < <(depends_on lookupfs-cache --all-features) || failed=1
  forbid 'fs names no HDFS client and no reader' 'hdfs-native|lookupfs-(reader|tests)' < <(depends_on lookupfs-fs --all-features --depth 1) || failed=1
  forbid 'reader is light without its features' 'lance(-.*)?|orc-rust|datafusion(-.*)?' < <(depends_on lookupfs-reader --no-default-features) || failed=1
  # Each check has a case that it must refuse: literal ones, and one over a real tree.
  printf '%s\n' lookupfs-reader lookupfs-cache | refused 'literal cache' 'lookupfs-(cache|fs|tests)' || failed=1
  printf '%s\n' lookupfs-cache clap | refused 'literal clap' 'fuser|clap|lookupfs-(fs|reader|tests)' || failed=1
  printf '%s\n' lookupfs-fs hdfs-native | refused 'literal client' 'hdfs-native|lookupfs-(reader|tests)' || failed=1
  printf '%s\n' lookupfs-reader lance-file | refused 'literal lance' 'lance(-.*)?|orc-rust|datafusion(-.*)?' || failed=1
  refused 'empty tree' 'x' </dev/null || failed=1
  depends_on lookupfs-fs | refused 'fs depends on the HDFS client through cache' 'hdfs-native' || failed=1
  return "$failed"
}

# --- the run -----------------------------------------------------------------------------------------------------------

TABLE=()
FAILED=0
BUILT=

row() { # NAME RESULT SECONDS
  TABLE+=("$(printf '%-8s %6d s  %s' "$1" "$3" "$2")")
  if [ "$2" != passed ]; then FAILED=1; fi
}

STATUS=0

timed() { # NAME FUNCTION: runs it under set -e, adds its row, sets STATUS. Never call it as a condition: that turns set -e off
  local began=$SECONDS
  echo
  echo "==== $1"
  set +e
  (set -e && "$2")
  STATUS=$?
  set -e
  if [ $STATUS = 0 ]; then row "$1" passed $((SECONDS - began)); else row "$1" FAILED $((SECONDS - began)); fi
  echo "==== $1: $((SECONDS - began)) s, status $STATUS"
  if [ $STATUS = 130 ]; then exit 130; fi # interrupted: whoever pressed the keys wants no further suite
}

run() { # SUITE
  case $1 in
    tidy | unit | reader | fuse | hdfs)
      if [ -z "$BUILT" ]; then
        timed build build
        BUILT=$STATUS
      fi
      if [ "$BUILT" != 0 ]; then
        row "$1" 'FAILED: the build is broken' 0
        return
      fi
      ;;
  esac
  timed "$1" "suite_$1"
}

main() {
  local suite wanted=()
  for suite in "${@:-all}"; do
    case " ${SUITES[*]} all -h --help " in
      *" $suite "*) ;;
      *)
        say "no suite '$suite' (see tests/run.sh --help)"
        exit 2
        ;;
    esac
    case $suite in
      -h | --help)
        usage
        exit 0
        ;;
      all) wanted+=("${SUITES[@]}") ;;
      *) wanted+=("$suite") ;;
    esac
  done
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  need_cargo && need git git || exit 1
  LOOKUPFS_BIN=$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug/lookupfs
  LOOKUP_BIN=$(dirname "$LOOKUPFS_BIN")/lookup
  export LOOKUPFS_BIN LOOKUP_BIN
  for suite in "${wanted[@]}"; do run "$suite"; done
  echo
  printf '%s\n' "${TABLE[@]}"
  exit $FAILED
}

main "$@"
