#!/bin/bash
# minihdfs.sh: a real HDFS on loopback, for development and tests (usage: --help).
#
# Owns: the jars of one Hadoop line under the cache folder, and the state and processes of one instance under its
# home. Refuses: a jar whose sha256 is not the pinned one, a home it did not make, a port that is taken, an unknown
# flag. Called by: tests, demo.sh, and by hand.
#
# Hadoop 3.3.6 comes as single jars from Maven Central, 2.7.3 out of the source package of pyspark 2.4.8. The jars
# and their sha256 are in minihdfs/hadoop-3.3.6.jars and minihdfs/hadoop-2.7.3.jars; minihdfs/*.sh are parts of this script.
# shellcheck disable=SC2034 # some settings are read by the parts only
set -euo pipefail

usage() {
  cat <<'USAGE'
minihdfs.sh COMMAND: a real HDFS (NameNode and DataNodes) on loopback, for development and tests

  start [-d N] [--ha] [--fresh] [--webhdfs] [--proxy] [--conf KEY=VALUE]..
        Start N DataNodes (1 to 9, default 1) and a NameNode; return when all are live and safe mode is off.
        --ha        two NameNodes nn0 (active) and nn1 as nameservice `mini`, manual failover, no fencing
        --fresh     delete the files of an earlier run first; without it they are kept
        --webhdfs   serve WebHDFS on the HTTP ports
        --proxy     clients, `fs` too, are told that DataNode I is at 127.0.1.(10+I), on its usual transfer port:
                    they reach it only while a proxy listens there
        --conf      a property of hdfs-site.xml; may be repeated, the last one counts
  stop              SIGKILL every process of the instance; files stay
  status            each process: up, paused or down, pid, memory in MiB; a NameNode is active, standby or starting
  conf              print the folder to use as a client's HADOOP_CONF_DIR
  wait [N]          until N DataNodes (default: all that were started) are live and safe mode is off, 60 s at most

  fs | admin | haadmin | ec ARGS..        Hadoop's `hdfs dfs`, `dfsadmin`, `haadmin`, `ec` (ec: Hadoop 3 only);
                                          HADOOP_USER_NAME is the user (known: root=superuser, alice, bob)
  {kill,term,pause,resume}-{dn,nn} I      SIGKILL, SIGTERM (both wait for the end), SIGSTOP, SIGCONT
  start-dn I        start it again; returns when every NameNode that is up knows it
  start-nn I        start it again; returns when it is active or standby
  failover I        (--ha) make nnI the active NameNode

  audit mark                              print a mark: the present ends of the NameNodes' audit logs
  audit [--since MARK] [FIELD=VALUE]..    print the audit lines that have all these fields
  audit count [--since MARK] [FIELD=VALUE]..   print how many they are
        FIELD is allowed, ugi, ip, cmd, src, dst or perm; a VALUE that ends in * is a prefix. The line is written
        before the NameNode answers. For instance: audit count --since "$mark" cmd=open 'src=/t/*'
  jmx QUERY         NameNode 0's, for instance 'Hadoop:service=NameNode,name=FSNamesystemState'. Counters lag
                    by about 10 s: assert on the audit log

  fetch             download the jars, once a machine; when they are there, check every sha256
  cds [--force]     write class-data archives, once a machine: they halve the start time
  version           print the Hadoop line that `start` would use

Environment:
  MINIHDFS_HADOOP   3.3.6 (default, from Maven Central by mvn) or 2.7.3 (from a Python source package by pip). When
                    it is not set and Maven Central cannot be reached, 2.7.3 is used and stderr says so
  MINIHDFS_HOME     files and logs of one instance (default CACHE/run; tmpfs works)
  MINIHDFS_JARS     jars of all instances, one folder a line in it (default CACHE)
  MINIHDFS_PORT     base port (default 29000). NameNode I: RPC base+2I, HTTP base+2I+1.
                    DataNode I: transfer base+100+10I, IPC +1, HTTP +2
  MINIHDFS_BLOCK    HDFS block size in bytes (default 1048576; 512 at least)
  MINIHDFS_NN_HEAP, MINIHDFS_DN_HEAP   Java heap limits (default 192m and 128m)
  JAVA_HOME         Java 17 (else `java` on the PATH)
  CACHE is ${XDG_CACHE_HOME:-~/.cache}/minihdfs. Instances run side by side with another HOME and PORT each.

Exit code: 0 done, 1 failed, 2 wrong usage.
USAGE
}

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/minihdfs
RUN=$(realpath -m -- "${MINIHDFS_HOME:-$CACHE/run}")
JARHOME=$(realpath -m -- "${MINIHDFS_JARS:-$CACHE}")
BASE=${MINIHDFS_PORT:-29000}
BLOCK=${MINIHDFS_BLOCK:-1048576}
[[ $RUN$JARHOME != *[[:space:]:%]* ]] || { echo "minihdfs: no white space, ':' or '%' in the home and jar folders, please: $RUN $JARHOME" >&2; exit 2; }
JAVA=${JAVA_HOME:+$JAVA_HOME/bin/}java
NNHEAP=${MINIHDFS_NN_HEAP:-192m}
DNHEAP=${MINIHDFS_DN_HEAP:-128m}
DATANODES_MAX=9 # RS-6-3 wants nine; also the last that fits the ports and the proxy addresses
say() { echo "minihdfs: $*" >&2; }
die() { say "$*"; exit 1; }
die_usage() { say "$* (see minihdfs.sh --help)"; exit 2; }
need() { command -v "$1" >/dev/null || die "no $1 here: apt-get install $2"; }
number() { # VALUE MIN MAX NAME
  if ! [[ $1 =~ ^[0-9]{1,9}$ ]] || ((10#$1 < $2 || 10#$1 > $3)); then die_usage "$4 must be $2 to $3, not '$1'"; fi
}

for part in jars conf process audit; do
  # shellcheck source=/dev/null
  . "$HERE/minihdfs/$part.sh"
done

check_ports() { # every port that the instance is going to bind
  local i port uses=() tries=0
  for ((i = 0; i <= HA; i++)); do uses+=("$(nn_rpc $i) nn$i's RPC" "$(nn_http $i) nn$i's HTTP"); done
  for ((i = 0; i < N; i++)); do
    port=$(dn_port $i)
    uses+=("$port dn$i's transfer" "$((port + 1)) dn$i's IPC" "$((port + 2)) dn$i's HTTP")
  done
  for port in "${uses[@]}"; do
    # One that was killed a moment ago may hold its ports until the kernel is done with it.
    while listens "${port%% *}" && ((++tries <= 15)); do sleep 0.2; done
    if ((tries > 15)); then
      die "port ${port%% *} (${port#* }) is in use; set MINIHDFS_PORT to another base than $BASE"
    fi
  done
}

clean_home() { # FRESH: a home is empty, or ours and of the same kind
  local was
  if [ ! -e "$RUN/state" ] && [ -n "$(ls -A "$RUN")" ]; then
    die "$RUN is not empty and not a home of minihdfs; set MINIHDFS_HOME to another folder"
  fi
  if [ "$1" = 1 ]; then find "$RUN" -mindepth 1 -delete; fi # not the folder itself: it may be a mount point
  if [ -e "$RUN/state" ] && [ -d "$RUN/name0/current" ]; then
    # shellcheck source=/dev/null
    was=$(. "$RUN/state"; echo "Hadoop $LINE, ha=$HA")
    [ "$was" = "Hadoop $LINE, ha=$HA" ] || die "$RUN holds files of $was, not of Hadoop $LINE, ha=$HA; use --fresh"
  fi
}

stop_failed() { # CODE: leave no process of a start that failed or was interrupted
  trap - EXIT
  if [ "$1" != 0 ]; then
    stop
    sleep 0.2 # one that was just forked did not carry the mark yet
    stop
  fi
  exit "$1"
}

start() {
  local fresh=0 i webapp
  N=1 HA=0 WEBHDFS=0 PROXY=0 EXTRA=()
  while [ $# -gt 0 ]; do
    case $1 in
      -d) number "${2:-}" 1 $DATANODES_MAX '-d'; N=$2; shift ;;
      --ha) HA=1 ;;
      --fresh) fresh=1 ;;
      --webhdfs) WEBHDFS=1 ;;
      --proxy) PROXY=1 ;;
      --conf) [[ ${2:-} == ?*=* ]] || die_usage "--conf wants KEY=VALUE, not '${2:-}'"; EXTRA+=("$2"); shift ;;
      *) die_usage "start does not know '$1'" ;;
    esac
    shift
  done
  number "$BASE" 1024 65000 MINIHDFS_PORT
  number "$BLOCK" 512 999999999 MINIHDFS_BLOCK
  need "$JAVA" openjdk-17-jre-headless
  mkdir -p "$RUN"
  exec 8<"$RUN"
  flock -n 8 || die "another start is under way in $RUN" # its processes would be taken for ours
  if [ -n "$(pids_of_home)" ]; then die "an instance is running in $RUN: minihdfs.sh stop"; fi
  choose_line
  if [ $WEBHDFS = 1 ] && [ "$LINE" = 2.7.3 ]; then fetch_webhdfs; fi
  check_ports
  clean_home $fresh
  trap 'stop_failed $?' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # HttpServer2 wants webapps/NAME on the class path. They are not in the jars; empty ones do.
  for webapp in hdfs datanode secondary journal; do mkdir -p "$RUN/webapps/$webapp/WEB-INF"; done
  save
  write_conf
  rm -f "$RUN"/*.log
  if [ ! -d "$RUN/name0/current" ]; then
    TOOLCONF=conf LOGLEVEL=INFO tool org.apache.hadoop.hdfs.server.namenode.NameNode -format -clusterid mini \
      -nonInteractive -force >"$RUN/format.log" 2>&1 || { log_tail format; rm -rf "$RUN/name0"; die "formatting the NameNode failed"; }
    if [ $HA = 1 ]; then cp -r "$RUN/name0" "$RUN/name1"; fi # = -bootstrapStandby, without its JVM
  fi
  launch
  trap - EXIT INT TERM
  exec 8<&-
}

launch() {
  local i tries=0
  STARTING=nn0
  spawn_nn 0
  # A DataNode that comes before its NameNode sleeps for seconds.
  if [ "$HA" = 1 ]; then STARTING+=' nn1'; spawn_nn 1; else wait_port "$(nn_rpc 0)" nn0; fi
  for ((i = 0; i < N; i++)); do STARTING+=" dn$i"; spawn_dn "$i"; done
  if [ "$HA" = 1 ]; then
    wait_port "$(nn_rpc 0)" nn0
    until haadmin -transitionToActive nn0 >"$RUN/haadmin.log" 2>&1; do
      tries=$((tries + 1))
      if [ $tries -ge 5 ]; then log_tail haadmin; die "nn0 does not become active"; fi
    done
    wait_ready 1 "$N"
  fi
  wait_ready 0 "$N"
  STARTING=
}

# Class-data archives. One run lists the classes that get loaded, then -Xshare:dump writes them; its class path may
# hold jars only ("Cannot have non-empty directory in paths").
cds() {
  local kind java
  exec 9>"$JARHOME/lock" # one at a time; whoever waited finds them
  flock 9
  java=$("$JAVA" -version 2>&1)
  if [ "${1:-}" != --force ] && [ -f "$JARS/nn.jsa" ] && [ -f "$JARS/dn.jsa" ] && [ "$(cat "$JARS/java" 2>/dev/null)" = "$java" ]; then
    say "the archives of Hadoop $LINE are there"
    return 0
  fi
  rm -f "$JARS"/*.jsa "$JARS"/*.lst
  RUN=$(mktemp -d)
  BASE=$((BASE + 700))
  CDS_DUMP=1
  start -d 1
  fs_shell -put "$0" /x
  fs_shell -cat /x >/dev/null
  CDS_DUMP=
  sleep 1
  stop
  rm -rf "$RUN"
  for kind in nn dn; do
    "$JAVA" -XX:+UseSerialGC -Xshare:dump -XX:SharedClassListFile="$JARS/$kind.lst" \
      -XX:SharedArchiveFile="$JARS/$kind.jsa" -cp "$(jar_path)" >"$JARS/cds.log" 2>&1 ||
      { tail -n 5 "$JARS/cds.log" >&2; die "java -Xshare:dump failed"; }
  done
  rm -f "$JARS"/*.lst "$JARS/cds.log"
  echo "$java" >"$JARS/java"
  exec 9>&-
}

main() {
  local command=${1:-}
  shift || true
  case $command in
    '') usage >&2; exit 2 ;;
    -h | --help | help) usage; exit 0 ;;
    fetch | version | stop | status | conf)
      [ $# = 0 ] || die_usage "$command takes no '$1'" ;;
  esac
  case $command in
    fetch) choose_line; check_jars "$JARS" ;;
    version) choose_line; echo "$LINE" ;;
    cds)
      [ $# = 0 ] || [ "$*" = --force ] || die_usage "cds does not know '$*'"
      need "$JAVA" openjdk-17-jre-headless
      choose_line
      cds "$@"
      ;;
    start) start "$@" ;;
    stop) stop ;;
    conf) load; echo "$RUN/client" ;;
    status) load; status ;;
    wait) load; number "${1:-$N}" 0 "$N" 'the number of DataNodes'; wait_ready 0 "${1:-$N}" ;;
    fs) load; fs_shell "$@" ;;
    admin) load; tool org.apache.hadoop.hdfs.tools.DFSAdmin "$@" ;;
    haadmin) load; haadmin "$@" ;;
    ec)
      load
      [ "$LINE" != 2.7.3 ] || die "erasure coding needs Hadoop 3; this instance is 2.7.3"
      tool org.apache.hadoop.hdfs.tools.ECAdmin "$@"
      ;;
    failover)
      load
      [ "$HA" = 1 ] || die "failover needs an instance that was started with --ha"
      member nn "${1:-}"
      failover "$1"
      ;;
    kill-dn | kill-nn | term-dn | term-nn | pause-dn | pause-nn | resume-dn | resume-nn)
      load
      member "${command#*-}" "${1:-}"
      fault "${command%-*}" "${command#*-}$1"
      ;;
    start-dn) load; member dn "${1:-}"; start_dn "$1" ;;
    start-nn) load; member nn "${1:-}"; start_nn "$1" ;;
    audit) load; audit "$@" ;;
    jmx) load; [ $# = 1 ] || die_usage "jmx wants one QUERY"; jmx 0 "$1" ;;
    *) die_usage "no command '$command'" ;;
  esac
}

main "$@"
