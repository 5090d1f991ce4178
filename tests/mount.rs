//! What a mount of a local directory does, call by call. Promises are named by their numbers in fs/SEMANTICS.md.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use lookupfs_tests::{Daemon, Tree, pattern, read_mapped, wait_until};

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn all_ways_to_read_give_the_same_bytes() {
    let tree = Tree::new();
    let bytes = pattern(3_000_001);
    tree.write("f", &bytes);
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "");
    let path = mount.join("f");
    assert_eq!(fs::read(&path).unwrap(), bytes, "read");
    let mut file = File::open(&path).unwrap();
    assert_eq!(read_mapped(&file), bytes, "mmap");
    let mut part = vec![0; 70_000];
    file.read_exact_at(&mut part, 1_234_567).unwrap();
    assert_eq!(part, bytes[1_234_567..][..70_000], "pread");
    file.seek(SeekFrom::End(-5)).unwrap();
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).unwrap();
    assert_eq!(tail, bytes[bytes.len() - 5..], "lseek");
    assert_eq!(file.read_at(&mut part, 3_000_001).unwrap(), 0, "at the end");

    let direct = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .unwrap();
    let mut page = Aligned([0; 8192]);
    direct.read_exact_at(&mut page.0, 4096).unwrap();
    assert_eq!(page.0[..], bytes[4096..4096 + 8192], "O_DIRECT");

    let copy = tree.path().join("copy");
    let out = File::create(&copy).unwrap();
    let mut sent = 0;
    while sent < bytes.len() {
        let mut offset = sent as libc::off_t;
        // SAFETY: both descriptors are open, and `offset` outlives the call.
        let n = unsafe {
            libc::sendfile(
                out.as_raw_fd(),
                file.as_raw_fd(),
                &raw mut offset,
                bytes.len() - sent,
            )
        };
        assert!(n > 0, "sendfile: {}", io::Error::last_os_error());
        sent += n as usize;
    }
    assert_eq!(fs::read(copy).unwrap(), bytes, "sendfile");
}

#[repr(align(4096))]
struct Aligned([u8; 8192]);

/// P5.
#[test]
fn everything_that_would_write_is_refused_p5() {
    let tree = Tree::new();
    let inside = tree.write("f", b"bytes");
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "");
    let file = mount.join("f");
    let readonly = libc::EROFS;
    assert_eq!(errno(File::create(mount.join("new"))), readonly);
    assert_eq!(errno(File::options().write(true).open(&file)), readonly);
    assert_eq!(errno(File::options().append(true).open(&file)), readonly);
    assert_eq!(errno(fs::remove_file(&file)), readonly);
    assert_eq!(errno(fs::rename(&file, mount.join("g"))), readonly);
    assert_eq!(errno(fs::create_dir(mount.join("d"))), readonly);
    assert_eq!(errno(symlink("f", mount.join("l"))), readonly);
    assert_eq!(errno(fs::hard_link(&file, mount.join("h"))), readonly);
    assert_eq!(
        errno(fs::set_permissions(&file, fs::Permissions::from_mode(0o777))),
        readonly
    );
    let c_path = CString::new(file.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a C string; the call changes nothing else.
    let truncated = unsafe { libc::truncate(c_path.as_ptr(), 0) };
    assert_eq!(
        (truncated, io::Error::last_os_error().raw_os_error()),
        (-1, Some(readonly))
    );
    assert_eq!(fs::read(inside).unwrap(), b"bytes");
}

