# shellcheck shell=bash disable=SC2153
# A part of minihdfs.sh: the Java processes of one instance: start, find, wait for, hurt and end them.

# What Hadoop needs on Java 17 with SIMPLE auth: nothing, no --add-opens and no --add-exports, for NameNode, DataNode and
# the tools of 3.3.6 and 2.7.3. Only WebHDFS of 3.3.6 needs one (see spawn). Kerberos would want
# --add-exports java.security.jgss/sun.security.krb5=ALL-UNNAMED (not tried). The flags below are for size and speed:
# -XX:+UseSerialGC            one GC thread instead of G1's set: less memory
# -XX:TieredStopAtLevel=1     C1 only: start-up is most of a test server's life
# -XX:-UsePerfData            no mapped hsperfdata file
# -Xss256k                    HDFS starts about 80 threads a process
# -Djava.net.preferIPv4Stack  Hadoop is IPv4 only
JOPTS=(-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xss256k -Djava.net.preferIPv4Stack=true)

# hdfs-site.xml holds ${minihdfs.*}, so that one file serves all DataNodes. The NameNode parses
# dfs.datanode.address too, so every JVM must define them all.
DNPROPS=(-Dminihdfs.dn=0 -Dminihdfs.xfer=0 -Dminihdfs.ipc=0 -Dminihdfs.http=0 -Dminihdfs.host=127.0.0.1)

# Every JVM carries this mark on its command line: that, and not a pid in a file, says what belongs to this instance. It
# reaches grep by stdin, as on grep's own command line grep would find itself.
mark_home() { echo "-Dminihdfs.home=$RUN"; }
# shellcheck disable=SC2062 # the pattern comes by stdin, the word after it is a path
pids_of_home() { (cd /proc && grep -lzxF -f - [0-9]*/cmdline 2>/dev/null <<<"$(mark_home)" | cut -d/ -f1) || true; }

pid_of() { # NAME: of a running process, else nothing
  local pid
  pid=$(cat "$RUN/$1.pid" 2>/dev/null) &&
    grep -qzxF -f - "/proc/$pid/cmdline" 2>/dev/null <<<"$(mark_home)" || return 1
  echo "$pid"
}
alive() { pid_of "$1" >/dev/null; }
is_paused() { grep -q '^State:.T' "/proc/$(pid_of "$1")/status" 2>/dev/null; }

spawn() { # NAME HEAP CLASS -Dprops..
  local name=$1 heap=$2 class=$3
  shift 3
  local kind=${name%%[0-9]*} cds=()
  if [ -n "${CDS_DUMP:-}" ]; then
    cds=(-Xshare:off -XX:DumpLoadedClassList="$JARS/$kind.lst")
  elif [ -f "$JARS/$kind.jsa" ]; then
    cds=(-XX:SharedArchiveFile="$JARS/$kind.jsa" -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off)
  fi
  # 3.3.6's jersey brings jaxb-impl 2.2.3, which calls ClassLoader.defineClass by reflection on the first request; without
  # the flag that request and all later ones end in an ExceptionInInitializerError.
  if [ "$WEBHDFS" = 1 ] && [ "$LINE" != 2.7.3 ]; then cds+=(--add-opens java.base/java.lang=ALL-UNNAMED); fi
  setsid "$JAVA" "$(mark_home)" "${JOPTS[@]}" ${cds[@]+"${cds[@]}"} -Xmx"$heap" -Dminihdfs.loglevel=INFO \
    "${DNPROPS[@]}" "$@" -cp "$(class_path "$RUN/conf")" "$class" </dev/null >>"$RUN/$name.log" 2>&1 8>&- 9>&- &
  local pid=$!
  disown
  echo "$pid" >"$RUN/$name.pid"
  # Until it has become java it does not carry the mark, and would look dead.
  until alive "$name" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
}

spawn_nn() { spawn "nn$1" "$NNHEAP" org.apache.hadoop.hdfs.server.namenode.NameNode "-Dminihdfs.nn=$1"; }

