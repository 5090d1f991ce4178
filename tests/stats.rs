//! `lookupfs stats`, its JSON and its metrics, on real mounts: compared with what was read, with what the source was
//! asked, and with fs/METRICS.md.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lookupfs_tests::{Daemon, Tree, pattern, wait_until};
use serde_json::Value;

#[path = "stats/control_socket.rs"]
mod control_socket;
#[path = "stats/exposition.rs"]
mod exposition;
#[path = "stats/names.rs"]
mod names;

/// A port that nobody listens at now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// One request on a bare socket; the head and the body of the answer.
fn request(port: u16, text: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn scrape(port: u16) -> String {
    let (head, body) = request(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("\r\nContent-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(
        head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())),
        "{head}"
    );
    body
}

fn stdout(daemon: &Daemon, args: &[&str]) -> String {
    let output = daemon.lookupfs(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Bytes of a file as a reader that shares no kernel pages with others.
fn read_at(path: &Path, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    File::open(path)
        .unwrap()
        .read_exact_at(&mut bytes, offset)
        .unwrap();
    bytes
}

/// A daemon whose source is another mount, and whose process is stopped: a source that does not answer.
struct Frozen(String);

impl Frozen {
    fn new(source: &Daemon) -> Frozen {
        let pid = source.pid().to_string();
        assert!(
            Command::new("kill")
                .args(["-STOP", &pid])
                .status()
                .unwrap()
                .success()
        );
        Frozen(pid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-CONT", &self.0]).status();
    }
}

#[test]
fn a_source_that_hangs_shows_as_the_oldest_operation_and_holds_up_no_stats() {
    let tree = Tree::new();
    let bytes = pattern(16 << 20);
    tree.write("f", &bytes);
    let mut below = Daemon::new();
    let source = below.mount(&tree.url(), "");
    let port = free_port();
    let mut daemon = Daemon::new();
    let url = format!("file://{}", source.display());
    let cache = tempfile::tempdir().unwrap();
    let options = format!("deadline=120,metrics={port},cache_dir={}", cache.path().display());
    let mount = daemon.mount(&url, &options);
    assert_eq!(read_at(&mount.join("f"), 0, 4096), bytes[..4096]);
    assert!(daemon.stats().pointer("/mounts/0/oldest").is_none());

    let frozen = Frozen::new(&below);
    let path = mount.join("f");
    let reader = std::thread::spawn(move || read_at(&path, 12 << 20, 4096));
    let in_flight = || daemon.count("/mounts/0/in_flight");
    assert!(wait_until(Duration::from_secs(20), || in_flight() > 0));
    let stats = daemon.stats();
    let oldest = &stats["mounts"][0]["oldest"];
    assert_eq!(
        (&oldest["operation"], &oldest["path"]),
        (&"read".into(), &"/f".into()),
        "{oldest}"
    );
    let age = oldest["age_s"].as_f64().unwrap();
    let people = stdout(&daemon, &["stats", mount.to_str().unwrap()]);
    assert!(
        people.contains("operations wait, the oldest for") && people.contains("read /f"),
        "{people}"
    );
    let families = exposition::read(&scrape(port));
    let metric = |name: &str| families[name].value(&[("mount", mount.to_str().unwrap())]);
    assert!(
        metric("lookupfs_mount_oldest_operation_age_seconds") >= age,
        "time goes on"
    );
    assert!(metric("lookupfs_mount_in_flight_operations") >= 1.0);
    names::all_are_documented(&daemon);

    drop(frozen);
    assert_eq!(reader.join().unwrap(), bytes[12 << 20..][..4096]);
    assert!(wait_until(Duration::from_secs(20), || in_flight() == 0));
    assert!(daemon.stats().pointer("/mounts/0/oldest").is_none());
    let metric = exposition::read(&scrape(port));
    assert_eq!(
        metric["lookupfs_mount_oldest_operation_age_seconds"].value(&[]),
        0.0
    );
}

#[test]
fn bytes_are_charged_to_the_mount_and_the_file_whose_read_fetched_them() {
    let tree = Tree::new();
    for name in ["a", "b"] {
        tree.write(name, &pattern(3_000_000));
    }
    let mut daemon = Daemon::new();
    let mounts = daemon.mount_many(&tree.url(), "", 2);
    for (mount, name) in [(0, "a"), (1, "a"), (1, "b")] {
        assert_eq!(fs::read(mounts[mount].join(name)).unwrap(), pattern(3_000_000));
    }
    let settled =
        || daemon.count("/cache/inflight_bytes") == 0 && daemon.count("/sources/0/requests/in_flight") == 0;
    assert!(wait_until(Duration::from_secs(20), settled));
    let json = stdout(&daemon, &["stats", "--all", "--json", "--files", "10"]);
    let stats: Value = serde_json::from_str(&json).unwrap();
    let number = |pointer: &str| stats.pointer(pointer).and_then(Value::as_u64).unwrap();
    let fetched = [
        number("/mounts/0/fetched_bytes"),
        number("/mounts/1/fetched_bytes"),
    ];
    // `a` was read by the first mount, and found in memory by the second, which read `b`.
    assert_eq!(fetched, [3_000_000; 2]);
    assert_eq!(
        fetched.iter().sum::<u64>(),
        number("/sources/0/requests/read_bytes")
    );
    let mut of_files = Vec::new();
    for mount in stats["mounts"].as_array().unwrap() {
        let files = mount["files"].as_array().unwrap();
        let sum = |name: &str| -> u64 { files.iter().map(|file| file[name].as_u64().unwrap()).sum() };
        assert_eq!(sum("fetched_bytes"), mount["fetched_bytes"]);
        assert_eq!(sum("served_bytes"), mount["requests"]["bytes_read"]);
        assert!(
            sum("served_bytes") >= 3_000_000 * files.len() as u64,
            "kernel pages are read whole"
        );
        let shown = |file: &Value| (file["path"].clone(), file["fetched_bytes"].as_u64().unwrap());
        of_files.push(files.iter().map(shown).collect::<Vec<_>>());
    }
    assert_eq!(of_files[0], [("/a".into(), 3_000_000)]);
    assert_eq!(of_files[1], [("/b".into(), 3_000_000), ("/a".into(), 0)]);

    let one = stdout(
        &daemon,
        &["stats", mounts[1].to_str().unwrap(), "--files", "1", "--json"],
    );
    let one: Value = serde_json::from_str(&one).unwrap();
    assert!(
        one["mounts"][0].get("files").is_none(),
        "only of the mount that was named"
    );
    assert_eq!(one["mounts"][1]["files"].as_array().unwrap().len(), 1);
    let people = stdout(&daemon, &["stats", "--all", "--files"]);
    assert!(
        people.contains("read amplification 1.0") || people.contains("read amplification 0.99"),
        "{people}"
    );
}

#[test]
fn settings_of_the_kernel_are_those_in_force() {
    let tree = Tree::new();
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "");
    let settings = daemon.stats()["mounts"][0]["settings"].clone();
    assert_eq!(
        (&settings["opens"], &settings["event_loops"]),
        (&"no-open".into(), &2.into())
    );
    assert_eq!(settings["max_read_bytes"], 1 << 20);
    assert!(
        settings["max_readahead_bytes"].as_u64().unwrap() >= 4096,
        "{settings}"
    );
    let abi = settings["abi"].as_str().unwrap();
    assert!(abi.starts_with("7."), "{abi}");
    // The kernel's own view, by the device number that `stat` gives.
    let device = std::os::unix::fs::MetadataExt::dev(&fs::metadata(&mount).unwrap());
    let (major, minor) = (libc::major(device), libc::minor(device));
    let bdi = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    match fs::read_to_string(bdi) {
        Ok(kib) => assert_eq!(
            settings["read_ahead_bytes"],
            kib.trim().parse::<u64>().unwrap() * 1024
        ),
        Err(_) => assert!(settings.get("read_ahead_bytes").is_none()),
    }
}

#[test]
fn metrics_only_go_up_and_a_reset_is_for_people_only() {
    let tree = Tree::new();
    tree.write("f", &pattern(100_000));
    let port = free_port();
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &format!("metrics={port}"));
    fs::read(mount.join("f")).unwrap();
    let before = exposition::read(&scrape(port));
    let point = mount.to_str().unwrap().to_owned();
    stdout(&daemon, &["stats", &point, "--reset"]);
    let people = stdout(&daemon, &["stats", &point]);
    assert!(people.contains("counts are since the reset"), "{people}");
    assert!(people.contains("served 0 B in 0 reads, fetched 0 B"), "{people}");
    tree.write("g", &pattern(50_000));
    assert_eq!(fs::read(mount.join("g")).unwrap(), pattern(50_000));
    let people = stdout(&daemon, &["stats", &point]);
    assert!(people.contains("fetched 48.8 KiB in"), "{people}");
    // Files as well: the one that was read before is in the JSON, which goes on counting.
    let people = stdout(&daemon, &["stats", &point, "--files"]);
    assert!(!people.contains(" /f\n") && people.contains(" /g\n"), "{people}");
    let json = stdout(&daemon, &["stats", &point, "--files", "--json"]);
    assert!(json.contains("\"/f\"") && json.contains("\"/g\""), "{json}");
    let after = exposition::read(&scrape(port));
    // One value of `source` joins what a mount counts with what its source does.
    let sources = |name: &str| -> Vec<String> {
        let samples = after[name].samples.iter();
        samples
            .map(|(labels, _)| {
                labels
                    .iter()
                    .find(|(name, _)| *name == "source")
                    .unwrap()
                    .1
                    .clone()
            })
            .collect()
    };
    assert_eq!(
        sources("lookupfs_mount_inodes"),
        sources("lookupfs_source_read_bytes_total")
    );
    for (name, family) in before.iter().filter(|(_, family)| family.kind == "counter") {
        for (labels, value) in &family.samples {
            let labels: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            assert!(after[name].value(&labels) >= *value, "{name}{labels:?}");
        }
    }
    assert_eq!(
        after["lookupfs_mount_fetched_bytes_total"].value(&[("mount", &point)]),
        150_000.0
    );
    assert_eq!(daemon.count("/mounts/0/fetched_bytes"), 150_000);
    assert_eq!(daemon.count("/sources/0/requests/read_bytes"), 150_000);
    let text = stdout(&daemon, &["stats", &point, "--prometheus"]);
    let printed: Vec<String> = exposition::read(&text).into_keys().collect();
    assert_eq!(
        printed,
        after.into_keys().collect::<Vec<_>>(),
        "the same text by both ways"
    );
}

#[test]
fn what_the_kernel_asked_of_a_mount_that_has_gone_stays_counted() {
    let tree = Tree::new();
    tree.write("f", &pattern(100_000));
    let mut daemon = Daemon::new();
    daemon.mount(&tree.url(), "");
    let goes = daemon.mount(&tree.url(), "");
    fs::read(goes.join("f")).unwrap();
    let reads = daemon.count("/kernel/reads");
    assert_eq!(daemon.count("/mounts/1/requests/reads"), reads);
    stdout(&daemon, &["umount", goes.to_str().unwrap()]);
    let has_gone = || daemon.stats()["mounts"].as_array().unwrap().len() == 1;
    assert!(wait_until(Duration::from_secs(20), has_gone));
    assert_eq!(
        (
            daemon.count("/kernel/reads"),
            daemon.count("/mounts/0/requests/reads")
        ),
        (reads, 0)
    );
}

#[test]
fn an_address_that_is_taken_is_refused_before_anything_is_mounted() {
    let tree = Tree::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut daemon = Daemon::new();
    let point = daemon.new_mount_point();
    let option = format!("metrics={port}");
    let output = daemon.lookupfs(&["mount", &tree.url(), point.to_str().unwrap(), "-o", &option]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains(&format!("127.0.0.1:{port} is in use")),
        "{errors}"
    );
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    drop(taken);
    daemon.mount(&tree.url(), &option);
    let (head, _) = request(port, "POST /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 405"), "{head}");
    let other = daemon.new_mount_point();
    let differs = daemon.lookupfs(&["mount", &tree.url(), other.to_str().unwrap(), "-o", "metrics=1"]);
    let errors = String::from_utf8_lossy(&differs.stderr);
    assert!(
        !differs.status.success() && errors.contains("another metrics"),
        "{errors}"
    );
}

