//! Mounts that cannot be: one line that says what to do, and nothing left behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use lookupfs_tests::{Daemon, program, wait_until};

fn assert_fails(output: &Output, code: i32, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(text.trim_end().lines().count(), 1, "one line: {text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

#[test]
fn a_mount_that_cannot_be_says_what_to_do_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    let source = format!("file://{}", directory.path().display());
    let daemon = Daemon::new();
    let point = daemon.new_mount_point();
    let (point_text, file_text) = (point.to_str().unwrap(), file.to_str().unwrap());
    let mount = |args: &[&str]| daemon.lookupfs(&[&["mount"], args].concat());

    assert_fails(
        &mount(&[&source, "/no/such/place"]),
        1,
        &["/no/such/place", "mkdir -p"],
    );
    assert_fails(&mount(&[&source, file_text]), 1, &["not a directory"]);
    assert_fails(&mount(&[&source, "/proc"]), 1, &["/proc", "unmount it first"]);
    assert_fails(
        &mount(&["file:///no/such/source", point_text]),
        1,
        &["no such directory"],
    );
    assert_fails(
        &mount(&[&format!("file://{file_text}"), point_text]),
        1,
        &["not a directory"],
    );
    assert_fails(&mount(&["s3://bucket/x", point_text]), 2, &["hdfs://"]);
    assert_fails(
        &mount(&["hdfs:/x", point_text]),
        2,
        &["\"hdfs:/x\"", "hdfs://NAMESERVICE/PATH"],
    );
    assert_fails(
        &mount(&[&source, point_text, "-o", "nonsense=1"]),
        2,
        &["nonsense", "--help"],
    );
    assert_fails(
        &mount(&[&source, point_text, "-o", "allow_other"]),
        2,
        &["default_permissions"],
    );
    assert_fails(&mount(&[&source, point_text, point_text]), 1, &["named twice"]);
    assert_fails(&mount(&[&source, point_text, "--daemon", "a/b"]), 2, &["letters"]);
    assert!(!is_mounted(&point));
    assert_eq!(
        mount(&[&source]).status.code(),
        Some(2),
        "a mount point is missing"
    );
}

/// P3.
#[test]
fn an_unreachable_namenode_is_named_within_the_deadline_p3() {
    let daemon = Daemon::new();
    let point = daemon.new_mount_point();
    // Port 1 of loopback: nobody listens.
    let args = [
        "mount",
        "hdfs://127.0.0.1:1/x",
        point.to_str().unwrap(),
        "-o",
        "metadata_deadline=2",
    ];
    assert_fails(&daemon.lookupfs(&args), 1, &["hdfs://127.0.0.1:1", "hadoop_conf"]);
    let says_why = || daemon.log().contains("ended: its first mount was not made");
    assert!(wait_until(Duration::from_secs(20), says_why), "{}", daemon.log());
    // A listener that never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("hdfs://{}/x", silent.local_addr().unwrap());
    let args = [
        "mount",
        &url,
        point.to_str().unwrap(),
        "-o",
        "metadata_deadline=1",
    ];
    assert_fails(
        &daemon.lookupfs(&args),
        1,
        &[&url[..url.len() - 2], "metadata_deadline"],
    );
    assert!(!is_mounted(&point));
}

/// What cannot pass is told after a few tries, and not when the deadline ends: only that says how often it was tried.
#[test]
fn a_namenode_that_cannot_be_there_is_not_waited_for() {
    let daemon = Daemon::new();
    let point = daemon.new_mount_point();
    for (url, reason) in [
        ("hdfs://127.0.0.1:1/x", "refused"),
        ("hdfs://no-such-host.invalid:9000/x", "no host"),
    ] {
        let args = [
            "mount",
            url,
            point.to_str().unwrap(),
            "-o",
            "metadata_deadline=120",
        ];
        assert_fails(
            &daemon.lookupfs(&args),
            1,
            &[reason, "tried 3 times within 3 s", "hadoop_conf"],
        );
        assert!(!is_mounted(&point));
    }
}

#[test]
fn a_busy_mount_point_is_refused_and_the_first_mount_stays() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("f"), b"x").unwrap();
    let source = format!("file://{}", directory.path().display());
    let mut daemon = Daemon::new();
    let point = daemon.mount(&source, "");
    let again = daemon.lookupfs(&["mount", &source, point.to_str().unwrap()]);
    assert_fails(&again, 1, &["fuse.lookupfs", "unmount it first"]);
    assert_eq!(fs::read(point.join("f")).unwrap(), b"x");
    let other = daemon.new_mount_point();
    let differs = daemon.lookupfs(&["mount", &source, other.to_str().unwrap(), "-o", "memory=99m"]);
    let has = daemon.count("/options/memory").to_string();
    assert_fails(&differs, 1, &["memory", &has, "--daemon"]);
}

