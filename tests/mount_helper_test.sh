#!/usr/bin/env bash
# mount_helper_test.sh: mount-scripts/mount.lookupfs, first in front of a program that writes down how it is called, then
# under mount(8) with the real lookupfs, by command line and by a line of an fstab.
#
# Needs root, /dev/fuse and the binary (LOOKUPFS_BIN, or target/debug/lookupfs). Prints a line for each thing it checked; exit code
# 0 when all held, 1 when one did not. mount(8) finds helpers in /sbin only: the real part runs in a mount namespace of its
# own, where it puts the helper there, so that the host's /sbin stays as it is and nothing stays mounted.
# No set -e: a check that fails is counted and printed, and the next ones run.
set -uo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
HELPER=$HERE/../mount-scripts/mount.lookupfs
REAL=$(realpath -m "${LOOKUPFS_BIN:-${CARGO_TARGET_DIR:-$HERE/../target}/debug/lookupfs}")

if [ "${1:-}" != --inside ]; then
  # No `exec`: this shell stays outside and clears away, whatever happens inside. The pid namespace ends the daemon.
  TMP=$(mktemp -d)
  trap 'rm -rf --one-file-system "$TMP"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  unshare --mount --pid --fork --kill-child --mount-proc "$0" --inside "$TMP"
  exit
fi

TMP=$2
FAILED=0 CHECKED=0
ok() { CHECKED=$((CHECKED + 1)); echo "ok   $1"; }
bad() { CHECKED=$((CHECKED + 1)); FAILED=$((FAILED + 1)); echo "FAIL $1"; }
equal() { if [ "$2" = "$3" ]; then ok "$1"; else bad "$1: '$2', expected '$3'"; fi; } # WHAT GOT WANTED
contains() { if [[ $2 == *"$3"* ]]; then ok "$1"; else bad "$1: no '$3' in '$2'"; fi; } # WHAT TEXT PART

fake() { # ARGS..: sets CODE, OUT, and CALLED, how it called lookupfs, which ends with FAKE_CODE
  : >"$TMP/called"
  LOOKUPFS_BIN=$TMP/fake "$HELPER" "$@" >"$TMP/out" 2>&1
  CODE=$?
  CALLED=$(<"$TMP/called") OUT=$(<"$TMP/out")
}

convention() {
  # shellcheck disable=SC2016 # it is a script
  printf '%s\n' '#!/bin/sh' 'printf "<%s>" "$@" >>"$(dirname "$0")/called"' 'exit "${FAKE_CODE:-0}"' >"$TMP/fake"
  chmod +x "$TMP/fake"
  fake hdfs://ns1/a /mnt/a
  equal 'no options: none are passed' "$CODE $CALLED" '0 <mount><hdfs://ns1/a></mnt/a>'
  fake hdfs://ns1/a /mnt/a -o rw
  equal 'the rw that mount(8) adds goes away' "$CODE $CALLED" '0 <mount><hdfs://ns1/a></mnt/a>'
  fake hdfs://ns1/a '/mnt/a b' -v -o rw,noatime,ttl=3,user,_netdev -o memory=1g
  equal 'options of the filesystem are passed on' "$CODE $CALLED" '0 <mount><hdfs://ns1/a></mnt/a b><-o><noatime,ttl=3,_netdev,memory=1g>'
  fake hdfs://ns1/a /mnt/a -o rw,user=alice,users,x-systemd.automount,nofail
  equal 'user=NAME is an option of lookupfs' "$CODE $CALLED" '0 <mount><hdfs://ns1/a></mnt/a><-o><user=alice,users,x-systemd.automount,nofail>'
  fake hdfs://ns1/a /mnt/a -f -o rw,ttl=3
  equal 'a fake mount calls nothing' "$CODE $CALLED" '0 '
  fake hdfs://ns1/a /mnt/a -o remount,ttl=3
  equal 'a remount is refused' "$CODE $CALLED" '1 '
  contains 'and says what to do' "$OUT" 'unmount it and mount it again'
  fake hdfs://ns1/a
  equal 'no mount point is a wrong call' "$CODE $CALLED" '1 '
  fake hdfs://ns1/a /mnt/a -q
  equal 'an unknown flag is a wrong call' "$CODE $CALLED" '1 '
  export FAKE_CODE=1
  fake hdfs://ns1/a /mnt/a
  equal 'a mount that fails gives mount(8)s code for it' "$CODE" 32
  unset FAKE_CODE
}