/// Goes on and ends, whatever the test did.
struct Stopped(u32);

impl Stopped {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.signal("-KILL");
        }
    }
}

#[test]
fn a_stopped_daemon_is_named_and_the_others_answer() {
    let tree = Tree::new();
    tree.write("f", b"x");
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "");
    let other = daemon.run_directory().with_file_name("other");
    std::fs::create_dir(&other).unwrap();
    let (url, other_text) = (tree.url(), other.to_str().unwrap());
    assert!(
        daemon
            .lookupfs(&["mount", &url, other_text, "--daemon", "other"])
            .status
            .success()
    );
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let of_other = daemon.lookupfs(&["stats", other_text, "--json"]);
    let of_other: serde_json::Value = serde_json::from_slice(&of_other.stdout).unwrap();
    let stopped = Stopped(of_other["pid"].as_u64().unwrap() as u32);
    stopped.signal("-STOP");

    let all = daemon.lookupfs(&["stats", "--all"]);
    let complaint = text(&all.stderr);
    assert!(
        all.status.success() && text(&all.stdout).contains("daemon default"),
        "{complaint}"
    );
    let names_it = ["other.sock", "does not answer", &format!("(pid {})", stopped.0)];
    for word in names_it {
        assert!(complaint.contains(word), "{word}: {complaint}");
    }
    // Whoever is asked for by name answers, and nothing else matters.
    let one = daemon.lookupfs(&["stats".as_ref(), mount.as_os_str()]);
    assert_eq!((one.status.success(), text(&one.stderr)), (true, String::new()));
    for args in [vec!["stats", other_text], vec!["warm", "--check", other_text]] {
        let refused = daemon.lookupfs(&args);
        let reason = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1));
        for word in names_it {
            assert!(reason.contains(word), "{word}: {reason}");
        }
    }
    // Who would mount hears it though a source might take an hour.
    let third = daemon.new_mount_point();
    let options = ["--daemon", "other", "-o", "metadata_deadline=1h"];
    let args: Vec<&str> = [&["mount", &url, third.to_str().unwrap()][..], &options].concat();
    let refused = daemon.lookupfs(&args);
    let reason = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    for word in names_it {
        assert!(reason.contains(word), "{word}: {reason}");
    }
    assert!(
        daemon
            .lookupfs(&["warm".as_ref(), "--check".as_ref(), mount.as_os_str()])
            .status
            .success()
    );

    stopped.signal("-CONT");
    assert!(daemon.lookupfs(&["umount", other_text]).status.success());
    assert!(lookupfs_tests::wait_until(Duration::from_secs(20), || {
        lookupfs_tests::has_ended(stopped.0)
    }));
    let log = std::fs::read_to_string(daemon.run_directory().join("other.log")).unwrap();
    for line in ["started", "mounted", "unmounted", "ended"] {
        assert!(log.contains(line), "{line} is missing in {log}");
    }
}