#[test]
fn stat_shows_the_version_and_statfs_a_constant() {
    let tree = Tree::new();
    let inside = tree.write("f", &pattern(5000));
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o640)).unwrap();
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "page_size=32k");
    let (shown, real) = (
        fs::metadata(mount.join("f")).unwrap(),
        fs::metadata(&inside).unwrap(),
    );
    assert_eq!(shown.len(), 5000);
    assert_eq!(shown.mtime(), real.mtime());
    assert_eq!(
        (shown.uid(), shown.gid(), shown.mode()),
        (real.uid(), real.gid(), 0o100640),
        "P8"
    );
    assert_eq!((shown.blksize(), shown.nlink()), (32 << 10, 1));
    let c_path = CString::new(mount.as_os_str().as_bytes()).unwrap();
    // SAFETY: statvfs is plain data that the call fills.
    let statfs = unsafe {
        let mut statfs: libc::statvfs = std::mem::zeroed();
        assert_eq!(libc::statvfs(c_path.as_ptr(), &raw mut statfs), 0);
        statfs
    };
    assert_eq!(statfs.f_blocks * statfs.f_frsize, 1 << 50);
    assert_eq!((statfs.f_bfree, statfs.f_bavail, statfs.f_namemax), (0, 0, 255));
    let name = CString::new("user.any").unwrap();
    let path = CString::new(mount.join("f").as_os_str().as_bytes()).unwrap();
    // SAFETY: both are C strings, and no buffer is given.
    let got = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    assert_eq!(
        (got, io::Error::last_os_error().raw_os_error()),
        (-1, Some(libc::ENOTSUP))
    );
}

#[test]
fn owners_and_modes_can_be_replaced_p8() {
    let tree = Tree::new();
    tree.write("f", b"x");
    fs::create_dir(tree.path().join("d")).unwrap();
    let mut daemon = Daemon::new();
    let mount = daemon.mount(
        &tree.url(),
        "uid=1234,gid=2345,umask=027,file_mode=644,dir_mode=755",
    );
    let file = fs::metadata(mount.join("f")).unwrap();
    assert_eq!(
        (file.uid(), file.gid(), file.mode() & 0o7777),
        (1234, 2345, 0o640)
    );
    assert_eq!(fs::metadata(mount.join("d")).unwrap().mode() & 0o7777, 0o750);
}

/// `_IOR('L', 1, char[16])`, as fs/SEMANTICS.md documents it.
const VERSION_IOCTL: libc::c_ulong = 0x8010_4C01;

