# shellcheck shell=bash
# A part of minihdfs.sh: count the requests of a NameNode by its audit log, which it writes before it answers.

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
