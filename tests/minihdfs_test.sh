#!/bin/bash
# minihdfs_test.sh [3.3.6 | 2.7.3]: what mount-scripts/minihdfs.sh promises, on a real HDFS (default 3.3.6).
#
# Prints a line for each thing it checked; exit code 0 when all held, 1 when one did not. Two instances of its own, in a
# temporary folder and on a block of 600 ports that no other run of this test holds, so that it disturbs no other.
# No set -e: a check that fails is counted and printed, and the next ones run.
set -uo pipefail

LINE=${1:-3.3.6}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MINI=$HERE/../mount-scripts/minihdfs.sh
TMP=$(mktemp -d)
FAILED=0
CHECKED=0
export MINIHDFS_HADOOP=$LINE

# Ports below those of tests/run.sh (from 20000) and the ephemeral ones. The lock is on a file that stays; it ends with this shell, as does the block.
for ((PORT = 12000; PORT < 19800; PORT += 600)); do
  exec 7>"/tmp/minihdfs_test.$(id -u).$PORT.lock"
  if flock -n 7; then break; fi
done
((PORT < 19800)) || { echo "FAIL no free block of ports from 12000 to 19800"; exit 1; }

one() { MINIHDFS_HOME=$TMP/one MINIHDFS_PORT=$PORT "$MINI" "$@" 7>&-; }
pair() { MINIHDFS_HOME=$TMP/pair MINIHDFS_PORT=$((PORT + 300)) "$MINI" "$@" 7>&-; }
clean() {
  one stop
  pair stop
  rm -rf "$TMP"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

ok() { CHECKED=$((CHECKED + 1)); echo "ok   $1"; }
bad() { CHECKED=$((CHECKED + 1)); FAILED=$((FAILED + 1)); echo "FAIL $1"; }
equal() { if [ "$2" = "$3" ]; then ok "$1"; else bad "$1: '$2', expected '$3'"; fi; }           # WHAT GOT WANTED
contains() { if [[ $2 == *"$3"* ]]; then ok "$1"; else bad "$1: no '$3' in '$2'"; fi; }          # WHAT TEXT PART
succeeds() { local what=$1; shift; if "$@" >"$TMP/out" 2>&1; then ok "$what"; else bad "$what: $(tail -n 5 "$TMP/out")"; fi; }
fails() { # WHAT CODE PART COMMAND..: it must end with CODE and say PART
  local what=$1 want=$2 part=$3 code=0 out
  shift 3
  out=$("$@" 2>&1) || code=$?
  if [ $code = "$want" ] && [[ $out == *"$part"* ]]; then ok "$what"; else bad "$what: exit $code, '$out'"; fi
}
processes() { # HOME: how many have it as their mark
  # shellcheck disable=SC2062 # the pattern comes by stdin, the word after it is a path
  grep -lzxF -f - /proc/[0-9]*/cmdline 2>/dev/null <<<"-Dminihdfs.home=$1" | wc -l
}
sum() { sha256sum | cut -d' ' -f1; }

usage() {
  fails 'no command is wrong usage' 2 'start [-d N]' "$MINI"
  equal '--help exits with 0' "$("$MINI" --help >/dev/null; echo $?)" 0
  fails 'an unknown command is named' 2 "'frobnicate'" "$MINI" frobnicate
  fails 'an unknown flag is named' 2 "'--foo'" one start --foo
  fails 'a number out of range is named' 2 "'10'" one start -d 10
  fails 'an unknown Hadoop line is named' 2 "'9.9.9'" env MINIHDFS_HADOOP=9.9.9 "$MINI" fetch
  fails 'without java it names the package' 1 'apt-get install openjdk-17-jre-headless' env JAVA_HOME=/none "$MINI" start
  mkdir "$TMP/bin" "$TMP/empty"
  cp -s /usr/bin/* "$TMP/bin/" 2>/dev/null
  rm -f "$TMP"/bin/mvn "$TMP"/bin/python3*
  fails 'without the downloader it names the package' 1 "apt-get install $([ "$LINE" = 2.7.3 ] && echo python3 || echo maven)" \
    env PATH="$TMP/bin" MINIHDFS_JARS="$TMP/empty" "$MINI" fetch
  fails 'a command without an instance says so' 1 'no instance in' one status
  mkdir -p "$TMP/mine"
  touch "$TMP/mine/thesis"
  fails 'a folder with other files is not taken for a home' 1 'not a home' \
    env MINIHDFS_HOME="$TMP/mine" MINIHDFS_PORT="$PORT" "$MINI" start --fresh
  equal 'and is left as it was' "$(ls "$TMP/mine")" thesis
}

jars() {
  local cache=${MINIHDFS_JARS:-${XDG_CACHE_HOME:-$HOME/.cache}/minihdfs} jar
  succeeds "fetch has every jar of Hadoop $LINE with its pinned sha256" "$MINI" fetch
  mkdir -p "$TMP/jars"
  cp -r "$cache/$LINE" "$TMP/jars/"
  jar=hadoop-common-$LINE.jar
  printf x >>"$TMP/jars/$LINE/$jar"
  fails 'a changed jar is refused by name' 1 "$jar" env MINIHDFS_JARS="$TMP/jars" "$MINI" fetch
  rm -r "$TMP/jars"
  # Maven Central out of reach: a proxy that nobody serves, and an empty local repository.
  mkdir -p "$TMP/nonet/.m2" "$TMP/jars"
  printf '<settings><proxies><proxy><active>true</active><protocol>%s</protocol><host>127.0.0.1</host><port>1</port></proxy></proxies></settings>' \
    https >"$TMP/nonet/.m2/settings.xml"
  if [ "$LINE" = 2.7.3 ]; then
    ln -s "$cache/2.7.3" "$TMP/jars/2.7.3"
    fails 'without Maven Central it is 2.7.3, and stderr says so' 0 'WARNING: Maven Central cannot be reached' \
      env -u MINIHDFS_HADOOP MINIHDFS_JARS="$TMP/jars" MAVEN_OPTS="-Duser.home=$TMP/nonet" "$MINI" version
  else
    fails 'without Maven Central an explicit 3.3.6 is an error' 1 'MINIHDFS_HADOOP=2.7.3' \
      env MINIHDFS_JARS="$TMP/jars" MAVEN_OPTS="-Duser.home=$TMP/nonet" "$MINI" version
  fi
  succeeds 'class-data archives are written (or there)' "$MINI" cds
}

files() {
  local mark want
  succeeds 'three DataNodes start' one start -d 3 --fresh --conf dfs.namenode.max-xattrs-per-inode=7
  equal 'four processes are up' "$(one status | grep -c ' up ')" 4
  equal 'and carry its mark' "$(processes "$TMP/one")" 4
  contains 'the state names the Hadoop line' "$(one status)" "Hadoop $LINE"
  contains '--conf reaches the configuration' "$(cat "$(one conf)/hdfs-site.xml")" '<name>dfs.namenode.max-xattrs-per-inode</name><value>7</value>'
  fails 'a second start is refused' 1 'an instance is running' one start
  fails 'a port in use is named' 1 "port $PORT (nn0's RPC) is in use" env MINIHDFS_HOME="$TMP/pair" MINIHDFS_PORT="$PORT" "$MINI" start

  head -c 3000000 /dev/urandom >"$TMP/data"
  want=$(sum <"$TMP/data")
  mark=$(one audit mark)
  succeeds 'a file of 3 HDFS blocks is put' one fs -put "$TMP/data" '/data of 3 blocks'
  equal 'and read with the same sha256' "$(one fs -cat '/data of 3 blocks' | sum)" "$want"
  equal 'the audit log has its one open' "$(one audit count --since "$mark" cmd=open 'src=/data of 3 blocks' ugi=root allowed=true)" 1
  equal 'and none of another path' "$(one audit count --since "$mark" cmd=open src=/data)" 0
  equal 'a prefix matches' "$(one audit count --since "$mark" cmd=open 'src=/data*')" 1
  equal 'a mark hides what was before' "$(one audit count --since "$(one audit mark)" cmd=open)" 0
  succeeds 'ACLs are on' one fs -setfacl -m user:alice:r-- '/data of 3 blocks'

  succeeds 'a DataNode is killed' one kill-dn 0
  contains 'and is down' "$(one status)" 'dn0 down'
  equal 'the file is still read' "$(one fs -cat '/data of 3 blocks' 2>"$TMP/out" | sum)" "$want" # warns of dn0
  fails 'a process that is down cannot be paused' 1 'dn0 is not running' one pause-dn 0
  succeeds 'the DataNode starts again' one start-dn 0
  succeeds 'all three are live' one wait 3
  succeeds 'a DataNode is paused' one pause-dn 1
  contains 'and says so' "$(one status)" 'dn1 paused'
  succeeds 'and resumed' one resume-dn 1
  contains 'and is up' "$(one status)" 'dn1 up'
  succeeds 'the NameNode is paused' one pause-nn 0
  equal 'and does not answer' "$(one jmx Hadoop:service=NameNode,name=FSNamesystemState)" ''
  succeeds 'and resumed' one resume-nn 0
  contains 'and answers' "$(one jmx Hadoop:service=NameNode,name=FSNamesystemState)" '"NumLiveDataNodes" : 3'
  succeeds 'the NameNode ends by SIGTERM' one term-nn 0
  succeeds 'and starts again' one start-nn 0
  succeeds 'and finds its DataNodes' one wait 3
  equal 'and the file' "$(one fs -cat '/data of 3 blocks' | sum)" "$want"
  erasure "$want"
}

erasure() { # SHA256 of $TMP/data
  if [ "$LINE" = 2.7.3 ]; then
    fails 'erasure coding is refused by name' 1 'needs Hadoop 3' one ec -listPolicies
    return
  fi
  succeeds 'an erasure coding policy is enabled' one ec -enablePolicy -policy XOR-2-1-1024k
  succeeds 'a folder is made' one fs -mkdir /ec
  succeeds 'and coded by it' one ec -setPolicy -path /ec -policy XOR-2-1-1024k
  succeeds 'a file is put there' one fs -put "$TMP/data" /ec/data
  equal 'and read with the same sha256' "$(one fs -cat /ec/data | sum)" "$1"
}

get() { # PORT PATH: the answer of a web server, by HTTP/1.0
  {
    printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3
    timeout 10 cat <&3
  } 3<>"/dev/tcp/127.0.0.1/$1"
}

high_availability() { # beside the first instance
  local want web=()
  if [ "$LINE" != 2.7.3 ]; then web=(--webhdfs); fi # 2.7.3 would download more for it
  want=$(sum <"$TMP/data")
  succeeds 'an HA pair starts beside it, with a proxy address' pair start --ha --fresh --proxy ${web[@]+"${web[@]}"}
  contains 'nn0 is active' "$(pair status)" 'nn0 up active'
  contains 'nn1 stands by' "$(pair status)" 'nn1 up standby'
  contains 'the DataNode is told by its proxy address' \
    "$(pair jmx Hadoop:service=NameNode,name=NameNodeInfo)" "127.0.1.10:$((PORT + 400))"
  if [ ${#web[@]} != 0 ]; then
    contains 'WebHDFS answers' "$(get $((PORT + 301)) '/webhdfs/v1/?op=LISTSTATUS&user.name=root')" '"FileStatuses"'
  fi
  pair stop
  succeeds 'an HA pair starts without one' pair start --ha --fresh
  succeeds 'a file is put' pair fs -put "$TMP/data" /data
  succeeds 'nn1 becomes active' pair failover 1
  contains 'and says so' "$(pair haadmin -getServiceState nn1)" active
  equal 'the file is read' "$(pair fs -cat /data | sum)" "$want"
  equal 'and nn1 has logged that' "$(pair audit count cmd=open src=/data)" 1
  succeeds 'nn1 is paused' pair pause-nn 1
  succeeds 'nn0 becomes active' pair failover 0
  succeeds 'nn1 is killed' pair kill-nn 1
  equal 'the file is read' "$(pair fs -cat /data | sum)" "$want"
  succeeds 'nn1 starts again' pair start-nn 1
  contains 'as standby' "$(pair status)" 'nn1 up standby'
  fails 'there is no nn2' 2 "'2'" pair failover 2
}

ending() {
  local first second
  succeeds 'the pair stops' pair stop
  equal 'and leaves no process' "$(processes "$TMP/pair")" 0
  equal 'the other instance is untouched' "$(one status | grep -c ' up ')" 4
  succeeds 'which stops' one stop
  equal 'and leaves no process' "$(processes "$TMP/one")" 0
  fails 'a start of another kind on kept files is refused' 1 'use --fresh' one start --ha
  one start -d 3 >"$TMP/out" 2>&1 &
  first=$!
  one start -d 3 >"$TMP/out2" 2>&1
  second=$?
  wait $first
  equal 'of two starts at once one succeeds' "$((($? == 0) + (second == 0)))" 1
  equal 'with all its processes' "$(one status | grep -c ' up ')" 4
  succeeds 'which keep the files' one wait
  equal 'of the earlier run' "$(one fs -cat '/data of 3 blocks' | sum)" "$(sum <"$TMP/data")"
  one stop
  fails 'a start that fails shows the log' 1 'dn0 ended' one start --fresh --conf dfs.datanode.data.dir=/proc/none
  equal 'and leaves no process' "$(processes "$TMP/one")" 0
}

SECONDS=0
for part in usage jars files high_availability ending; do
  echo "-- $part ($SECONDS s)"
  $part
done
echo "Hadoop $LINE: $CHECKED checked, $FAILED failed, $SECONDS s"
[ $FAILED = 0 ]
