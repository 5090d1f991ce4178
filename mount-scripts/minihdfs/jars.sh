# shellcheck shell=bash
# A part of minihdfs.sh: the jars of one Hadoop line in the cache folder. Sets LINE (3.3.6 or 2.7.3), LIST (the pinned
# jars) and JARS (their folder). Nothing gets into JARS before its sha256 was compared.

MAVEN_PLUGIN=org.apache.maven.plugins:maven-dependency-plugin:3.6.1
PYSPARK=2.4.8
PYSPARK_SHA256=3a19b71b8dc8dd91ebc943604a05e1ab01bce052456d42937035632d852d78dc


use_line() { # LINE
  LINE=$1
  LIST=$HERE/minihdfs/hadoop-$LINE.jars
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
  timeout 900 mvn -B -U -q -Dstyle.color=never -f "$tmp/pom.xml" "$MAVEN_PLUGIN:copy-dependencies" "-DoutputDirectory=$1" \
    >"$tmp/log" 2>&1 || code=$?
  if [ $code != 0 ]; then
    if [ $code = 124 ] || grep -qE 'Could not transfer|Cannot access|UnknownHost|Connection (refused|timed out)' "$tmp/log"; then
      say "mvn: $(grep -m 1 ERROR "$tmp/log" | cut -c1-400)"
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
    cd "$tmp" || exit
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
