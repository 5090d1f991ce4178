//! Sidecars that are written, read by the next run, damaged, crowded out, and that are not there.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::*;

const VERSION: VersionKey = VersionKey::Version([7; 16]);

fn key(offset: u64) -> RecordKey {
    RecordKey {
        kind: RecordKind::Map,
        row_group: 0,
        leaf: 1,
        offset,
        len: 10,
    }
}

fn in_temporary() -> (tempfile::TempDir, Sidecars) {
    let dir = tempfile::tempdir().unwrap();
    let sidecars = Sidecars::open(dir.path()).unwrap();
    (dir, sidecars)
}

fn write(sidecars: &Sidecars, version: &VersionKey, offsets: impl IntoIterator<Item = u64>) {
    let sidecar = sidecars.of(version, 100);
    for offset in offsets {
        sidecar.put(key(offset), || offset.to_le_bytes().to_vec());
    }
    sidecar.flush();
}

fn file_of(dir: &Path, version: &VersionKey) -> PathBuf {
    dir.join(LAYOUT).join(name_of(version))
}

#[test]
fn records_outlive_the_process_that_wrote_them_and_belong_to_one_version() {
    let (dir, sidecars) = in_temporary();
    write(&sidecars, &VERSION, [1, 2]);
    write(&sidecars, &VERSION, [2, 3]);
    let again = Sidecars::open(dir.path()).unwrap();
    let sidecar = again.of(&VERSION, 100);
    for offset in [1u64, 2, 3] {
        assert_eq!(
            sidecar.get(&key(offset)).as_deref(),
            Some(&offset.to_le_bytes()[..])
        );
    }
    assert_eq!(sidecar.get(&key(4)), None);
    assert_eq!(again.of(&VersionKey::Version([8; 16]), 100).get(&key(1)), None);
    // The second writer had found the first one's record: 3 of 48 bytes each.
    let file = file_of(dir.path(), &VERSION);
    assert_eq!(fs::metadata(&file).unwrap().len(), 96 + 3 * 48);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    assert_eq!(
        fs::metadata(dir.path().join(LAYOUT)).unwrap().mode() & 0o777,
        0o700
    );
    assert_eq!(again.damaged(), 0);
}

#[test]
fn two_writers_at_once_find_all_records() {
    let (_dir, sidecars) = in_temporary();
    let (one, other) = (sidecars.of(&VERSION, 100), sidecars.of(&VERSION, 100));
    for offset in 0..20u64 {
        let sidecar = if offset % 2 == 0 { &one } else { &other };
        sidecar.put(key(offset), || offset.to_le_bytes().to_vec());
        sidecar.flush();
        assert_eq!(
            sidecar.get(&key(offset)).as_deref(),
            Some(&offset.to_le_bytes()[..])
        );
    }
    let all = sidecars.of(&VERSION, 100);
    assert!((0..20).all(|offset| all.get(&key(offset)).is_some()));
}

#[test]
fn a_damaged_sidecar_is_taken_away_and_begun_anew() {
    let whole = {
        let (dir, sidecars) = in_temporary();
        write(&sidecars, &VERSION, 0..5);
        fs::read(file_of(dir.path(), &VERSION)).unwrap()
    };
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let cases = [
        ("empty", Vec::new()),
        ("cut in the header", whole[..50].to_vec()),
        ("cut in a record", whole[..whole.len() - 1].to_vec()),
        ("another magic", flipped(0)),
        ("another format", flipped(8)),
        ("another version", flipped(30)),
        ("a length beyond the end", flipped(96 + 8 + 3)),
        ("a payload", flipped(96 + 41)),
        ("behind the end", [&whole[..], b"x"].concat()),
    ];
    for (what, bytes) in cases {
        let (dir, sidecars) = in_temporary();
        let file = file_of(dir.path(), &VERSION);
        fs::write(&file, bytes).unwrap();
        let sidecar = sidecars.of(&VERSION, 100);
        assert!((0..5).all(|offset| sidecar.get(&key(offset)).is_none()), "{what}");
        assert_eq!((sidecars.damaged(), file.exists()), (1, false), "{what}");
        write(&sidecars, &VERSION, 0..5);
        assert_eq!(fs::read(&file).unwrap(), whole, "{what}");
    }
}

#[test]
fn bytes_that_rot_while_the_file_is_open_are_not_believed() {
    let (dir, sidecars) = in_temporary();
    write(&sidecars, &VERSION, [1, 2]);
    let sidecar = sidecars.of(&VERSION, 100);
    let file = file_of(dir.path(), &VERSION);
    let mut bytes = fs::read(&file).unwrap();
    bytes[96 + 40] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_eq!(
        (sidecar.get(&key(1)), sidecar.get(&key(2)).is_some()),
        (None, true)
    );
    fs::remove_file(&file).unwrap();
    assert_eq!(sidecar.get(&key(2)), None);
    // What is made again is kept again, in a new file.
    sidecar.put(key(2), || vec![2; 8]);
    sidecar.flush();
    assert_eq!(sidecar.get(&key(2)), Some(vec![2; 8]));
}

#[test]
fn what_was_used_longest_ago_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let sidecars = Sidecars::holding(dir.path(), 2000).unwrap();
    let version = |number: u8| VersionKey::Version([number; 16]);
    // 5 of 96 + 5 * 48 = 336 bytes fit.
    for number in 0..5 {
        write(&sidecars, &version(number), 0..5);
        let file = fs::File::open(file_of(dir.path(), &version(number))).unwrap();
        let then = SystemTime::now() - Duration::from_secs(1000 - u64::from(number));
        file.set_modified(then).unwrap();
    }
    // Used again: the second is the oldest now.
    drop(sidecars.of(&version(0), 100));
    write(&sidecars, &version(5), 0..5);
    let there: Vec<u8> = (0..6)
        .filter(|n| file_of(dir.path(), &version(*n)).exists())
        .collect();
    assert_eq!(there, [0, 3, 4, 5], "down to three quarters of 2000 bytes");
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(LAYOUT);
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let error = Sidecars::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("chmod go-w"), "{error}");
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "").unwrap();
    assert!(Sidecars::open(dir.path()).is_err());
    assert!(Sidecars::open("/proc/no/such/place").is_err());
}

#[test]
fn a_directory_that_has_gone_costs_nothing_but_warmth() {
    let (dir, sidecars) = in_temporary();
    let sidecar = sidecars.of(&VERSION, 100);
    fs::remove_dir_all(dir.path()).unwrap();
    sidecar.put(key(1), || vec![1]);
    sidecar.flush();
    assert_eq!(sidecar.get(&key(1)), None);
    sidecar.put(key(2), || panic!("nothing is made to be thrown away"));
    sidecar.flush();
}