#[test]
fn options_that_mounts_of_one_source_share_are_refused_where_they_differ() {
    let [directory, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [source, second] = [&directory, &other].map(|tree| format!("file://{}", tree.path().display()));
    let mut daemon = Daemon::new();
    daemon.mount(&second, "");
    let first = daemon.mount(&source, "namenode_rate=5,deadline=20,metadata_deadline=4");
    let point = daemon.new_mount_point();
    let mount = |options: &str| daemon.lookupfs(&["mount", &source, point.to_str().unwrap(), "-o", options]);
    for (differs, has) in [
        ("namenode_rate=6", "namenode_rate=5"),
        ("deadline=30", "deadline=20"),
        ("metadata_deadline=4.5", "metadata_deadline=4"),
    ] {
        assert_fails(&mount(differs), 1, &[has, &source, "--daemon"]);
        assert!(!is_mounted(&point));
    }
    let unmount = |path: &Path| {
        daemon
            .lookupfs(&["umount".as_ref(), path.as_os_str()])
            .status
            .success()
    };
    for agrees in ["namenode_rate=5", "deadline=10", ""] {
        let output = mount(agrees);
        assert!(output.status.success(), "{agrees}: {output:?}");
        assert!(unmount(&point));
    }
    // What the log says is what holds, given or not.
    let line = |path: &Path| {
        let log = daemon.log();
        let of_it = |line: &&str| line.contains(" mounted ") && line.contains(path.to_str().unwrap());
        log.lines().rfind(of_it).unwrap().to_owned()
    };
    let last = line(&point);
    for word in [
        "deadline=20s",
        "metadata_deadline=4s",
        "namenode_rate=5",
        "ttl=5s",
    ] {
        assert!(last.contains(word), "{word}: {last}");
    }
    // Once nobody shows the source, the next mount decides anew.
    assert!(unmount(&first));
    let output = mount("namenode_rate=6,deadline=30");
    assert!(output.status.success(), "{output:?}");
    assert!(line(&point).contains("namenode_rate=6"));
    assert!(unmount(&point));
}

#[test]
fn without_permission_the_command_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::new();
    let point = daemon.new_mount_point();
    let run = tempfile::tempdir_in("/tmp").unwrap();
    // nobody: must be able to reach the program, the source and the mount point, but not to mount.
    for path in [directory.path(), point.parent().unwrap(), &point, run.path()] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let copy = run.path().join("lookupfs");
    fs::copy(program("lookupfs"), &copy).unwrap();
    let output = Command::new(&copy)
        .args([
            "mount",
            &format!("file://{}", directory.path().display()),
            point.to_str().unwrap(),
        ])
        .env("LOOKUPFS_RUN_DIR", run.path().join("run"))
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    assert_fails(&output, 1, &["need root", "sudo"]);
    assert!(!is_mounted(&point));
}

#[test]
fn umount_and_stats_name_what_is_not_there() {
    let daemon = Daemon::new();
    let point = daemon.new_mount_point();
    assert_fails(
        &daemon.lookupfs(&["umount", point.to_str().unwrap()]),
        1,
        &["no lookupfs is mounted", "findmnt"],
    );
    assert_fails(
        &daemon.lookupfs(&["umount", "/proc"]),
        1,
        &["no lookupfs is mounted"],
    );
    assert_fails(&daemon.lookupfs(&["stats", "--all"]), 1, &["no daemon"]);
    assert_fails(
        &daemon.lookupfs(&["stats", point.to_str().unwrap()]),
        1,
        &["no daemon"],
    );
}