fn version_of(file: &File) -> io::Result<[u8; 16]> {
    let mut id = [0u8; 16];
    // SAFETY: the request writes 16 bytes, which is what `id` has.
    match unsafe { libc::ioctl(file.as_raw_fd(), VERSION_IOCTL as _, id.as_mut_ptr()) } {
        0 => Ok(id),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn a_version_has_one_name_on_every_mount_and_after_a_restart() {
    let tree = Tree::new();
    tree.write("f", b"one");
    let identity = |mount: &Path| {
        let file = File::open(mount.join("f")).unwrap();
        (version_of(&file).unwrap(), file.metadata().unwrap().ino())
    };
    let mut daemon = Daemon::new();
    let mounts = daemon.mount_many(&tree.url(), "ttl=0", 2);
    let first = identity(&mounts[0]);
    assert_eq!(first, identity(&mounts[1]));
    let mut other = Daemon::new();
    assert_eq!(
        first,
        identity(&other.mount(&tree.url(), "")),
        "in another daemon"
    );
    tree.write("f", b"two");
    let second = identity(&mounts[0]);
    assert!(first.0 != second.0 && first.1 != second.1, "{first:?} {second:?}");
    let directory = File::open(&mounts[0]).unwrap();
    assert_eq!(errno(version_of(&directory)), libc::ENOTTY);
}

#[test]
fn symbolic_links_are_the_sources_own() {
    let tree = Tree::new();
    tree.write("f", b"bytes");
    fs::create_dir(tree.path().join("d")).unwrap();
    symlink("f", tree.path().join("l")).unwrap();
    symlink("/etc/hostname", tree.path().join("out")).unwrap();
    symlink("../f", tree.path().join("d/up")).unwrap();
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "");
    assert_eq!(fs::read_link(mount.join("l")).unwrap(), Path::new("f"));
    assert_eq!(fs::read(mount.join("l")).unwrap(), b"bytes");
    assert_eq!(fs::read(mount.join("d/up")).unwrap(), b"bytes");
    assert_eq!(
        fs::read_link(mount.join("out")).unwrap(),
        Path::new("/etc/hostname")
    );
}

#[test]
fn a_listing_costs_one_request_and_the_stats_after_it_none() {
    let tree = Tree::new();
    for i in 0..500 {
        tree.write(&format!("f{i:03}"), b"x");
    }
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=60");
    let before = (
        daemon.count("/sources/0/requests/list"),
        daemon.count("/sources/0/requests/status"),
    );
    let output = std::process::Command::new("ls")
        .arg("-l")
        .arg(&mount)
        .output()
        .unwrap();
    assert_eq!(
        output
            .stdout
            .split(|b| *b == b'\n')
            .filter(|line| line.starts_with(b"-rw"))
            .count(),
        500
    );
    let after = (
        daemon.count("/sources/0/requests/list"),
        daemon.count("/sources/0/requests/status"),
    );
    assert_eq!(
        (after.0 - before.0, after.1 - before.1),
        (1, 0),
        "(listings, statuses)"
    );
    assert!(
        daemon.count("/kernel/lookups") <= 500,
        "a name is looked up at most once"
    );
}

#[test]
fn an_open_directory_shows_one_listing() {
    let tree = Tree::new();
    for i in 0..2000 {
        tree.write(&format!("f{i:04}"), b"x");
    }
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=0");
    let mut open = fs::read_dir(&mount).unwrap();
    let first = open.next().unwrap().unwrap().file_name();
    for i in 0..2000 {
        fs::remove_file(tree.path().join(format!("f{i:04}"))).unwrap();
    }
    tree.write("zzz", b"x");
    let mut names: Vec<_> = open.map(|entry| entry.unwrap().file_name()).collect();
    names.push(first);
    assert_eq!(names.len(), 2000);
    assert_eq!(
        fs::read_dir(&mount).unwrap().count(),
        1,
        "opened again it shows what is there now"
    );
}

#[test]
fn an_open_file_never_shows_another_versions_bytes_p1() {
    let tree = Tree::new();
    let old = pattern(1_000_000);
    tree.write("f", &old);
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=0");
    let path = mount.join("f");
    let file = File::open(&path).unwrap();
    let mut part = vec![0; 4096];
    file.read_exact_at(&mut part, 0).unwrap();
    let new: Vec<u8> = old.iter().map(|byte| !byte).collect();
    tree.write("g", &new);
    fs::rename(tree.path().join("g"), tree.path().join("f")).unwrap();
    assert_eq!(
        fs::read(&path).unwrap(),
        new,
        "P2: a lookup after ttl sees the change"
    );
    file.read_exact_at(&mut part, 0).unwrap();
    assert_eq!(part, old[..4096], "cached bytes of the old version");
    match file.read_exact_at(&mut part, 900_000) {
        Ok(()) => assert_eq!(part, old[900_000..][..4096]),
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ESTALE)),
    }
    assert_eq!(
        file.metadata().unwrap().len(),
        1_000_000,
        "P9: growth is a new inode"
    );
}

/// P9.
#[test]
fn a_file_that_grows_is_a_new_inode_and_the_old_one_keeps_its_length() {
    let tree = Tree::new();
    let inside = tree.write("f", b"first");
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=0");
    let old = File::open(mount.join("f")).unwrap();
    let before = old.metadata().unwrap();
    fs::write(&inside, b"first, second").unwrap();
    let after = fs::metadata(mount.join("f")).unwrap();
    assert_eq!(
        (before.len(), after.len(), old.metadata().unwrap().len()),
        (5, 13, 5)
    );
    assert_ne!(before.ino(), after.ino());
}

