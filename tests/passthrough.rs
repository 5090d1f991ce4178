//! Passthrough: complete files are read by the kernel itself, with the right bytes, and only for those who may.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lookupfs_tests::{Daemon, Tree, has_ended, pattern, read_mapped, wait_until};

const PATIENCE: Duration = Duration::from_secs(20);
const FILE_BYTES: usize = 3_000_001;
/// Files that do not fit beside each other in the smallest cache on disk.
const OTHERS: usize = 30;

/// Options of a mount whose cache directory is in `cache`.
fn options(cache: &Path, more: &str) -> String {
    format!("passthrough,cache_dir={}{more}", cache.display())
}

/// Opens with passthrough of the mount number `mount`.
fn passed_through(daemon: &Daemon, mount: usize) -> u64 {
    daemon.count(&format!("/mounts/{mount}/opens/passthrough"))
}

/// Reads the file once through the daemon, then opens it until the kernel reads it by itself: its bytes have been checked
/// by then.
fn make_complete(daemon: &Daemon, mount: usize, path: &Path) -> File {
    fs::read(path).unwrap();
    let before = passed_through(daemon, mount);
    let is_passed = wait_until(PATIENCE, || {
        File::open(path).unwrap();
        passed_through(daemon, mount) > before
    });
    assert!(is_passed, "no passthrough: {}", daemon.stats()["mounts"]);
    File::open(path).unwrap()
}

/// READs that the kernel does while `reading`, and the result.
fn counting_reads<T>(daemon: &Daemon, reading: impl FnOnce() -> T) -> (u64, T) {
    let before = daemon.count("/kernel/reads");
    let result = reading();
    (daemon.count("/kernel/reads") - before, result)
}

#[test]
fn a_complete_file_is_read_without_the_daemon_on_every_mount() {
    let (tree, cache, bytes) = (Tree::new(), tempfile::tempdir().unwrap(), pattern(FILE_BYTES));
    tree.write("f", &bytes);
    let mut daemon = Daemon::new();
    let mounts = daemon.mount_many(&tree.url(), &options(cache.path(), ""), 4);
    let kept = make_complete(&daemon, 0, &mounts[0].join("f"));
    drop(kept);
    for (i, mount) in mounts.iter().enumerate() {
        let file = File::open(mount.join("f")).unwrap();
        assert!(passed_through(&daemon, i) > 0, "mount {i}");
        let (reads, ()) = counting_reads(&daemon, || {
            assert!(fs::read(mount.join("f")).unwrap() == bytes, "read on mount {i}");
            assert!(read_mapped(&file) == bytes, "mmap on mount {i}");
            let mut part = vec![0; 70_000];
            file.read_exact_at(&mut part, 1_234_567).unwrap();
            assert!(part == bytes[1_234_567..][..70_000], "pread on mount {i}");
            assert_eq!(file.read_at(&mut part, FILE_BYTES as u64).unwrap(), 0);
        });
        assert_eq!(reads, 0, "mount {i}");
    }
    assert_eq!(daemon.stats()["mounts"][0]["opens"]["mode"], "passthrough");
}

#[test]
fn a_mount_that_does_not_ask_for_it_opens_without_a_message() {
    let (tree, cache, bytes) = (Tree::new(), tempfile::tempdir().unwrap(), pattern(FILE_BYTES));
    tree.write("f", &bytes);
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &format!("cache_dir={}", cache.path().display()));
    for _ in 0..3 {
        assert!(fs::read(mount.join("f")).unwrap() == bytes);
    }
    assert_eq!(daemon.count("/kernel/opens"), 1);
    assert_eq!(daemon.stats()["mounts"][0]["opens"]["mode"], "no-open");
}

#[test]
fn a_file_that_is_open_when_it_becomes_complete_is_served_as_before_until_it_is_closed() {
    let (tree, cache, bytes) = (Tree::new(), tempfile::tempdir().unwrap(), pattern(FILE_BYTES));
    tree.write("f", &bytes);
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &options(cache.path(), ""));
    let path = mount.join("f");
    let open = File::open(&path).unwrap();
    for _ in 0..20 {
        assert!(fs::read(&path).unwrap() == bytes);
    }
    assert_eq!(passed_through(&daemon, 0), 0);
    drop(open);
    let file = make_complete(&daemon, 0, &path);
    assert!(read_mapped(&file) == bytes);
}

