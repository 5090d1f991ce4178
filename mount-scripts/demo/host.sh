# shellcheck shell=bash
# A part of demo.sh, tests/run.sh and tests/oracle/run.sh: what the host must have. Each function installs what is missing with
# apt-get as root, or names it and fails. The script that sources it has `say`, which prints a line to stderr.

install() { # PACKAGE...: with apt-get as root, else says how
  local sudo=
  if [ "$(id -u)" != 0 ]; then sudo='sudo '; fi
  if [ -n "$sudo" ] || ! command -v apt-get >/dev/null; then
    say "missing here, install it: ${sudo}apt-get install $*"
    return 1
  fi
  say "installing $*"
  apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

need() { # COMMAND PACKAGE
  command -v "$1" >/dev/null || install "$2"
}

need_cargo() {
  if ! command -v cargo >/dev/null && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  fi
  if ! command -v cargo >/dev/null; then
    say "no cargo here: install Rust with rustup"
    return 1
  fi
  need cc build-essential
}

java_version() { java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1; }

need_java() { # 17 or later; newer Debian releases have 21 in its place
  local package=openjdk-17-jre-headless version
  if ! command -v java >/dev/null; then
    if command -v apt-cache >/dev/null && ! apt-cache show "$package" >/dev/null 2>&1; then package=openjdk-21-jre-headless; fi
    install "$package" || return 1
  fi
  version=$(java_version)
  if [ "${version:-0}" -lt 17 ]; then
    say "java is version ${version:-unknown}, Hadoop 3.3.6 is run on 17: install $package and put it first on the PATH"
    return 1
  fi
}

need_fuse() {
  if [ ! -e /dev/fuse ] && [ "$(id -u)" = 0 ]; then modprobe fuse 2>/dev/null || true; fi
  if [ ! -c /dev/fuse ]; then
    say "no /dev/fuse: modprobe fuse (in a container: --device /dev/fuse --cap-add SYS_ADMIN)"
    return 1
  fi
  if ! (: <>/dev/fuse) 2>/dev/null; then
    say "/dev/fuse cannot be opened by $(id -un): chmod a+rw /dev/fuse, or run as root"
    return 1
  fi
  if [ "$(id -u)" != 0 ]; then need fusermount3 fuse3; fi
}

free_port_base() { # a base for minihdfs.sh: no port that a NameNode or first DataNode takes at base or base+300 is in use
  local base port try
  for try in {1..50}; do
    base=$((20000 + RANDOM % 20 * 600))
    for port in 0 2 100 110 300 302 400 410; do
      if (: <"/dev/tcp/127.0.0.1/$((base + port))") 2>/dev/null; then continue 2; fi
    done
    echo "$base"
    return
  done
  say "no free ports after $try tries between 20000 and 32000"
  return 1
}
