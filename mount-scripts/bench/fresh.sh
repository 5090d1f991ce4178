#!/usr/bin/env bash
# fresh.sh: make the mounts of bench.sh that come and go anew: a new daemon, empty caches, no kernel pages.
#
# Owns: mnt-fresh and mnt-rclone below BENCH_WORK, and rclone's cache. Called by: `lookup bench`, before each cold read, in
# the environment that bench.sh has set.
set -euo pipefail

unmount() { # DIR: if something is mounted there
  if grep -qF " $1 " /proc/mounts; then umount "$1"; fi
}

unmount "$BENCH_WORK/mnt-fresh"
lock=$LOOKUPFS_RUN_DIR/fresh.lock
if [ -e "$lock" ]; then flock -w 15 "$lock" true; fi # the daemon has ended
"$BENCH_LOOKUPFS" mount "$BENCH_SOURCE" "$BENCH_WORK/mnt-fresh" --daemon fresh -o "hadoop_conf=$HADOOP_CONF_DIR"

if [ -n "$BENCH_RCLONE" ]; then
  unmount "$BENCH_WORK/mnt-rclone"
  rm -rf "$BENCH_WORK/rclone-cache"
  namenode=$(sed -n 's|.*<value>hdfs://\([^/<]*\).*|\1|p' "$HADOOP_CONF_DIR/core-site.xml" | head -n 1)
  "$BENCH_RCLONE" mount ":hdfs:${BENCH_SOURCE#hdfs://}" "$BENCH_WORK/mnt-rclone" --hdfs-namenode "$namenode" --hdfs-username root \
    --read-only --daemon --vfs-cache-mode full --cache-dir "$BENCH_WORK/rclone-cache" --config /dev/null
fi