spawn_dn() {
  local port host=127.0.0.1
  port=$(dn_port "$1")
  # With --proxy clients are told another loopback address and the same port: a proxy listens there.
  if [ "$PROXY" = 1 ]; then host=127.0.1.$((10 + $1)); fi
  spawn "dn$1" "$DNHEAP" org.apache.hadoop.hdfs.server.datanode.DataNode "-Dminihdfs.dn=$1" \
    "-Dminihdfs.xfer=$port" "-Dminihdfs.ipc=$((port + 1))" "-Dminihdfs.http=$((port + 2))" "-Dminihdfs.host=$host"
}

tool() { # CLASS ARGS..: a Java client
  local cds=()
  if [ -z "${CDS_DUMP:-}" ] && [ -f "$JARS/nn.jsa" ]; then
    cds=(-XX:SharedArchiveFile="$JARS/nn.jsa" -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off)
  fi
  "$JAVA" "$(mark_home)" "${JOPTS[@]}" ${cds[@]+"${cds[@]}"} -Xmx256m -Dminihdfs.loglevel="${LOGLEVEL:-WARN}" \
    -Dminihdfs.nn=0 "${DNPROPS[@]}" -cp "$(class_path "$RUN/${TOOLCONF:-client}")" "$@" 8>&- 9>&-
}
fs_shell() { tool org.apache.hadoop.fs.FsShell "$@"; }
haadmin() { tool org.apache.hadoop.hdfs.tools.DFSHAAdmin "$@"; }

load() { # what `start` was told
  [ -f "$RUN/state" ] || die "no instance in $RUN: minihdfs.sh start"
  # shellcheck source=/dev/null
  . "$RUN/state"
  use_line "$LINE"
}