#[test]
fn a_mount_whose_client_gave_up_is_not_made() {
    let tree = Tree::new();
    let mut daemon = Daemon::new();
    daemon.mount(&tree.url(), "");
    let stopped = Stopped(daemon.pid());
    stopped.signal("-STOP");
    let unwanted = daemon.run_directory().with_file_name("unwanted");
    std::fs::create_dir(&unwanted).unwrap();
    let mut client = Command::new(lookupfs_tests::program("lookupfs"))
        .env("LOOKUPFS_RUN_DIR", daemon.run_directory())
        .args(["mount", &tree.url()])
        .arg(&unwanted)
        .spawn()
        .unwrap();
    // It has connected and sent its request once the kernel shows bytes that nobody has read; a moment is enough for that,
    // and where it is not, nothing is mounted either.
    wait_until(Duration::from_secs(1), || false);
    client.kill().unwrap();
    client.wait().unwrap();
    stopped.signal("-CONT");
    // One at a time: this one comes after it.
    daemon.mount(&tree.url(), "");
    let is_mounted = || {
        let table = std::fs::read_to_string("/proc/mounts").unwrap();
        table.contains(unwanted.to_str().unwrap())
    };
    assert!(
        wait_until(Duration::from_secs(10), || !is_mounted()),
        "{}",
        daemon.log()
    );
    assert_eq!(daemon.stats()["mounts"].as_array().unwrap().len(), 2);
}
