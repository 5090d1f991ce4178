//! Who may ask a daemon, and what others can do to it: nothing.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lookupfs_tests::{Daemon, Tree, wait_until};

use super::{exposition, free_port, scrape};

#[test]
fn the_control_socket_is_for_its_owner() {
    let tree = Tree::new();
    let mut daemon = Daemon::new();
    daemon.mount(&tree.url(), "");
    let directory = daemon.run_directory();
    let socket = directory.join("default.sock");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&directory), mode(&socket)), (0o700, 0o600));
    assert_eq!(ask_as_nobody(&socket), Err(Some(libc::EACCES)));
    // Where somebody has opened the way, the daemon itself still refuses.
    for (path, mode) in [
        (directory.parent().unwrap(), 0o755),
        (&directory, 0o755),
        (&socket, 0o666),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(ask_as_nobody(&socket), Ok(String::new()));
    assert!(
        daemon.log().contains("another user asked the control socket"),
        "{}",
        daemon.log()
    );
    assert!(daemon.count("/pid") > 0, "its owner is answered");
}

/// What a process of another user is answered on the socket: text, or an errno.
fn ask_as_nobody(socket: &Path) -> Result<String, Option<i32>> {
    let socket = socket.to_owned();
    let nobody = std::thread::spawn(move || {
        let id = 65_534;
        // SAFETY: changes the user of this thread alone (the bare system call, not the library's), which ends below.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, id, id, id) };
        assert_eq!(changed, 0, "needs root");
        let errno = |error: std::io::Error| error.raw_os_error();
        let mut stream = UnixStream::connect(socket).map_err(errno)?;
        // The daemon may have hung up already.
        let _ = stream.write_all(b"{\"Stats\":{\"reset\":true}}\n");
        let mut text = String::new();
        match stream.read_to_string(&mut text) {
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => Err(errno(error)),
            _ => Ok(text),
        }
    });
    nobody.join().unwrap()
}

#[test]
fn silent_and_garbage_clients_hold_nobody_up() {
    let tree = Tree::new();
    tree.write("f", b"bytes");
    let port = free_port();
    let mut daemon = Daemon::new();
    let mount = daemon.mount(&tree.url(), &format!("metrics={port}"));
    let socket = daemon.run_directory().join("default.sock");
    let mut clients = Vec::new();
    for number in 0..40 {
        let mut client = UnixStream::connect(&socket).unwrap();
        match number % 3 {
            0 => {}
            1 => client.write_all(b"{\"Stats\":").unwrap(),
            _ => client.write_all(b"\x00\xff garbage\n").unwrap(),
        }
        clients.push(client);
    }
    let scrapers: Vec<_> = (0..6)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    assert!(daemon.count("/pid") > 0);
    exposition::read(&scrape(port));
    assert_eq!(fs::read(mount.join("f")).unwrap(), b"bytes");
    drop((clients, scrapers));
    let open = || {
        fs::read_dir(format!("/proc/{}/fd", daemon.pid()))
            .unwrap()
            .count()
    };
    let before = open();
    for _ in 0..50 {
        UnixStream::connect(&socket).unwrap().write_all(b"x\n").unwrap();
    }
    assert!(
        wait_until(Duration::from_secs(20), || open() <= before),
        "no descriptor stays behind"
    );
}

#[test]
fn silent_clients_that_come_again_do_not_keep_a_scraper_out() {
    let tree = Tree::new();
    let port = free_port();
    let mut daemon = Daemon::new();
    daemon.mount(&tree.url(), &format!("metrics={port}"));
    let is_over = AtomicBool::new(false);
    let cut_off = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let mut silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
                    // Ends when the daemon hangs up, be it with a reset.
                    let _ = silent.read(&mut [0]);
                    cut_off.fetch_add(1, SeqCst);
                }
            });
        }
        // All have their places, or wait for one.
        assert!(wait_until(Duration::from_secs(20), || cut_off.load(SeqCst) > 100));
        let scrapes: Vec<bool> = (0..10)
            .map(|_| is_answered(port, Duration::from_secs(2)))
            .collect();
        is_over.store(true, SeqCst);
        assert_eq!(scrapes, [true; 10], "{} were cut off", cut_off.load(SeqCst));
    });
}

/// Whether a scraper that waits no longer than `patience` gets metrics.
fn is_answered(port: u16, patience: Duration) -> bool {
    let mut scraper = TcpStream::connect(("127.0.0.1", port)).unwrap();
    scraper.set_read_timeout(Some(patience)).unwrap();
    let mut answer = String::new();
    scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").is_ok()
        && scraper.read_to_string(&mut answer).is_ok()
        && answer.contains("lookupfs_uptime_seconds")
}

#[test]
fn a_mount_point_need_not_be_utf8() {
    let tree = Tree::new();
    tree.write("f", b"bytes");
    let mut daemon = Daemon::new();
    daemon.mount(&tree.url(), "");
    let odd = daemon
        .run_directory()
        .with_file_name(OsStr::from_bytes(b"odd\xff"));
    fs::create_dir(&odd).unwrap();
    let url = tree.url();
    let run = |args: &[&OsStr]| {
        let output = daemon.lookupfs(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["mount".as_ref(), url.as_ref(), odd.as_ref()]);
    assert_eq!(fs::read(odd.join("f")).unwrap(), b"bytes");
    let stats = daemon.stats();
    let bytes: Vec<u8> = serde_json::from_value(stats["mounts"][1]["mount_point"].clone()).unwrap();
    assert_eq!(bytes, odd.as_os_str().as_bytes());
    let people = run(&["stats".as_ref(), odd.as_ref(), "--files".as_ref()]);
    assert!(people.contains(" /f\n"), "{people}");
    let metrics = run(&["stats".as_ref(), "--all".as_ref(), "--prometheus".as_ref()]);
    exposition::read(&metrics);
    assert!(metrics.contains(r"odd\\xff"), "{metrics}");
    run(&["umount".as_ref(), odd.as_ref()]);
    assert_eq!(daemon.stats()["mounts"].as_array().unwrap().len(), 1);
}