flags_at() { findmnt -no OPTIONS "$1"; } # MOUNTPOINT

really() {
  local line
  export LOOKUPFS_BIN=$REAL LOOKUPFS_RUN_DIR=$TMP/run
  mkdir "$TMP/run" "$TMP/source" "$TMP/mnt" "$TMP/sbin"
  echo 'the bytes' >"$TMP/source/file"
  # A /sbin of this namespace alone: a copy of the host's, with the helper in it.
  if ! { mount -t tmpfs none "$TMP/sbin" && cp -a /sbin/. "$TMP/sbin/" && cp "$HELPER" "$TMP/sbin/mount.fuse.lookupfs" &&
    mount --bind "$TMP/sbin" "$(realpath /sbin)"; }; then
    bad 'no /sbin of its own in this namespace'
    return
  fi

  mount -t fuse.lookupfs "file://$TMP/source" "$TMP/mnt" -o ttl=1 2>"$TMP/out" || bad "mount: $(<"$TMP/out")"
  equal 'mount -t fuse.lookupfs: a file is read' "$(cat "$TMP/mnt/file")" 'the bytes'
  equal 'its type in the table of mounts' "$(findmnt -no FSTYPE "$TMP/mnt")" fuse.lookupfs
  contains 'it is read-only' "$(flags_at "$TMP/mnt")," 'ro,'
  umount "$TMP/mnt" || bad 'umount failed'
  equal 'umount takes it away' "$(findmnt -no FSTYPE "$TMP/mnt")" ''

  line="file://$TMP/source $TMP/mnt fuse.lookupfs _netdev,noauto,nofail,users,x-systemd.requires=a.service,ttl=1,memory=32m 0 0"
  echo "$line" >"$TMP/fstab"
  mount -T "$TMP/fstab" "$TMP/mnt" 2>"$TMP/out" || bad "mount by fstab: $(<"$TMP/out")"
  equal 'a line of an fstab: a file is read' "$(cat "$TMP/mnt/file")" 'the bytes'
  contains 'users makes it noexec' "$(flags_at "$TMP/mnt")," 'noexec,'
  contains 'memory of the line counts' "$("$REAL" stats "$TMP/mnt" --json)" '"memory":33554432'
  umount "$TMP/mnt" || bad 'umount failed'

  mount -t fuse.lookupfs "file://$TMP/source" "$TMP/mnt" -o bogus=1 2>"$TMP/out"
  equal 'an unknown option: exit code of mount(8)' $? 32
  contains 'and which it is' "$(<"$TMP/out")" 'option bogus'
  mount -t fuse.lookupfs "file://$TMP/nowhere" "$TMP/mnt" 2>"$TMP/out"
  equal 'a source that is not there: exit code of mount(8)' $? 32
  contains 'and which it is' "$(<"$TMP/out")" "$TMP/nowhere"
  equal 'nothing stays mounted' "$(findmnt -no FSTYPE "$TMP/mnt")" ''
  flock -w 15 "$TMP/run/default.lock" true || bad 'the daemon outlives its last mount'
}

[ "$(id -u)" = 0 ] || { echo 'FAIL mounting needs root'; exit 1; }
[ -x "$REAL" ] || { echo "FAIL no $REAL: cargo build -p lookupfs-fs, or set LOOKUPFS_BIN"; exit 1; }
convention
really
echo "$CHECKED checked, $FAILED failed"
[ "$FAILED" = 0 ]