#[test]
fn changes_in_place_are_a_new_version_and_the_old_one_is_stale_p1() {
    let tree = Tree::new();
    let inside = tree.write("f", &pattern(500_000));
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=0");
    let file = File::open(mount.join("f")).unwrap();
    file.metadata().unwrap();
    fs::write(&inside, vec![7; 500_000]).unwrap();
    let mut part = vec![0; 4096];
    assert_eq!(errno(file.read_exact_at(&mut part, 300_000)), libc::ESTALE);
    // The kernel reads ahead and then asks for the kernel page alone: one or two requests.
    assert!((1..=2).contains(&daemon.count("/kernel/changed")));
    assert_eq!(fs::read(mount.join("f")).unwrap(), vec![7; 500_000]);
}

#[test]
fn an_open_file_whose_place_was_taken_by_something_else_is_stale_p1() {
    let tree = Tree::new();
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=0");
    for name in ["directory", "link"] {
        let inside = tree.write(name, &pattern(500_000));
        let file = File::open(mount.join(name)).unwrap();
        file.metadata().unwrap();
        fs::remove_file(&inside).unwrap();
        match name {
            "directory" => fs::create_dir(&inside).unwrap(),
            _ => symlink("elsewhere", &inside).unwrap(),
        }
        let mut part = vec![0; 4096];
        assert_eq!(
            errno(file.read_exact_at(&mut part, 300_000)),
            libc::ESTALE,
            "{name}"
        );
    }
}

#[test]
fn new_names_show_within_negative_ttl_and_changes_within_ttl_p2() {
    let tree = Tree::new();
    tree.write("f", b"old");
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=0.3,negative_ttl=0.1");
    assert!(!mount.join("new").exists());
    assert_eq!(fs::read(mount.join("f")).unwrap(), b"old");
    tree.write("new", b"x");
    tree.write("f", b"newer");
    let shows = |name: &str, bytes: &[u8]| fs::read(mount.join(name)).is_ok_and(|shown| shown == bytes);
    // The bounds are the promise's; the patience is for a busy machine.
    assert!(wait_until(Duration::from_secs(10), || shows("new", b"x")));
    assert!(wait_until(Duration::from_secs(10), || shows("f", b"newer")));
}

#[test]
fn immutable_mounts_ask_for_a_name_once_p2() {
    let tree = Tree::new();
    tree.write("f", b"x");
    let mut daemon = Daemon::new();
    let mounts = daemon.mount_many(&tree.url(), "immutable", 3);
    for mount in mounts.iter().chain(&mounts) {
        assert_eq!(fs::read(mount.join("f")).unwrap(), b"x");
    }
    // One for the root when it was mounted, one for the file.
    assert_eq!(daemon.count("/sources/0/requests/status"), 2);
    assert_eq!(
        daemon.count("/sources/0/requests/read"),
        1,
        "one page for three mounts"
    );
}

#[test]
fn names_that_linux_cannot_look_up_are_simply_not_there() {
    let tree = Tree::new();
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "");
    let long = "x".repeat(256);
    let error = errno(fs::metadata(mount.join(long)));
    assert!([libc::ENOENT, libc::ENAMETOOLONG].contains(&error), "{error}");
    let odd = ["new\nline", "tab\t", "\u{feff}", " ", "-rf", "日本語"];
    for name in odd {
        tree.write(name, name.as_bytes());
    }
    for name in odd {
        assert_eq!(fs::read(mount.join(name)).unwrap(), name.as_bytes());
    }
}

#[test]
fn opening_costs_no_message_once_the_kernel_knows() {
    let tree = Tree::new();
    tree.write("f", &pattern(100_000));
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), "ttl=60");
    fs::read(mount.join("f")).unwrap();
    let before = daemon.stats();
    for _ in 0..100 {
        assert_eq!(fs::read(mount.join("f")).unwrap().len(), 100_000);
    }
    let after = daemon.stats();
    for counter in [
        "/kernel/opens",
        "/kernel/reads",
        "/kernel/lookups",
        "/sources/0/requests/read",
    ] {
        assert_eq!(before.pointer(counter), after.pointer(counter), "{counter}");
    }
}