save() {
  printf '%s=%q\n' LINE "$LINE" JARHOME "$JARHOME" BASE "$BASE" N "$N" HA "$HA" WEBHDFS "$WEBHDFS" PROXY "$PROXY" >"$RUN/state"
  echo "EXTRA=(${EXTRA[*]+"${EXTRA[*]@Q}"})" >>"$RUN/state"
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

jmx() { # I QUERY; empty when there is no answer. HTTP/1.0, so the end of the answer is the end of the connection
  local line body=0
  {
    printf 'GET /jmx?qry=%s HTTP/1.0\r\n\r\n' "$2" >&3
    while IFS= read -r -t 2 line <&3 || [ -n "$line" ]; do
      if [ $body = 1 ]; then printf '%s\n' "$line"; elif [ "$line" = $'\r' ]; then body=1; fi
    done
  } 3<>"/dev/tcp/127.0.0.1/$(nn_http "$1")" 2>/dev/null || true
}

log_tail() { # NAME
  say "the end of $RUN/$1.log:"
  grep -vE '^/?\*+/?$|STARTUP_MSG|SHUTDOWN_MSG' "$RUN/$1.log" | tail -n 20 | cut -c1-300 >&2 || true
}

wait_port() { # PORT NAME
  local tries=0
  until listens "$1"; do
    if ! alive "$2"; then log_tail "$2"; die "$2 ended"; fi
    tries=$((tries + 1))
    if [ $tries -ge 600 ]; then log_tail "$2"; die "$2: port $1 is not open after 30 s"; fi
    sleep 0.05
  done
}

wait_ready() { # I COUNT: NameNode I sees COUNT live DataNodes and has left safe mode
  local tries=0 state name
  while :; do
    state=$(jmx "$1" 'Hadoop:service=NameNode,name=FSNamesystemState')
    if grep -q "\"NumLiveDataNodes\" : $2," <<<"$state" && grep -q '"FSState" : "Operational"' <<<"$state"; then
      return 0
    fi
    if [ -n "${STARTING:-}" ]; then
      for name in $STARTING; do
        if ! alive "$name"; then log_tail "$name"; die "$name ended"; fi
      done
    elif ! alive "nn$1"; then
      die "nn$1 is not running"
    fi
    tries=$((tries + 1))
    if [ $tries -ge 600 ]; then
      log_tail "nn$1"
      die "not ready after 60 s: $(grep -oE '"(NumLiveDataNodes|FSState)" : [^,]*' <<<"$state" | tr '\n' ' '), $2 DataNodes wanted"
    fi
    sleep 0.1
  done
}

stop() { # SIGKILL: nothing here is worth a clean end
  local pids tries=0
  while pids=$(pids_of_home) && [ -n "$pids" ]; do
    # shellcheck disable=SC2086 # one word a pid
    kill -9 $pids 2>/dev/null || true
    tries=$((tries + 1))
    [ $tries -lt 200 ] || die "processes do not end: ${pids//$'\n'/ }"
    sleep 0.05
  done
  rm -f "$RUN"/*.pid
}

member() { # dn|nn I
  if [ "$1" = dn ]; then number "${2:-}" 0 $((N - 1)) "the DataNode's number"; fi
  if [ "$1" = nn ]; then number "${2:-}" 0 "$HA" "the NameNode's number"; fi
}

fault() { # kill|term|pause|resume NAME
  local pid tries=0
  pid=$(pid_of "$2") || die "$2 is not running"
  case $1 in
    pause) kill -STOP "$pid" ;;
    resume) kill -CONT "$pid" ;;
    kill) kill -KILL "$pid" ;;
    term) kill -TERM "$pid" ;;
  esac
  while [[ $1 == kill || $1 == term ]] && alive "$2"; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || die "$2 (pid $pid) has not ended after 30 s"
    sleep 0.05
  done
}

role() { # I: active, standby or, while it starts, "starting"
  local state
  state=$(jmx "$1" Hadoop:service=NameNode,name=NameNodeStatus | grep -oE '"State" : "(active|standby)"' | cut -d'"' -f4) || true
  echo "${state:-starting}"
}

start_nn() {
  local tries=0
  if alive "nn$1"; then die "nn$1 is already running"; fi
  spawn_nn "$1"
  wait_port "$(nn_rpc "$1")" "nn$1"
  while [ "$(role "$1")" = starting ]; do
    if ! alive "nn$1"; then log_tail "nn$1"; die "nn$1 ended"; fi
    tries=$((tries + 1))
    if [ $tries -ge 300 ]; then log_tail "nn$1"; die "nn$1 is neither active nor standby after 30 s"; fi
    sleep 0.1
  done
}

start_dn() { # until each NameNode that answers has registered it
  local from=0 want=0 i tries=0
  if alive "dn$1"; then die "dn$1 is already running"; fi
  if [ -f "$RUN/dn$1.log" ]; then from=$(stat -c %s "$RUN/dn$1.log"); fi
  for ((i = 0; i <= HA; i++)); do
    if alive "nn$i" && ! is_paused "nn$i"; then want=$((want + 1)); fi
  done
  spawn_dn "$1"
  wait_port "$(($(dn_port "$1") + 1))" "dn$1"
  until [ "$(tail -c "+$((from + 1))" "$RUN/dn$1.log" | grep -c 'successfully registered with NN')" -ge $want ]; do
    if ! alive "dn$1"; then log_tail "dn$1"; die "dn$1 ended"; fi
    tries=$((tries + 1))
    if [ $tries -ge 300 ]; then log_tail "dn$1"; die "dn$1 is not registered after 30 s"; fi
    sleep 0.1
  done
}

failover() { # I. A NameNode that is dead or paused cannot be asked to stand by: nothing fences it here
  local other=nn$((1 - $1))
  if alive "$other" && ! is_paused "$other"; then haadmin -transitionToStandby "$other"; fi
  haadmin -transitionToActive --forceactive "nn$1" </dev/null
}

status() {
  local name i pid state
  echo "Hadoop $LINE, ports from $BASE, home $RUN"
  for name in $(for ((i = 0; i <= HA; i++)); do echo "nn$i"; done; for ((i = 0; i < N; i++)); do echo "dn$i"; done); do
    if pid=$(pid_of "$name"); then
      state=up
      if is_paused "$name"; then
        state=paused
      elif [[ $name == nn* ]]; then
        state="up $(role "${name#nn}")"
      fi
      echo "$name $state pid $pid rss $(awk '/VmRSS/{print int($2/1024)}' "/proc/$pid/status") MiB"
    else
      echo "$name down"
    fi
  done
}
