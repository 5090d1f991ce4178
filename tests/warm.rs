//! `lookupfs warm` through mounts of a local directory.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use lookupfs_tests::warms::{compare_steps, cost, object, sample, source, try_warm, warm};
use lookupfs_tests::{Daemon, Tree, pattern, program, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_was_warmed_costs_nothing_and_what_was_evicted_costs_again() {
    let tree = Tree::new();
    let bytes = sample();
    fs::create_dir(tree.path().join("t")).unwrap();
    for at in 0..6 {
        tree.write(&format!("t/{at}.parquet"), &bytes);
    }
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=600,memory=256m");
    compare_steps(&daemon, &mount, &bytes, 6);
}

#[test]
fn a_deleted_cache_directory_is_seen_by_the_next_command_and_filled_again_by_it() {
    let (tree, cache) = (Tree::new(), tempfile::tempdir().unwrap());
    tree.write("f", &pattern(1 << 20));
    let mut daemon = Daemon::new();
    let options = format!("cache_dir={}", cache.path().join("c").display());
    let mount = daemon.mount(&tree.url(), &options);
    let pages = warm(&daemon, &["--all"], &[&mount])["pages_on_disk"].clone();
    assert_ne!(pages, 0);
    fs::remove_dir_all(cache.path().join("c")).unwrap();
    let done = warm(&daemon, &["--all", "--check"], &[&mount]);
    assert_eq!(done["pages_on_disk"], 0, "{done}");
    assert_eq!(daemon.count("/cache/disk/lost_directories"), 1);
    let done = warm(&daemon, &["--all"], &[&mount]);
    assert_eq!(done["pages_on_disk"], pages, "{done}");
}

#[test]
fn manifests_are_warmed_whole_and_plain_files_only_by_all() {
    let tree = Tree::new();
    fs::create_dir_all(tree.path().join("t/manifest")).unwrap();
    tree.write("t/manifest/manifest-1", &pattern(300_000));
    tree.write("t/snapshot-7", &pattern(900));
    tree.write("t/empty.parquet", b"");
    tree.write("t/plain.csv", &pattern(200_000));
    std::os::unix::fs::symlink("/", tree.path().join("t/link")).unwrap();
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=600");
    let done = warm(&daemon, &[], &[&mount]);
    assert_eq!(
        (&done["files"], &done["files_plain"]),
        (&4.into(), &2.into()),
        "{done}"
    );
    assert_eq!(
        (&done["bytes"], &done["fetched_bytes"]),
        (&300_900.into(), &300_900.into())
    );
    let manifest = mount.join("t/manifest/manifest-1");
    let read = cost(&daemon, || {
        assert_eq!(fs::read(&manifest).unwrap(), pattern(300_000))
    });
    assert_eq!(read.requests, 0);
    let done = warm(
        &daemon,
        &["--all"],
        &[&mount.join("t/plain.csv"), &mount.join("t/empty.parquet")],
    );
    assert_eq!(done["fetched_bytes"], 200_000);
    let link = try_warm(&daemon, &[], &[&mount.join("t/link")]);
    assert_eq!(link.status.code(), Some(1));
    assert!(errors(&link).contains("symbolic link"), "{}", errors(&link));
}

#[test]
fn what_fails_is_named_and_the_rest_is_done() {
    let tree = Tree::new();
    let bytes = sample();
    for name in ["a.parquet", "b.parquet", "gone.parquet", "replaced.parquet"] {
        tree.write(name, &bytes);
    }
    tree.write("torn.parquet", &pattern(700_000));
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=600");
    let walked = warm(&daemon, &["--check"], &[&mount]);
    assert_eq!(walked["files_unknown"], 5, "{walked}");
    // What was listed is not what is there any more.
    fs::remove_file(tree.path().join("gone.parquet")).unwrap();
    let other = pattern(100_000);
    fs::remove_file(tree.path().join("replaced.parquet")).unwrap();
    tree.write("replaced.parquet", &other);

    let output = try_warm(&daemon, &["--all"], &[&mount, Path::new("/"), &mount.join("no")]);
    assert_eq!(output.status.code(), Some(1));
    let text = errors(&output);
    for word in ["gone.parquet: ", "lookupfs: /: it is not below a mount", "no: "] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let done = object(&output);
    assert_eq!(
        (&done["files_done"], &done["failed"]),
        (&4.into(), &3.into()),
        "{text}"
    );
    let read = cost(&daemon, || {
        assert!(fs::read(mount.join("replaced.parquet")).unwrap() == other);
        assert!(fs::read(mount.join("a.parquet")).unwrap() == bytes);
    });
    assert_eq!(read.requests, 0);

    let output = try_warm(&daemon, &["--columns=id,nowhere"], &[&mount.join("a.parquet")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors(&output).contains("a.parquet: it has no column nowhere"),
        "{}",
        errors(&output)
    );
    let output = try_warm(&daemon, &["--columns=id"], &[&mount.join("torn.parquet")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("no footer"), "{}", errors(&output));
}

#[test]
fn wrong_usage_is_2_and_no_mount_is_1() {
    let daemon = Daemon::new();
    for args in [
        &[][..],
        &["--all", "--metadata", "/m"],
        &["--check", "--evict", "/m"],
        &["--evict", "--columns=a", "/m"],
        &["--parallel=0", "/m"],
        &["--limit=fast", "/m"],
        &["--columns=", "/m"],
    ] {
        let output = daemon.lookupfs(&[&["warm"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", errors(&output));
        assert_eq!(
            errors(&output).lines().count(),
            1,
            "{args:?}: {}",
            errors(&output)
        );
    }
    for args in [
        ["warm", "/"],
        ["warm", "/no/such/path"],
        ["warm", "--files-from=/no/such/list"],
    ] {
        let output = daemon.lookupfs(&args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", errors(&output));
        assert!(errors(&output).contains(&args[1][args[1].find('/').unwrap()..]));
    }
}

#[test]
fn lists_of_paths_come_from_stdin_and_from_files() {
    let tree = Tree::new();
    for name in [&b"a b"[..], b"new\nline", b"\xff", b"plain"] {
        fs::write(tree.path().join(OsStr::from_bytes(name)), pattern(5000)).unwrap();
    }
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=600");
    let list = |names: &[&[u8]], end: u8| {
        let mut list = Vec::new();
        for name in names {
            list.extend_from_slice(mount.as_os_str().as_bytes());
            list.push(b'/');
            list.extend_from_slice(name);
            list.push(end);
        }
        list
    };
    let mut child = Command::new(program("lookupfs"))
        .env("LOOKUPFS_RUN_DIR", daemon.run_directory())
        .args(["warm", "--all", "--json", "-0", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let names = list(&[b"a b", b"new\nline", b"\xff"], 0);
    child.stdin.take().unwrap().write_all(&names).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(object(&output)["fetched_bytes"], 15_000);
    let file = tree.path().with_extension("list");
    fs::write(&file, list(&[b"a b", b"", b"plain"], b'\n')).unwrap();
    let from = format!("--files-from={}", file.display());
    let done = warm(&daemon, &["--all", &from], &[]);
    fs::remove_file(file).unwrap();
    // The empty name is the mount itself: all four once more, and two of them twice.
    assert_eq!(
        (&done["files_done"], &done["fetched_bytes"]),
        (&6.into(), &5000.into())
    );
}

#[test]
fn a_killed_command_ends_the_work_and_the_next_one_goes_on_there() {
    let tree = Tree::new();
    let bytes = pattern(400_000);
    for at in 0..40 {
        tree.write(&format!("f{at}"), &bytes);
    }
    let total = 40 * 400_000;
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=600,log=debug,page_size=64k");
    let mut child = Command::new(program("lookupfs"))
        .env("LOOKUPFS_RUN_DIR", daemon.run_directory())
        .args(["warm", "--all", "--parallel=2", "--limit=1m"])
        .arg(&mount)
        .spawn()
        .unwrap();
    assert!(wait_until(PATIENCE, || source(&daemon).bytes > 500_000));
    child.kill().unwrap();
    child.wait().unwrap();
    let has_ended = || daemon.log().contains("a connection ended early");
    assert!(wait_until(PATIENCE, has_ended), "the daemon goes on alone");
    assert!(wait_until(PATIENCE, || daemon.count("/cache/inflight_bytes") == 0));
    let before = source(&daemon).bytes;
    assert!(before < total / 2, "{before} bytes were fetched by then");
    let done = warm(&daemon, &["--all"], &[&mount]);
    assert_eq!(done["fetched_bytes"], total - before);
    assert_eq!(source(&daemon).bytes, total, "each byte once");
}

#[test]
fn a_daemon_that_ends_is_said_and_so_is_a_mount_that_is_gone() {
    let tree = Tree::new();
    for at in 0..10 {
        tree.write(&format!("f{at}"), &pattern(400_000));
    }
    let mut daemon = Daemon::new();
    let mounts = daemon.mount_many(&tree.url(), "ttl=600", 2);
    let child = Command::new(program("lookupfs"))
        .env("LOOKUPFS_RUN_DIR", daemon.run_directory())
        .args(["warm", "--all", "--limit=200k"])
        .arg(&mounts[0])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(wait_until(PATIENCE, || source(&daemon).bytes > 0));
    // The other mount keeps the daemon; this one is busy, and goes nonetheless.
    let gone = daemon.lookupfs(&["umount".as_ref(), mounts[0].as_os_str()]);
    assert!(gone.status.success(), "{}", errors(&gone));
    let output = try_warm(&daemon, &["--all"], &[&mounts[0].join("f1")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("not below a mount") || errors(&output).contains("No such file"));
    let gone = daemon.lookupfs(&["umount".as_ref(), mounts[1].as_os_str()]);
    assert!(gone.status.success(), "{}", errors(&gone));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors(&output).contains("goes on where it stopped"),
        "{}",
        errors(&output)
    );
}

#[test]
fn evicting_drops_what_the_kernel_keeps_on_every_mount() {
    let tree = Tree::new();
    let bytes = pattern(300_000);
    tree.write("f", &bytes);
    tree.write("other", &bytes);
    let mut daemon = Daemon::new();
    let mounts = daemon.mount_many(&tree.url(), "ttl=600", 2);
    let read = |mount: usize, name: &str| {
        let before = daemon.count("/kernel/reads");
        assert!(fs::read(mounts[mount].join(name)).unwrap() == bytes);
        daemon.count("/kernel/reads") - before
    };
    for mount in [0, 1] {
        for name in ["f", "other"] {
            assert_ne!(read(mount, name), 0, "cold");
            assert_eq!(read(mount, name), 0, "the kernel has it");
        }
    }
    let done = warm(&daemon, &["--evict"], &[&mounts[0].join("f")]);
    assert_ne!(done["pages_dropped"], 0);
    for mount in [0, 1] {
        assert_ne!(read(mount, "f"), 0, "evicted");
        assert_eq!(read(mount, "other"), 0, "not evicted");
    }
}

#[test]
fn two_commands_at_once_and_a_reader_fetch_each_byte_once() {
    let tree = Tree::new();
    let bytes = pattern(1_000_000);
    for at in 0..20 {
        tree.write(&format!("f{at}"), &bytes);
    }
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=600,memory=256m");
    let fetched: u64 = thread::scope(|scope| {
        let warms = [(); 2].map(|()| scope.spawn(|| warm(&daemon, &["--all"], &[&mount])));
        warms
            .into_iter()
            .map(|done| done.join().unwrap()["fetched_bytes"].as_u64().unwrap())
            .sum()
    });
    assert_eq!(fetched, 20_000_000);
    assert_eq!(source(&daemon).bytes, 20_000_000);
    for at in 0..20 {
        assert!(fs::read(mount.join(format!("f{at}"))).unwrap() == bytes);
    }
    assert_eq!(source(&daemon).bytes, 20_000_000);
}

/// P6.
#[test]
fn ten_thousand_small_files_stay_under_the_budget_p6() {
    const MEMORY_BYTES: u64 = 64 << 20;
    const BESIDE_BYTES: u64 = 128 << 20;
    let tree = Tree::new();
    for folder in 0..10 {
        let folder = format!("d{folder}");
        fs::create_dir(tree.path().join(&folder)).unwrap();
        for at in 0..1000 {
            tree.write(&format!("{folder}/manifest-{at}"), &pattern(3000 + at));
        }
    }
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=600,memory=64m");
    let done = warm(&daemon, &["--parallel=32"], &[&mount]);
    assert_eq!(
        (&done["files_done"], &done["failed"]),
        (&10_000.into(), &0.into())
    );
    let bytes: u64 = (0..1000).map(|at| 3000 + at).sum::<u64>() * 10;
    assert_eq!(
        (&done["bytes"], &done["fetched_bytes"]),
        (&bytes.into(), &bytes.into())
    );
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    println!("peak {} MiB resident", peak >> 20);
    assert!(peak <= MEMORY_BYTES + BESIDE_BYTES, "{} MiB", peak >> 20);
    assert_eq!(daemon.count("/cache/inflight_bytes"), 0);
    let listings = daemon.count("/sources/0/requests/list");
    assert_eq!(listings, 11, "one listing a directory");
    let statuses = daemon.count("/sources/0/requests/status");
    assert!(statuses <= 2, "{statuses} statuses: the root's alone");
}
