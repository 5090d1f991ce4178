# shellcheck shell=bash disable=SC2153
# A part of minihdfs.sh: ports, and the configuration of the servers ($RUN/conf) and of their clients ($RUN/client).

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
log4j.logger.org.apache.hadoop.io.erasurecode.ErasureCodeNative=ERROR
LOG4J
  # Clients get the same without the ${minihdfs.*} lines (hdfs-native does not expand variables).
  local file
  for file in core-site.xml hdfs-site.xml; do grep -vF "\${minihdfs" "$RUN/conf/$file" >"$RUN/client/$file"; done
  cp "$RUN/conf/log4j.properties" "$RUN/client/"
}