#[test]
fn an_open_file_keeps_its_bytes_when_it_is_replaced_or_its_room_is_wanted_p1() {
    let (tree, cache, old) = (Tree::new(), tempfile::tempdir().unwrap(), pattern(FILE_BYTES));
    tree.write("f", &old);
    for i in 0..OTHERS {
        tree.write(&format!("other{i}"), &pattern(FILE_BYTES + i));
    }
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &options(cache.path(), ",cache_size=64m,ttl=0"));
    let path = mount.join("f");
    let file = make_complete(&daemon, 0, &path);
    for round in 0..2 {
        for i in 0..OTHERS {
            let other = mount.join(format!("other{i}"));
            assert!(
                fs::read(&other).unwrap() == pattern(FILE_BYTES + i),
                "round {round}"
            );
        }
    }
    assert!(
        daemon.count("/cache/disk/used_bytes") <= 64 << 20,
        "{}",
        daemon.stats()["cache"]["disk"]
    );
    assert!(read_mapped(&file) == old, "nothing of an open file is evicted");

    let new: Vec<u8> = old.iter().map(|byte| !byte).collect();
    tree.write("f", &new);
    assert!(fs::read(&path).unwrap() == new, "a new open sees the new version");
    let (reads, ()) = counting_reads(&daemon, || assert!(read_mapped(&file) == old));
    assert_eq!(reads, 0);
}

#[test]
fn a_complete_file_is_passed_through_after_a_crash_and_a_damaged_one_is_not_p7() {
    let (tree, cache, bytes) = (Tree::new(), tempfile::tempdir().unwrap(), pattern(FILE_BYTES));
    tree.write("sound", &bytes);
    tree.write("damaged", &bytes);
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &options(cache.path(), ""));
    for name in ["sound", "damaged"] {
        make_complete(&daemon, 0, &mount.join(name));
    }
    let damaged_id = data_file_of(&mount.join("damaged"), cache.path());
    let pid = daemon.pid();
    assert!(
        Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert!(wait_until(PATIENCE, || has_ended(pid)));
    let damaged = File::options().read(true).write(true).open(&damaged_id).unwrap();
    damaged.write_all_at(&[!bytes[1_000_000]], 1_000_000).unwrap();
    drop(damaged);

    let mount = daemon.mount(&tree.url(), &options(cache.path(), ""));
    let requests = daemon.count("/sources/0/requests/read");
    let opens = || {
        File::open(mount.join("sound")).unwrap();
        passed_through(&daemon, 0)
    };
    assert!(
        wait_until(PATIENCE, || opens() > 0),
        "{}",
        daemon.stats()["mounts"]
    );
    assert!(read_mapped(&File::open(mount.join("sound")).unwrap()) == bytes);
    assert_eq!(
        daemon.count("/sources/0/requests/read"),
        requests,
        "nothing is fetched again"
    );
    let path = mount.join("damaged");
    let found = wait_until(PATIENCE, || {
        File::open(&path).unwrap();
        daemon.count("/cache/disk/corrupt_pages") > 0
    });
    assert!(found, "the damage is found before the kernel may read it");
    let file = make_complete(&daemon, 0, &path);
    assert!(
        read_mapped(&file) == bytes,
        "mended from the source, then passed through"
    );
    assert_eq!(daemon.count("/cache/disk/corrupt_pages"), 1);
}

/// P4.
#[test]
fn what_somebody_does_to_a_verified_file_is_found_before_the_kernel_reads_it() {
    let (tree, cache, bytes) = (Tree::new(), tempfile::tempdir().unwrap(), pattern(FILE_BYTES));
    tree.write("f", &bytes);
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &options(cache.path(), ""));
    let path = mount.join("f");
    drop(make_complete(&daemon, 0, &path));
    let data = data_file_of(&path, cache.path());
    for damage in [
        |data: &File| data.write_all_at(&[0xee; 100], 1_000_000).unwrap(),
        |data: &File| data.set_len(2_000_000).unwrap(),
        |data: &File| {
            data.set_len(0).unwrap();
            data.set_len(FILE_BYTES as u64).unwrap();
        },
    ] {
        damage(&File::options().write(true).open(&data).unwrap());
        let unverified = daemon.count("/mounts/0/opens/unverified");
        let passed = passed_through(&daemon, 0);
        let file = File::open(&path).unwrap();
        assert_eq!(daemon.count("/mounts/0/opens/unverified"), unverified + 1);
        assert_eq!(passed_through(&daemon, 0), passed);
        // Nothing of it comes out of the kernel's pages of an earlier open.
        assert!(read_mapped(&file) == bytes);
        drop(file);
        // Pages that memory has are no reason to write them to the disk again, but for who asks for that.
        let warmed = wait_until(PATIENCE, || {
            let warm = daemon.lookupfs(&["warm".as_ref(), "--all".as_ref(), path.as_os_str()]);
            File::open(&path).unwrap();
            warm.status.success() && passed_through(&daemon, 0) > passed
        });
        assert!(warmed, "no passthrough: {}", daemon.stats()["mounts"]);
        assert!(read_mapped(&File::open(&path).unwrap()) == bytes);
    }
}

