//! Which files are remembered: compared with a table that forgets nothing.

use std::time::Instant;

use lookupfs_cache::namespace::Known;
use lookupfs_cache::source::{FileKind, FileStatus};
use lookupfs_cache::version::SourceId;

use super::*;
use crate::inode::Inodes;

fn table() -> Inodes {
    let status = status(FileKind::Directory, 0);
    Inodes::new(SourceId::new("memory://a"), SourcePath::root(), status)
}

fn status(kind: FileKind, len: u64) -> Known<FileStatus> {
    let value = FileStatus {
        kind,
        len,
        mtime_ms: 5,
        tag: 0,
        owner: "o".into(),
        group: "g".into(),
        mode: 0o644,
    };
    Known {
        value,
        asked: Instant::now(),
    }
}

/// Enters `/f{number}`, has `reads` reads of `bytes` served, and lets go of it.
fn read_and_forget(
    inodes: &Inodes,
    forgotten: &ForgottenFiles,
    mount: &Arc<Account>,
    (number, reads, bytes): (usize, usize, usize),
) {
    let path = SourcePath::parse(format!("/f{number}").as_bytes()).unwrap();
    let inode = inodes.enter(&path, status(FileKind::File, 1 << 30)).unwrap();
    for _ in 0..reads {
        inode.usage_on(mount).serve(bytes);
    }
    forgotten.remember(&inodes.forget(inode.number, 1).expect("nobody else holds it"));
}

#[test]
fn the_files_with_most_bytes_stay_and_the_table_stays_small() {
    let (inodes, forgotten, mount) = (table(), ForgottenFiles::default(), Arc::default());
    // Light ones and ties first, the heavy ones among them, so that order does not help.
    for number in 0..10_000 {
        let bytes = if number % 100 == 7 {
            1_000_000 + number
        } else {
            4096
        };
        read_and_forget(&inodes, &forgotten, &mount, (number, 1, bytes));
        assert!(forgotten.0.lock().len() <= 2 * FILES_MAX);
    }
    let top = forgotten.top(inodes.held(), 100, Since::Start);
    let expected: Vec<String> = (0..100).rev().map(|n| format!("/f{}", n * 100 + 7)).collect();
    let shown: Vec<&str> = top.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(shown, expected);
}

#[test]
fn a_file_that_comes_again_goes_on_where_it_was() {
    let (inodes, forgotten, mount) = (table(), ForgottenFiles::default(), Arc::default());
    for _ in 0..3 {
        read_and_forget(&inodes, &forgotten, &mount, (1, 2, 100));
    }
    let path = SourcePath::parse(b"/f1").unwrap();
    let held = inodes.enter(&path, status(FileKind::File, 1 << 30)).unwrap();
    let [file] = &forgotten.top(inodes.held(), 10, Since::Start)[..] else {
        panic!("one file");
    };
    assert_eq!(
        (file.reads, file.served_bytes),
        (6, 600),
        "held, and not read yet"
    );
    held.usage_on(&mount).serve(1);
    let [file] = &forgotten.top(inodes.held(), 10, Since::Start)[..] else {
        panic!("one file");
    };
    assert_eq!((file.reads, file.served_bytes), (7, 601));
    assert_eq!(file.version, held.id.to_string());
}

#[test]
fn what_nobody_has_read_is_not_shown_and_no_more_than_wanted_is() {
    let (inodes, forgotten, mount) = (table(), ForgottenFiles::default(), Arc::default());
    read_and_forget(&inodes, &forgotten, &mount, (1, 0, 0));
    assert_eq!(forgotten.top(inodes.held(), 10, Since::Start), []);
    for number in 0..3000 {
        let path = SourcePath::parse(format!("/f{number}").as_bytes()).unwrap();
        let inode = inodes.enter(&path, status(FileKind::File, 9)).unwrap();
        inode.usage_on(&mount).serve(number);
    }
    assert_eq!(forgotten.top(inodes.held(), 0, Since::Start), []);
    assert_eq!(forgotten.top(inodes.held(), 7, Since::Start)[6].path, "/f2993");
    assert_eq!(
        forgotten.top(inodes.held(), usize::MAX, Since::Start).len(),
        FILES_MAX
    );
}

#[test]
fn a_very_long_path_is_shown_by_its_end() {
    let path = SourcePath::parse("/é".repeat(1000).as_bytes()).unwrap();
    let shown = shown_path(&path);
    assert!(
        shown.len() <= SHOWN_BYTES_MAX + 3 && shown.ends_with("/\\xc3\\xa9"),
        "{shown}"
    );
    let short = SourcePath::parse(b"/a/b").unwrap();
    assert_eq!(shown_path(&short), "/a/b");
}

#[test]
fn a_reset_begins_anew_for_files_that_are_held_and_for_those_let_go_and_the_start_stays_known() {
    let (inodes, forgotten, mount) = (table(), ForgottenFiles::default(), Arc::default());
    read_and_forget(&inodes, &forgotten, &mount, (1, 3, 100));
    let path = SourcePath::parse(b"/f2").unwrap();
    let held = inodes.enter(&path, status(FileKind::File, 9)).unwrap();
    held.usage_on(&mount).serve(50);
    forgotten.reset(inodes.held());
    assert_eq!(forgotten.top(inodes.held(), 10, Since::Reset), []);
    // Each is read again, let go of, and held once more.
    held.usage_on(&mount).serve(7);
    forgotten.remember(&inodes.forget(held.number, 1).unwrap());
    let held = inodes.enter(&path, status(FileKind::File, 9)).unwrap();
    held.usage_on(&mount).serve(2);
    read_and_forget(&inodes, &forgotten, &mount, (1, 1, 5));
    let served = |since| -> Vec<(String, u64, u64)> {
        let top = forgotten.top(inodes.held(), 10, since);
        top.into_iter()
            .map(|file| (file.path, file.reads, file.served_bytes))
            .collect()
    };
    assert_eq!(served(Since::Reset), [("/f2".into(), 2, 9), ("/f1".into(), 1, 5)]);
    assert_eq!(
        served(Since::Start),
        [("/f1".into(), 4, 305), ("/f2".into(), 3, 59)]
    );
}
