//! How daemons and their mounts come, share and go.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use lookupfs_fs::control::MountRequest;
use lookupfs_fs::options::{DaemonOptions, MountOptions};
use lookupfs_tests::{Daemon, Tree, has_ended, pattern, wait_until};

#[test]
fn mounts_of_one_daemon_share_one_cache_and_it_ends_with_the_last() {
    let tree = Tree::new();
    tree.write("f", &pattern(100_000));
    let mut daemon = Daemon::new();
    let first = daemon.mount(&tree.url(), "");
    let second = daemon.mount(&tree.url(), "");
    let pid = daemon.pid();
    fs::read(first.join("f")).unwrap();
    let reads = daemon.count("/sources/0/requests/read");
    assert_eq!(fs::read(second.join("f")).unwrap(), pattern(100_000));
    assert_eq!(
        daemon.count("/sources/0/requests/read"),
        reads,
        "the second mount was served from memory"
    );
    for mount in [&first, &second] {
        assert!(
            daemon
                .lookupfs(&["umount".as_ref(), mount.as_os_str()])
                .status
                .success()
        );
    }
    assert!(wait_until(Duration::from_secs(10), || has_ended(pid)));
}

#[test]
fn a_directory_that_is_made_anew_is_shown_by_a_daemon_that_went_on() {
    let (stays, comes_again) = (Tree::new(), Tree::new());
    stays.write("f", b"x");
    comes_again.write("f", b"old");
    let mut daemon = Daemon::new();
    daemon.mount(&stays.url(), "");
    let first = daemon.mount(&comes_again.url(), "");
    assert_eq!(fs::read(first.join("f")).unwrap(), b"old");
    let unmounted = daemon.lookupfs(&["umount".as_ref(), first.as_os_str()]);
    assert!(unmounted.status.success());
    fs::remove_dir_all(comes_again.path()).unwrap();
    fs::create_dir(comes_again.path()).unwrap();
    comes_again.write("f", b"new");
    let second = daemon.mount(&comes_again.url(), "");
    assert_eq!(fs::read(second.join("f")).unwrap(), b"new");
}

#[test]
fn sigterm_unmounts_also_with_open_files() {
    let tree = Tree::new();
    tree.write("f", b"x");
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "");
    let _open = File::open(mount.join("f")).unwrap();
    let pid = daemon.pid();
    assert!(
        std::process::Command::new("kill")
            .arg(pid.to_string())
            .status()
            .unwrap()
            .success()
    );
    assert!(wait_until(Duration::from_secs(20), || has_ended(pid)));
    assert_eq!(
        fs::read_dir(&mount).unwrap().count(),
        0,
        "the directory below shows again"
    );
}