/// The data file of the version at `path`, found by the name that the version's ioctl gives.
fn data_file_of(path: &Path, cache: &Path) -> std::path::PathBuf {
    let file = File::open(path).unwrap();
    let mut id = [0u8; 16];
    // SAFETY: the command says that 16 bytes are written to the argument, which has them.
    let got = unsafe {
        libc::ioctl(
            std::os::fd::AsRawFd::as_raw_fd(&file),
            libc::c_ulong::from(lookupfs_fs::fuse::VERSION_IOCTL),
            id.as_mut_ptr(),
        )
    };
    assert_eq!(got, 0, "{}", io::Error::last_os_error());
    let name: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let found = Command::new("find")
        .arg(cache)
        .args(["-name", &format!("{name}*.data")])
        .output()
        .unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    found.trim().into()
}

#[test]
fn where_the_kernel_refuses_a_local_file_everything_works_as_before() {
    let (tree, base, bytes) = (Tree::new(), tempfile::tempdir().unwrap(), pattern(FILE_BYTES));
    tree.write("f", &bytes);
    // The kernel does not pass through to a filesystem that is stacked itself.
    let stacked = Overlay::new(base.path());
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &options(&stacked.merged, ""));
    let is_refused = wait_until(PATIENCE, || {
        assert!(fs::read(mount.join("f")).unwrap() == bytes);
        !daemon.stats()["mounts"][0]["opens"]["refusal"].is_null()
    });
    let opens = daemon.stats()["mounts"][0]["opens"].clone();
    assert!(is_refused, "{opens}");
    assert_eq!(
        (&opens["mode"], &opens["passthrough"]),
        (&"kept".into(), &0.into())
    );
    assert!(fs::read(mount.join("f")).unwrap() == bytes);
    drop(daemon);
}

/// An overlay filesystem, unmounted when it is dropped.
struct Overlay {
    merged: std::path::PathBuf,
}

impl Overlay {
    fn new(base: &Path) -> Overlay {
        let directory = |name: &str| {
            let path = base.join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let (lower, upper, work) = (directory("lower"), directory("upper"), directory("work"));
        let merged = directory("merged");
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let mounted = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &layers])
            .arg(&merged)
            .status()
            .unwrap();
        assert!(mounted.success(), "mount -t overlay: {mounted}");
        Overlay { merged }
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.merged).status();
    }
}

#[test]
fn who_may_not_read_a_file_cannot_through_passthrough_p8() {
    let (tree, cache, bytes) = (Tree::new(), tempfile::tempdir().unwrap(), pattern(FILE_BYTES));
    let path = tree.write("f", &bytes);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut daemon = Daemon::new();
    let more = ",allow_other,default_permissions";
    let mount = daemon.mount(&tree.url(), &options(cache.path(), more));
    let _open = make_complete(&daemon, 0, &mount.join("f"));
    let as_nobody = |path: &Path| {
        let mut cat = Command::new("cat");
        cat.arg(path).uid(65534).gid(65534);
        cat.output().unwrap()
    };
    // The directories on the way are this test's own and private.
    let way = mount.parent().unwrap();
    fs::set_permissions(way, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = as_nobody(&mount.join("f"));
    assert!(!refused.status.success() && refused.stdout.is_empty());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("Permission denied"), "{said}");
    let data = data_file_of(&mount.join("f"), cache.path());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o600);
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(
        !as_nobody(&data).status.success(),
        "nor through the cache directory"
    );
}

#[test]
fn passthrough_without_a_cache_directory_is_refused() {
    let tree = Tree::new();
    let daemon = Daemon::new();
    let point = daemon.new_mount_point();
    let output = daemon.lookupfs(&[
        "mount".as_ref(),
        tree.url().as_ref(),
        point.as_os_str(),
        "-o".as_ref(),
        "passthrough".as_ref(),
    ]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("passthrough") && said.contains("cache_dir"),
        "{said}"
    );
}
