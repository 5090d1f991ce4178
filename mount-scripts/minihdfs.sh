#!/bin/bash
# minihdfs.sh: a real HDFS on loopback, for development and tests (usage: --help).
#
# Owns: the jars of one Hadoop line under the cache folder, and the state and processes of one instance under its
# home. Refuses: a jar whose sha256 is not the pinned one, a home it did not make, a port that is taken, an unknown
# flag. Called by: tests, demo.sh, and by hand.
#
# Hadoop 3.3.6 comes as single jars from Maven Central, 2.7.3 out of the source package of pyspark 2.4.8. The jars
# and their sha256 are in minihdfs-3.3.6.jars and minihdfs-2.7.3.jars beside this script.
set -euo pipefail

usage() {
  cat <<'USAGE'
minihdfs.sh COMMAND: a real HDFS (NameNode and DataNodes) on loopback, for development and tests

  start [-d N] [--ha] [--fresh] [--webhdfs] [--proxy] [--conf KEY=VALUE]..
        Start N DataNodes (1 to 9, default 1) and a NameNode; return when all are live and safe mode is off.
        --ha        two NameNodes nn0 (active) and nn1 as nameservice `mini`, manual failover, no fencing
        --fresh     delete the files of an earlier run first; without it they are kept
        --webhdfs   serve WebHDFS (Hadoop 3 always does)
        --proxy     clients, `fs` too, are told that DataNode I is at 127.0.1.(10+I), on its usual transfer port:
                    they reach it only while a proxy listens there
        --conf      a property of hdfs-site.xml; may be repeated, the last one counts
  stop              SIGKILL every process of the instance; files stay
  status            each process: up, paused or down, pid, memory in MiB
  conf              print the folder to use as a client's HADOOP_CONF_DIR
  wait [N]          until N DataNodes (default: all that were started) are live and safe mode is off, 60 s at most

  fs | admin | haadmin | ec ARGS..        Hadoop's `hdfs dfs`, `dfsadmin`, `haadmin`, `ec` (ec: Hadoop 3 only);
                                          HADOOP_USER_NAME is the user (known: root=superuser, alice, bob)
  {kill,term,pause,resume}-{dn,nn} I      SIGKILL, SIGTERM (both wait for the end), SIGSTOP, SIGCONT
  start-dn I        start it again; returns when every NameNode that is up knows it
  start-nn I        start it again; returns when its RPC port is open
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
JAVA=${JAVA_HOME:+$JAVA_HOME/bin/}java
NNHEAP=${MINIHDFS_NN_HEAP:-192m}
DNHEAP=${MINIHDFS_DN_HEAP:-128m}
DATANODES_MAX=9 # RS-6-3 wants nine; also the last that fits the ports and the proxy addresses
MAVEN_PLUGIN=org.apache.maven.plugins:maven-dependency-plugin:3.6.1
PYSPARK=2.4.8
PYSPARK_SHA256=3a19b71b8dc8dd91ebc943604a05e1ab01bce052456d42937035632d852d78dc

# What Hadoop 3.3.6 (and 2.7.3) needs on Java 17 with SIMPLE auth: no --add-opens and no --add-exports. Kerberos would
# want --add-exports java.security.jgss/sun.security.krb5=ALL-UNNAMED (not tried). The flags below are for size and
# speed only:
# -XX:+UseSerialGC            one GC thread instead of G1's set: less memory
# -XX:TieredStopAtLevel=1     C1 only: start-up is most of a test server's life
# -XX:-UsePerfData            no mapped hsperfdata file
# -Xss256k                    HDFS starts about 80 threads a process
# -Djava.net.preferIPv4Stack  Hadoop is IPv4 only
JOPTS=(-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xss256k -Djava.net.preferIPv4Stack=true)

# hdfs-site.xml holds ${minihdfs.*}, so that one file serves all DataNodes. The NameNode parses
# dfs.datanode.address too, so every JVM must define them all.
DNPROPS=(-Dminihdfs.dn=0 -Dminihdfs.xfer=0 -Dminihdfs.ipc=0 -Dminihdfs.http=0 -Dminihdfs.host=127.0.0.1)

say() { echo "minihdfs: $*" >&2; }
die() { say "$*"; exit 1; }
die_usage() { say "$* (see minihdfs.sh --help)"; exit 2; }
need() { command -v "$1" >/dev/null || die "no $1 here: apt-get install $2"; }
number() { # VALUE MIN MAX NAME
  if ! [[ $1 =~ ^[0-9]{1,9}$ ]] || ((10#$1 < $2 || 10#$1 > $3)); then die_usage "$4 must be $2 to $3, not '$1'"; fi
}

# ---------------------------------------------------------------------------------------------------------------
# Jars
# ---------------------------------------------------------------------------------------------------------------

use_line() { # LINE
  LINE=$1
  LIST=$HERE/minihdfs-$LINE.jars
  JARS=$JARHOME/$LINE
  [ -f "$LIST" ] || die_usage "MINIHDFS_HADOOP must be 3.3.6 or 2.7.3, not '$LINE'"
}

listed() { grep -v '^#' "$LIST"; } # "sha256  what" a line; what = a file name or Maven coordinates
file_name() { # of group:artifact:version[:classifier] or of a plain file name
  local part
  IFS=: read -ra part <<<"$1"
  if [ ${#part[@]} = 1 ]; then echo "$1"; else echo "${part[1]}-${part[2]}${part[3]:+-${part[3]}}.jar"; fi
}

# A folder gets its name only after every sum was right, and remembers which list that was.
have_jars() { [ -f "$JARS/list" ] && cmp -s "$JARS/list" "$LIST"; }

check_jars() { # FOLDER
  local sum what name
  while read -r sum what; do
    name=$(file_name "$what")
    [ -f "$1/$name" ] || die "$name is missing in $1; remove that folder and run \`minihdfs.sh fetch\`"
    echo "$sum  $1/$name"
  done < <(listed) >"$1/.sums"
  sha256sum --check --quiet --strict "$1/.sums" >&2 ||
    die "a jar is not the pinned one ($LIST). Remove $1 and what the download kept (~/.m2, pip's cache), then fetch again"
  rm -f "$1/.sums"
}

get_maven() { # FOLDER; 3 = Maven Central cannot be reached
  local tmp=$1.maven what part code=0
  need mvn maven
  mkdir -p "$tmp"
  # Every jar by name and nothing transitive: the list alone decides what is on the class path.
  {
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    echo '<groupId>minihdfs</groupId><artifactId>minihdfs</artifactId><version>1</version><packaging>pom</packaging>'
    echo '<dependencies>'
    while read -r _ what; do
      IFS=: read -ra part <<<"$what"
      printf '<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version>' "${part[@]:0:3}"
      if [ -n "${part[3]:-}" ]; then printf '<classifier>%s</classifier>' "${part[3]}"; fi
      echo '<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>'
    done < <(listed)
    echo '</dependencies></project>'
  } >"$tmp/pom.xml"
  # -U: a download that failed once would otherwise count as missing for a day.
  timeout 900 mvn -B -U -q -f "$tmp/pom.xml" "$MAVEN_PLUGIN:copy-dependencies" "-DoutputDirectory=$1" \
    >"$tmp/log" 2>&1 || code=$?
  if [ $code != 0 ]; then
    if [ $code = 124 ] || grep -qE 'Could not transfer|Cannot access|UnknownHost|Connection (refused|timed out)' "$tmp/log"; then
      sed -n '1,3p' "$tmp/log" | cut -c1-300 >&2
      return 3
    fi
    tail -n 15 "$tmp/log" >&2
    die "mvn could not copy the jars of Hadoop $LINE"
  fi
  rm -rf "$tmp"
}

get_pip() { # FOLDER
  local tmp=$1.pip what
  need python3 'python3 python3-venv'
  mkdir -p "$tmp"
  # pip asks a source package for its metadata, which runs its setup.py: that wants an old setuptools, and wheel.
  # Give it both in a throw-away venv. (With build isolation it fails: pypandoc has no `convert` any more; with a
  # system setuptools it fails on `bdist_wheel`.)
  python3 -m venv "$tmp/venv" >&2 || die "python3 cannot make a venv: apt-get install python3-venv"
  {
    "$tmp/venv/bin/pip" install -q 'setuptools<70' wheel &&
      "$tmp/venv/bin/pip" download -q --no-deps --no-build-isolation --no-binary :all: -d "$tmp" "pyspark==$PYSPARK"
  } >&2 || die "pip could not download pyspark $PYSPARK, which holds the jars of Hadoop $LINE"
  echo "$PYSPARK_SHA256  $tmp/pyspark-$PYSPARK.tar.gz" | sha256sum --check --quiet - >&2 ||
    die "pyspark-$PYSPARK.tar.gz is not the pinned file"
  while read -r _ what; do echo "pyspark-$PYSPARK/deps/jars/$what"; done < <(listed) >"$tmp/files"
  tar xzf "$tmp/pyspark-$PYSPARK.tar.gz" -C "$1" --strip-components 3 -T "$tmp/files"
  rm -rf "$tmp"
}

get_jars() { # 3 = Maven Central cannot be reached
  local part=$JARS.part code=0
  rm -rf "$part" "$part.maven" "$part.pip"
  mkdir -p "$part"
  say "fetching Hadoop $LINE into $JARS"
  if [ "$LINE" = 2.7.3 ]; then get_pip "$part"; else get_maven "$part" || code=$?; fi
  if [ $code != 0 ]; then rm -rf "$part" "$part.maven"; return $code; fi
  check_jars "$part"
  cp "$LIST" "$part/list"
  rm -rf "$JARS"
  mv "$part" "$JARS"
}

choose_line() { # sets LINE and its jars, downloading them if they are not there
  local code=0
  use_line "${MINIHDFS_HADOOP:-3.3.6}"
  if have_jars; then return 0; fi
  mkdir -p "$JARHOME"
  exec 9>"$JARHOME/lock" # two first starts at once: the second waits and finds the jars
  flock 9
  if ! have_jars; then get_jars || code=$?; fi
  if [ $code = 3 ] && [ -z "${MINIHDFS_HADOOP:-}" ]; then
    say "WARNING: Maven Central cannot be reached, so this is Hadoop 2.7.3, not 3.3.6 (no erasure coding, no observer reads)"
    use_line 2.7.3
    code=0
    if ! have_jars; then get_jars || code=$?; fi
  fi
  exec 9>&-
  [ $code = 0 ] || die "Maven Central cannot be reached; MINIHDFS_HADOOP=2.7.3 takes the older line by pip"
}

fetch_webhdfs() { # Hadoop 2.7.3 only: jersey 1.19.3 out of Debian's packages, unpacked without their 40 dependencies
  if [ -f "$JARS/webhdfs/jersey1-server.jar" ]; then return 0; fi
  local tmp
  need apt-get apt
  tmp=$(mktemp -d)
  chmod 755 "$tmp" # apt downloads as another user
  (
    cd "$tmp"
    apt-get download -q libjersey1-core-java libjersey1-server-java libjersey1-servlet-java \
      libjsr311-api-java libasm-java >/dev/null 2>&1 || die "apt-get download of jersey failed (apt-get update first?)"
    for deb in *.deb; do dpkg -x "$deb" x; done
  )
  mkdir -p "$JARS/webhdfs"
  cp "$tmp"/x/usr/share/java/{jersey1-server,jersey1-core,jersey1-servlet,jsr311-api-1.1.1,asm-9.4}.jar "$JARS/webhdfs/"
  rm -rf "$tmp"
}

jar_path() { local IFS=:; local jar=("$JARS"/*.jar); echo "${jar[*]}"; }

# Jars first: a class-data archive wants its class path as a prefix. Then the configuration folder, then $RUN for the
# empty webapps. jersey's jars (2.7.3) stand before javax.ws.rs-api 2.
class_path() { # CONF
  local first=
  if [ "$WEBHDFS" = 1 ] && [ "$LINE" = 2.7.3 ]; then first=$(printf '%s:' "$JARS"/webhdfs/*.jar); fi
  echo "$first$(jar_path):$1:$RUN"
}

# ---------------------------------------------------------------------------------------------------------------
# Configuration
# ---------------------------------------------------------------------------------------------------------------

prop() { # KEY VALUE
  local value=${2//&/&amp;}
  value=${value//</&lt;}
  printf '<property><name>%s</name><value>%s</value></property>\n' "$1" "$value"
}
bool() { if [ "$1" = 1 ]; then echo true; else echo false; fi; }
nn_rpc() { echo $((BASE + 2 * $1)); }
nn_http() { echo $((BASE + 2 * $1 + 1)); }
dn_port() { echo $((BASE + 100 + 10 * $1)); }

core_site() {
  echo '<configuration>'
  if [ "$HA" = 1 ]; then prop fs.defaultFS hdfs://mini; else prop fs.defaultFS "hdfs://127.0.0.1:$(nn_rpc 0)"; fi
  prop hadoop.tmp.dir "$RUN/tmp"
  # No id(1) call per user, and three users with known groups:
  prop hadoop.user.group.static.mapping.overrides "root=supergroup;alice=staff,users;bob=users"
  prop ipc.client.connect.max.retries 3
  prop fs.trash.interval 0
  echo '</configuration>'
}

hdfs_site() {
  local extra i
  echo '<configuration>'
  prop dfs.replication $((N < 3 ? N : 3))
  prop dfs.blocksize "$BLOCK"                          # 1 MiB: many HDFS blocks in a small file
  prop dfs.namenode.fs-limits.min-block-size 512       # the default of 1 MiB refuses small HDFS blocks
  prop dfs.namenode.acls.enabled true
  prop dfs.namenode.accesstime.precision 0             # reads write no edit
  prop dfs.namenode.handler.count 4
  prop dfs.namenode.name.dir "file://$RUN/name\${minihdfs.nn}"
  prop dfs.namenode.edits.noeditlogchannelflush true   # no fsync per edit
  prop dfs.namenode.safemode.extension 0               # leave safe mode at once
  prop dfs.namenode.safemode.min.datanodes 1
  prop dfs.heartbeat.interval 1
  prop dfs.namenode.heartbeat.recheck-interval 1000    # DataNode dead after 2*1 s + 10*1 s = 12 s (default 10.5 min)
  prop dfs.namenode.stale.datanode.interval 3000
  prop dfs.namenode.replication.interval 1
  prop dfs.namenode.datanode.registration.ip-hostname-check false # no reverse DNS
  prop dfs.ha.automatic-failover.enabled false
  prop dfs.webhdfs.enabled "$(bool "$WEBHDFS")"        # 2.7.3: needs the jersey 1 jars
  prop dfs.datanode.data.dir "file://$RUN/data\${minihdfs.dn}"
  prop dfs.datanode.address "127.0.0.1:\${minihdfs.xfer}"
  prop dfs.datanode.ipc.address "127.0.0.1:\${minihdfs.ipc}"
  prop dfs.datanode.http.address "127.0.0.1:\${minihdfs.http}"
  prop dfs.datanode.hostname "\${minihdfs.host}"       # an IP literal will do: where a proxy listens
  prop dfs.datanode.handler.count 2
  prop dfs.datanode.scan.period.hours -1               # no block scanner
  prop dfs.datanode.directoryscan.interval 21600
  prop dfs.client.use.datanode.hostname "$(bool "$PROXY")"
  for extra in ${EXTRA[@]+"${EXTRA[@]}"}; do prop "${extra%%=*}" "${extra#*=}"; done
  if [ "$HA" = 1 ]; then
    prop dfs.ha.namenode.id "nn\${minihdfs.nn}"        # both NameNodes on one host: say which one this is
    prop dfs.nameservices mini
    prop dfs.ha.namenodes.mini nn0,nn1
    for i in 0 1; do
      prop "dfs.namenode.rpc-address.mini.nn$i" "127.0.0.1:$(nn_rpc $i)"
      prop "dfs.namenode.http-address.mini.nn$i" "127.0.0.1:$(nn_http $i)"
    done
    prop dfs.namenode.shared.edits.dir "file://$RUN/shared" # a shared folder instead of JournalNodes
    prop dfs.client.failover.proxy.provider.mini \
      org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider
    prop dfs.ha.fencing.methods 'shell(/bin/true)'
    prop dfs.ha.tail-edits.period 1
    prop dfs.ha.log-roll.period 2
  else
    prop dfs.namenode.rpc-address "127.0.0.1:$(nn_rpc 0)"
    prop dfs.namenode.http-address "127.0.0.1:$(nn_http 0)"
  fi
  echo '</configuration>'
}

write_conf() {
  mkdir -p "$RUN/conf" "$RUN/client"
  core_site >"$RUN/conf/core-site.xml"
  hdfs_site >"$RUN/conf/hdfs-site.xml"
  cat >"$RUN/conf/log4j.properties" <<'LOG4J'
log4j.rootLogger=${minihdfs.loglevel},A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.target=System.err
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
log4j.logger.org.apache.hadoop.hdfs.server.namenode.FSNamesystem.audit=INFO
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
LOG4J
  # Clients get the same without the ${minihdfs.*} lines (hdfs-native does not expand variables).
  local file
  for file in core-site.xml hdfs-site.xml; do grep -vF "\${minihdfs" "$RUN/conf/$file" >"$RUN/client/$file"; done
  cp "$RUN/conf/log4j.properties" "$RUN/client/"
}

# ---------------------------------------------------------------------------------------------------------------
# Processes
# ---------------------------------------------------------------------------------------------------------------

# Every JVM carries these two on its command line: that, and not the pid in a file, says what belongs to this instance.
mark_home() { echo "-Dminihdfs.home=$RUN"; }
pids_of() { # ARGUMENT: pids of the processes whose command line has it as one whole argument
  local path
  grep -lzxF -- "$1" /proc/[0-9]*/cmdline 2>/dev/null | while IFS=/ read -r _ _ path _; do
    grep -qzxF -- "$(mark_home)" "/proc/$path/cmdline" 2>/dev/null && echo "$path"
  done || true
}
pid_of() { # NAME: of a running process, else nothing
  local pid
  pid=$(cat "$RUN/$1.pid" 2>/dev/null) && grep -qzxF -- "$(mark_home)" "/proc/$pid/cmdline" 2>/dev/null || return 1
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
  setsid "$JAVA" "$(mark_home)" "${JOPTS[@]}" ${cds[@]+"${cds[@]}"} -Xmx"$heap" -Dminihdfs.loglevel=INFO \
    "${DNPROPS[@]}" "$@" -cp "$(class_path "$RUN/conf")" "$class" </dev/null >>"$RUN/$name.log" 2>&1 &
  echo $! >"$RUN/$name.pid"
  disown
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
    -Dminihdfs.nn=0 "${DNPROPS[@]}" -cp "$(class_path "$RUN/${TOOLCONF:-client}")" "$@"
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
  printf '%s=%q\n' LINE "$LINE" BASE "$BASE" N "$N" HA "$HA" WEBHDFS "$WEBHDFS" PROXY "$PROXY" >"$RUN/state"
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

check_ports() { # every port that the instance is going to bind
  local i port uses=()
  for ((i = 0; i <= HA; i++)); do uses+=("$(nn_rpc $i) nn$i's RPC" "$(nn_http $i) nn$i's HTTP"); done
  for ((i = 0; i < N; i++)); do
    port=$(dn_port $i)
    uses+=("$port dn$i's transfer" "$((port + 1)) dn$i's IPC" "$((port + 2)) dn$i's HTTP")
  done
  for port in "${uses[@]}"; do
    if listens "${port%% *}"; then
      die "port ${port%% *} (${port#* }) is in use; set MINIHDFS_PORT to another base than $BASE"
    fi
  done
}

clean_home() { # FRESH: a home is empty, or ours and of the same kind
  local was
  if [ -e "$RUN" ] && [ ! -e "$RUN/state" ] && [ -n "$(ls -A "$RUN")" ]; then
    die "$RUN is not empty and not a home of minihdfs; set MINIHDFS_HOME to another folder"
  fi
  if [ "$1" = 1 ]; then rm -rf "$RUN"; fi
  mkdir -p "$RUN"
  if [ -e "$RUN/state" ] && [ -d "$RUN/name0/current" ]; then
    # shellcheck source=/dev/null
    was=$(. "$RUN/state"; echo "Hadoop $LINE, ha=$HA")
    [ "$was" = "Hadoop $LINE, ha=$HA" ] || die "$RUN holds files of $was, not of Hadoop $LINE, ha=$HA; use --fresh"
  fi
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
  if [ -n "$(pids_of "$(mark_home)")" ]; then die "an instance is running in $RUN: minihdfs.sh stop"; fi
  choose_line
  if [ $WEBHDFS = 1 ] && [ "$LINE" = 2.7.3 ]; then fetch_webhdfs; fi
  check_ports
  clean_home $fresh
  trap 'code=$?; trap - EXIT; if [ $code != 0 ]; then stop; fi; exit $code' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # HttpServer2 wants webapps/NAME on the class path. They are not in the jars; empty ones do.
  for webapp in hdfs datanode secondary journal; do mkdir -p "$RUN/webapps/$webapp/WEB-INF"; done
  save
  write_conf
  if [ ! -d "$RUN/name0/current" ]; then
    TOOLCONF=conf LOGLEVEL=INFO tool org.apache.hadoop.hdfs.server.namenode.NameNode -format -clusterid mini \
      -nonInteractive -force >"$RUN/format.log" 2>&1 || { log_tail format; die "formatting the NameNode failed"; }
    if [ $HA = 1 ]; then cp -r "$RUN/name0" "$RUN/name1"; fi # = -bootstrapStandby, without its JVM
  fi
  launch
  trap - EXIT INT TERM
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

stop() { # SIGKILL: nothing here is worth a clean end
  local pids tries=0
  while pids=$(pids_of "$(mark_home)") && [ -n "$pids" ]; do
    # shellcheck disable=SC2086 # one word a pid
    kill -9 $pids 2>/dev/null || true
    tries=$((tries + 1))
    [ $tries -lt 200 ] || die "processes do not end: ${pids//$'\n'/ }"
    sleep 0.05
  done
  rm -f "$RUN"/*.pid
}

# Class-data archives. One run lists the classes that get loaded, then -Xshare:dump writes them; its class path may
# hold jars only ("Cannot have non-empty directory in paths").
cds() {
  local kind java
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
}

# ---------------------------------------------------------------------------------------------------------------
# Faults, audit log, status
# ---------------------------------------------------------------------------------------------------------------

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

start_nn() {
  if alive "nn$1"; then die "nn$1 is already running"; fi
  spawn_nn "$1"
  wait_port "$(nn_rpc "$1")" "nn$1"
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
      if is_paused "$name"; then state=paused; fi
      echo "$name $state pid $pid rss $(awk '/VmRSS/{print int($2/1024)}' "/proc/$pid/status") MiB"
    else
      echo "$name down"
    fi
  done
}

# Audit lines: "DATE INFO audit: allowed=true<TAB>ugi=root (auth:SIMPLE)<TAB>ip=/127.0.0.1<TAB>cmd=open<TAB>src=/f<TAB>..".
# ugi matches without its "(auth:..)".
audit() {
  local action=print since='' i from filters=()
  case ${1:-} in
    mark)
      for ((i = 0; i <= HA; i++)); do printf '%s ' "$(stat -c %s "$RUN/nn$i.log")"; done | sed 's/ $/\n/; s/ /,/g'
      return 0
      ;;
    count) action=count; shift ;;
  esac
  while [ $# -gt 0 ]; do
    case $1 in
      --since) [[ ${2:-} =~ ^[0-9]+(,[0-9]+)?$ ]] || die_usage "--since wants a mark of 'audit mark', not '${2:-}'"; since=$2; shift ;;
      allowed=* | ugi=* | ip=* | cmd=* | src=* | dst=* | perm=*) filters+=("$1") ;;
      *) die_usage "audit does not know '$1'" ;;
    esac
    shift
  done
  for ((i = 0; i <= HA; i++)); do
    from=0
    if [ -n "$since" ]; then from=$(cut -d, -f$((i + 1)) <<<"$since"); fi
    tail -c "+$((from + 1))" "$RUN/nn$i.log"
  done | audit_filter $action ${filters[@]+"${filters[@]}"}
}

audit_filter() { # print|count FIELD=VALUE..; the values go by the environment, as awk -v would expand backslashes
  local action=$1
  shift
  FILTERS=$(printf '%s\n' "$@") awk -F '\t' -v action="$action" '
    BEGIN { wanted = split(ENVIRON["FILTERS"], want, "\n") }
    !/ audit: allowed=/ { next }
    {
      first = $1; sub(/^.* audit: /, "", first)
      hits = 0
      for (w = 1; w <= wanted; w++) {
        if (want[w] == "") { hits++; continue }
        for (f = 1; f <= NF; f++) {
          value = f == 1 ? first : $f
          if (value ~ /^ugi=/) sub(/ .*/, "", value)
          if (value == want[w] || (want[w] ~ /\*$/ && index(value, substr(want[w], 1, length(want[w]) - 1)) == 1)) { hits++; break }
        }
      }
      if (hits == wanted) { total++; if (action == "print") print }
    }
    END { if (action == "count") print total + 0 }'
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