#[test]
fn the_log_says_of_which_mount_it_speaks_and_why_one_went() {
    let tree = Tree::new();
    let path = tree.write("f", &pattern(1 << 20));
    let mut daemon = Daemon::new();
    let [first, second] = [(); 2].map(|()| daemon.mount(&tree.url(), ""));
    let open = File::open(second.join("f")).unwrap();
    fs::write(&path, b"another").unwrap();
    let error = open.read_at(&mut [0; 16], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    drop(open);
    assert!(
        daemon
            .lookupfs(&["umount".as_ref(), first.as_os_str()])
            .status
            .success()
    );
    let pid = daemon.pid().to_string();
    assert!(
        std::process::Command::new("kill")
            .arg(&pid)
            .status()
            .unwrap()
            .success()
    );
    let ended = || daemon.log().trim_end().ends_with("ended");
    assert!(wait_until(Duration::from_secs(20), ended), "{}", daemon.log());
    let log = daemon.log();
    let has = |words: [&str; 3]| {
        let is_it = |line: &str| words.iter().all(|word| line.contains(word));
        assert!(log.lines().any(is_it), "{words:?} in {log}");
    };
    has(["answered an error", "mount=", second.to_str().unwrap()]);
    has([
        " unmounted ",
        first.to_str().unwrap(),
        "by a command, or by the kernel",
    ]);
    has([" unmounted ", second.to_str().unwrap(), "SIGTERM"]);
}

#[test]
fn what_a_killed_daemon_left_is_taken_away_by_the_next_mount() {
    let tree = Tree::new();
    tree.write("f", b"x");
    let mut daemon = Daemon::new();
    // The kernel knows the root's attributes for good: a `stat` would not notice that the daemon is dead.
    let mount = daemon.mount(&tree.url(), "immutable");
    fs::metadata(&mount).unwrap();
    let pid = daemon.pid();
    assert!(
        std::process::Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert!(wait_until(Duration::from_secs(10), || errno_of(&mount.join("f"))
        == Some(libc::ENOTCONN)));
    let stats = daemon.lookupfs(&["stats".as_ref(), mount.as_os_str()]);
    assert!(String::from_utf8_lossy(&stats.stderr).contains("its daemon has died, and mounting it again"));
    let args = ["mount".as_ref(), tree.path().as_os_str(), mount.as_os_str()];
    let again = daemon.lookupfs(&args);
    assert!(
        again.status.success(),
        "{}",
        String::from_utf8_lossy(&again.stderr)
    );
    assert_eq!(fs::read(mount.join("f")).unwrap(), b"x");
    // Any path of a mount names it.
    let stats = daemon.lookupfs(&["stats".as_ref(), mount.join("f").as_os_str()]);
    assert!(stats.status.success());
}

#[test]
fn a_mount_right_after_the_last_unmount_finds_a_daemon() {
    let tree = Tree::new();
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "");
    let args = ["mount".as_ref(), tree.path().as_os_str(), mount.as_os_str()];
    for round in 0..100 {
        let unmounted = daemon.lookupfs(&["umount".as_ref(), mount.as_os_str()]);
        assert!(unmounted.status.success(), "round {round}: {unmounted:?}");
        let mounted = daemon.lookupfs(&args);
        assert!(mounted.status.success(), "round {round}: {mounted:?}");
    }
}

#[test]
fn a_daemon_holds_nothing_that_its_caller_had_open() {
    let tree = Tree::new();
    let daemon = Daemon::new();
    let mount = daemon.new_mount_point();
    // The shell waits for the end of a pipe, which the daemon has as its descriptor 9 if it inherits.
    let shell = std::process::Command::new("bash")
        .args(["-c", r#"{ "$0" mount "$1" "$2" 9>&1 >/dev/null; } | cat"#])
        .arg(lookupfs_tests::program("lookupfs"))
        .args([tree.path(), &mount])
        .env("LOOKUPFS_RUN_DIR", daemon.run_directory())
        .spawn()
        .unwrap();
    let shell = std::cell::RefCell::new(shell);
    let ended = wait_until(Duration::from_secs(20), || {
        shell.borrow_mut().try_wait().unwrap().is_some()
    });
    let unmounted = daemon.lookupfs(&["umount".as_ref(), mount.as_os_str()]);
    assert!(unmounted.status.success(), "{unmounted:?}");
    assert!(ended, "the daemon keeps the pipe open");
    shell.borrow_mut().wait().unwrap();
}

fn errno_of(path: &Path) -> Option<i32> {
    fs::metadata(path).err().and_then(|error| error.raw_os_error())
}

/// P2.
#[test]
fn after_sighup_the_next_lookups_ask_the_source_whatever_the_kernel_knows() {
    let tree = Tree::new();
    tree.write("f", b"old");
    fs::create_dir(tree.path().join("d")).unwrap();
    tree.write("d/g", b"old");
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=600,negative_ttl=1");
    let read = |name: &str| fs::read(mount.join(name)).unwrap();
    assert_eq!((read("f"), read("d/g")), (b"old".to_vec(), b"old".to_vec()));
    for name in ["f", "d/g"] {
        tree.write("new", b"newer");
        fs::rename(tree.path().join("new"), tree.path().join(name)).unwrap();
    }
    assert_eq!(
        (read("f"), read("d/g")),
        (b"old".to_vec(), b"old".to_vec()),
        "within ttl"
    );
    let pid = daemon.pid().to_string();
    let hup = std::process::Command::new("kill").args(["-HUP", &pid]).status();
    assert!(hup.unwrap().success());
    for name in ["f", "d/g"] {
        let patience = Duration::from_secs(10);
        assert!(wait_until(patience, || read(name) == b"newer"), "{name}");
    }
}

#[test]
fn a_mount_that_would_not_be_seen_where_it_is_asked_for_is_refused() {
    let tree = Tree::new();
    let mut daemon = Daemon::new();
    daemon.mount(&tree.url(), "");
    let mount_point = daemon.new_mount_point();
    let output = std::process::Command::new("unshare")
        .arg("--mount")
        .arg(lookupfs_tests::program("lookupfs"))
        .arg("mount")
        .arg(tree.url())
        .arg(&mount_point)
        .env("LOOKUPFS_RUN_DIR", daemon.run_directory())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("is in another mount namespace") && errors.contains("--daemon NAME"),
        "{errors}"
    );
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(mount_point.to_str().unwrap()));
}

#[test]
fn a_mount_whose_client_gives_up_while_it_is_made_is_undone() {
    let (tree, directory) = (Tree::new(), tempfile::tempdir().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let options = DaemonOptions {
        memory: 16 << 20,
        ..DaemonOptions::default()
    };
    let daemon =
        lookupfs_fs::daemon::Daemon::new("undone", options.clone(), runtime.handle().clone()).unwrap();
    let mut points: Vec<_> = ["a", "b"]
        .iter()
        .map(|name| directory.path().join(name))
        .collect();
    points.iter().for_each(|point| fs::create_dir(point).unwrap());
    let request = MountRequest {
        source: tree.url(),
        mount_points: std::mem::take(&mut points),
        options: MountOptions::default(),
        daemon: options,
        given: Vec::new(),
        given_for_source: Vec::new(),
        mount_namespace: None,
    };
    let mounted = || {
        let table = fs::read_to_string("/proc/mounts").unwrap();
        table.matches(directory.path().to_str().unwrap()).count()
    };
    // Whoever asked waits when the work begins, and has gone when all is made.
    let seen = std::sync::Mutex::new(Vec::new());
    let is_wanted = || {
        let mut seen = seen.lock().unwrap();
        seen.push(mounted());
        seen.len() == 1
    };
    let error = daemon.mount(&request, &is_wanted).unwrap_err();
    assert!(error.contains("has gone"), "{error}");
    assert_eq!(*seen.lock().unwrap(), [0, 2], "both were made");
    assert_eq!(
        (mounted(), daemon.stats().mounts.len()),
        (0, 0),
        "both are undone"
    );
}
