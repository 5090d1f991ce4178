//! The HDFS source against a real HDFS: the contract, the races and the faults.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hdfs_native::{Client, ClientBuilder, WriteOptions};
use lookupfs_cache::conformance::{Tree, check};
use lookupfs_cache::error::ErrorKind;
use lookupfs_cache::page::ByteRange;
use lookupfs_cache::source::Source;
use lookupfs_cache::source::hdfs::{HdfsOptions, HdfsSource};
use lookupfs_cache::source::open::{SourceOptions, SourceUrl};
use lookupfs_cache::version::{FileVersion, SourcePath};
use lookupfs_tests::hdfs::MiniHdfs;
use lookupfs_tests::own_hdfs::OwnHdfs;

/// The superuser's client, which makes changes.
fn writer(conf: PathBuf) -> Client {
    ClientBuilder::new()
        .with_config_dir(conf.to_str().unwrap())
        .with_user("root")
        .build()
        .unwrap()
}

/// A source that asks as somebody who is not the superuser.
fn reader(conf: PathBuf) -> HdfsSource {
    HdfsSource::new("", &options(conf)).unwrap()
}

fn options(conf: PathBuf) -> HdfsOptions {
    HdfsOptions {
        hadoop_conf: Some(conf),
        user: Some("alice".to_owned()),
        socket_timeout: Duration::from_secs(3),
        metadata_deadline: Duration::from_secs(5),
        read_deadline: Duration::from_secs(30),
        ..HdfsOptions::default()
    }
}

fn path(text: &str) -> SourcePath {
    SourcePath::parse(text.as_bytes()).unwrap()
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).unwrap()
}

async fn version_of(source: &dyn Source, at: &SourcePath) -> FileVersion {
    let status = source.status(at).await.unwrap();
    status.version(source.id(), at)
}

/// Writes a file whole; again from the beginning when it fails, since the client does not retry a write itself.
async fn put(client: &Client, path: &str, bytes: &[u8]) {
    let options = WriteOptions::default().overwrite(true);
    for tries_left in (0..5).rev() {
        let written = async {
            let mut file = client.create(path, &options).await?;
            file.write_bytes(bytes.to_vec().into()).await?;
            file.close().await
        };
        match written.await {
            Ok(()) => return,
            Err(error) if tries_left == 0 => panic!("writing {path}: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

struct HdfsTree {
    client: Client,
    root: SourcePath,
}

impl HdfsTree {
    async fn new(conf: PathBuf, name: &str) -> HdfsTree {
        let client = writer(conf);
        let root = format!("/{name}-{}", std::process::id());
        client.mkdirs(&root, 0o755, true).await.unwrap();
        HdfsTree {
            client,
            root: path(&root),
        }
    }

    /// Modification times are in milliseconds.
    async fn wait_for_a_tick(&self) {
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

#[async_trait]
impl Tree for HdfsTree {
    fn root(&self) -> SourcePath {
        self.root.clone()
    }

    fn block_bytes(&self) -> usize {
        1 << 20
    }

    async fn mkdir(&mut self, path: &SourcePath) {
        let path = path.as_utf8().unwrap();
        self.client.mkdirs(path, 0o755, false).await.unwrap();
    }

    async fn write(&mut self, path: &SourcePath, bytes: &[u8]) {
        self.wait_for_a_tick().await;
        put(&self.client, path.as_utf8().unwrap(), bytes).await;
    }

    async fn append(&mut self, path: &SourcePath, bytes: &[u8]) {
        self.wait_for_a_tick().await;
        let mut file = self.client.append(path.as_utf8().unwrap()).await.unwrap();
        file.write_bytes(bytes.to_vec().into()).await.unwrap();
        file.close().await.unwrap();
    }

    async fn rename(&mut self, from: &SourcePath, to: &SourcePath) {
        let (from, to) = (from.as_utf8().unwrap(), to.as_utf8().unwrap());
        self.client.rename(from, to, false).await.unwrap();
    }

    async fn delete(&mut self, path: &SourcePath) {
        let path = path.as_utf8().unwrap();
        assert!(self.client.delete(path, false).await.unwrap());
    }

    async fn chmod(&mut self, path: &SourcePath, mode: u16) {
        let path = path.as_utf8().unwrap();
        self.client.set_permission(path, u32::from(mode)).await.unwrap();
    }

    fn obeys_modes(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hdfs_conforms() {
    let mut tree = HdfsTree::new(MiniHdfs::from_env().conf, "conformance").await;
    check(&reader(MiniHdfs::from_env().conf), &mut tree).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hdfs_with_all_layers_conforms() {
    let mut tree = HdfsTree::new(MiniHdfs::from_env().conf, "layers").await;
    let options = SourceOptions {
        hdfs: options(MiniHdfs::from_env().conf),
        ..SourceOptions::default()
    };
    let layered = SourceUrl::parse("hdfs:///").unwrap().open(&options).unwrap();
    check(&layered.source, &mut tree).await;
    assert_eq!(layered.counters.counts().in_flight, 0);
}

/// What readers saw: modification time of the version, fill byte of what was read under it.
type Seen = Vec<(u64, u8)>;

/// Looks up, opens and reads until told to stop; also reads again later what it holds open.
async fn read_under_replacement(
    source: Arc<HdfsSource>,
    at: SourcePath,
    stop: Arc<AtomicBool>,
) -> (Seen, u64) {
    let (mut seen, mut changed) = (Vec::new(), 0);
    let mut held = None;
    while !stop.load(Ordering::Relaxed) {
        let Ok(status) = source.status(&at).await else {
            continue;
        };
        let version = status.version(source.id(), &at);
        let file = match source.open(&version).await {
            Ok(file) => file,
            Err(error) => {
                changed += u64::from(error.kind() == ErrorKind::Changed);
                continue;
            }
        };
        for file in [Some(Arc::clone(&file)), held.replace(file)]
            .into_iter()
            .flatten()
        {
            let len = file.version().len();
            let Ok(bytes) = file.read(range(0, len)).await else {
                continue;
            };
            assert_eq!(bytes.len() as u64, len);
            if let Some(first) = bytes.first() {
                assert!(bytes.iter().all(|byte| byte == first), "mixed bytes");
                seen.push((file.version().mtime_ms(), *first));
            }
        }
    }
    (seen, changed)
}

/// Replaces the file 60 times, in turn by an atomic rename and by writing over it, each time by the same number of
/// bytes with another fill byte. Whatever is read under a version must be that version's fill byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_open_that_races_a_replacement_never_gets_the_new_bytes_under_the_old_version() {
    const LEN: usize = 50_000;
    let tree = HdfsTree::new(MiniHdfs::from_env().conf, "race").await;
    let client = tree.client.clone();
    let target = tree.root.join(b"file").unwrap();
    let (target_text, temporary) = (
        target.as_utf8().unwrap().to_owned(),
        format!("{}/temporary", tree.root.as_utf8().unwrap()),
    );
    let source = Arc::new(reader(MiniHdfs::from_env().conf));
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (source, at, stop) = (Arc::clone(&source), target.clone(), Arc::clone(&stop));
            tokio::spawn(read_under_replacement(source, at, stop))
        })
        .collect();
    let mut fill_at: HashMap<u64, u8> = HashMap::new();
    for round in 0..60_u8 {
        tree.wait_for_a_tick().await;
        let fill = vec![round + 1; LEN];
        let by_rename = round % 2 == 0;
        let written = if by_rename { &temporary } else { &target_text };
        put(&client, written, &fill).await;
        let mtime = client.get_file_info(written).await.unwrap().modification_time;
        assert_eq!(
            fill_at.insert(mtime, round + 1),
            None,
            "two versions in one millisecond"
        );
        if by_rename {
            client.rename(&temporary, &target_text, true).await.unwrap();
        }
    }
    stop.store(true, Ordering::Relaxed);
    let (mut reads, mut changes) = (0, 0);
    for reader in readers {
        let (seen, changed) = reader.await.unwrap();
        changes += changed;
        reads += seen.len();
        for (mtime, fill) in seen {
            // Written over in place, a file can be whole before it is closed: a version of its own that only readers
            // have seen. Then its first reader says which bytes it has.
            let is_final = fill_at.contains_key(&mtime);
            assert!(
                is_final || fill % 2 == 0,
                "a file moved into place has one modification time"
            );
            let expected = *fill_at.entry(mtime).or_insert(fill);
            assert_eq!(
                fill, expected,
                "bytes of another version under modification time {mtime}"
            );
        }
    }
    eprintln!("{reads} reads, {changes} opens met a replacement");
    assert!(
        reads > 60 && changes > 0,
        "{reads} reads, {changes} changes: no race"
    );
}

/// The number of NameNode requests is counted by the NameNode itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_is_two_requests_and_a_read_is_none() {
    let hdfs = OwnHdfs::start(&["-d", "1"]);
    let client = writer(hdfs.conf());
    put(&client, "/counted", &[5; 100_000]).await;
    let source = reader(hdfs.conf());
    let at = path("/counted");
    let version = version_of(&source, &at).await;
    let count = |mark: &str, command: &str| -> u64 {
        let command = format!("cmd={command}");
        let since = ["audit", "count", "--since", mark, "ugi=alice*", &command];
        hdfs.run(&since).trim().parse().unwrap()
    };
    let mark = hdfs.run(&["audit", "mark"]);
    let mark = mark.trim();
    let file = source.open(&version).await.unwrap();
    for start in 0..20 {
        file.read(range(start, start + 1000)).await.unwrap();
    }
    assert_eq!((count(mark, "open"), count(mark, "getfileinfo")), (1, 1));
    source.list(&SourcePath::root()).await.unwrap();
    assert_eq!(count(mark, "listStatus"), 1);
}

/// P9.
#[tokio::test(flavor = "multi_thread")]
async fn a_last_block_that_is_being_written_is_an_error_and_never_zeros() {
    let tree = HdfsTree::new(MiniHdfs::from_env().conf, "unfinished").await;
    let at = tree.root.join(b"file").unwrap();
    let text = at.as_utf8().unwrap();
    let mut file = tree.client.create(text, WriteOptions::default()).await.unwrap();
    // One whole HDFS block of the test's HDFS, and part of a second one.
    const LEN: usize = (1 << 20) + 70_000;
    file.write_bytes(vec![9; LEN].into()).await.unwrap();
    file.hsync().await.unwrap();
    let source = reader(MiniHdfs::from_env().conf);
    let status = source.status(&at).await.unwrap();
    assert!(
        status.len >= 1 << 20,
        "the first HDFS block is visible: {}",
        status.len
    );
    let held = source.open(&status.version(source.id(), &at)).await.unwrap();
    match held.read(range(0, status.len)).await {
        Ok(bytes) => assert!(bytes.iter().all(|byte| *byte == 9) && bytes.len() as u64 == status.len),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            assert!(error.to_string().contains("being written"), "{error}");
        }
    }
    file.close().await.unwrap();
    let version = version_of(&source, &at).await;
    let file = source.open(&version).await.unwrap();
    assert_eq!(file.read(range(0, LEN as u64)).await.unwrap(), vec![9; LEN]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acl_takes_away_what_its_mask_would_show_as_group_bits() {
    let tree = HdfsTree::new(MiniHdfs::from_env().conf, "acl").await;
    let at = tree.root.join(b"file").unwrap();
    let text = at.as_utf8().unwrap();
    put(&tree.client, text, b"1").await;
    tree.client.set_permission(text, 0o640).await.unwrap();
    let entry = hdfs_native::acl::AclEntry::new("user", "access", "rw-", Some("bob".to_owned()));
    tree.client.modify_acl_entries(text, vec![entry]).await.unwrap();
    let source = HdfsSource::new(
        "",
        &HdfsOptions {
            ask_acls: true,
            ..options(MiniHdfs::from_env().conf)
        },
    )
    .unwrap();
    let status = source.status(&at).await.unwrap();
    // On Hadoop 2, which marks the file, nobody asks, and the group gets nothing.
    assert!(matches!(status.mode, 0o640 | 0o600), "mode {:o}", status.mode);
    let listing = source.list(&tree.root).await.unwrap();
    assert_eq!(listing.find(b"file").unwrap().status, status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_namenode_ends_in_time_and_is_used_again_when_it_speaks() {
    let hdfs = OwnHdfs::start(&["-d", "1"]);
    put(&writer(hdfs.conf()), "/file", b"12345").await;
    let source = reader(hdfs.conf());
    let at = path("/file");
    let version = version_of(&source, &at).await;
    let file = source.open(&version).await.unwrap();
    // A client's first read asks the NameNode once how to talk to DataNodes.
    assert_eq!(&file.read(range(0, 1)).await.unwrap()[..], b"1");
    hdfs.run(&["pause-nn", "0"]);
    // A thread that is just running may still answer.
    let mut tries = 0..10;
    while source.status(&at).await.is_ok() {
        assert!(tries.next().is_some(), "the NameNode answers though it is paused");
    }
    let begun = Instant::now();
    let answers = [
        source.status(&at).await.map(drop),
        source.list(&at.parent()).await.map(drop),
        source.open(&version).await.map(drop),
    ];
    let waited = begun.elapsed();
    for answer in answers {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::TimedOut);
    }
    assert!(waited < options(hdfs.conf()).metadata_deadline * 3, "{waited:?}");
    assert_eq!(
        &file.read(range(0, 5)).await.unwrap()[..],
        b"12345",
        "reads need no NameNode"
    );
    hdfs.run(&["resume-nn", "0"]);
    assert_eq!(version_of(&source, &at).await, version);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_active_namenode_is_left_for_the_one_that_took_over() {
    let hdfs = OwnHdfs::start(&["-d", "1", "--ha"]);
    put(&writer(hdfs.conf()), "/file", b"12345").await;
    let source = reader(hdfs.conf());
    let at = path("/file");
    let version = version_of(&source, &at).await;
    hdfs.run(&["pause-nn", "0"]);
    hdfs.run(&["haadmin", "-transitionToActive", "--forceactive", "nn1"]);
    assert_eq!(
        version_of(&source, &at).await,
        version,
        "within one call's deadline"
    );
    let file = source.open(&version).await.unwrap();
    assert_eq!(&file.read(range(0, 5)).await.unwrap()[..], b"12345");
    hdfs.run(&["resume-nn", "0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_file_is_read_again_after_its_datanode_came_back() {
    let hdfs = OwnHdfs::start(&["-d", "1"]);
    put(&writer(hdfs.conf()), "/file", &[3; 200_000]).await;
    let source = reader(hdfs.conf());
    let version = version_of(&source, &path("/file")).await;
    let file = source.open(&version).await.unwrap();
    assert_eq!(file.read(range(0, 100)).await.unwrap(), vec![3; 100]);
    hdfs.run(&["kill-dn", "0"]);
    let error = file.read(range(100, 200_000)).await.unwrap_err();
    assert!(error.kind().is_transient(), "{error:?}");
    hdfs.run(&["start-dn", "0"]);
    hdfs.run(&["wait"]);
    assert_eq!(file.read(range(100, 200_000)).await.unwrap(), vec![3; 199_900]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datanode_that_hangs_costs_one_socket_timeout_and_not_the_read() {
    let hdfs = OwnHdfs::start(&["-d", "3"]);
    put(&writer(hdfs.conf()), "/file", &[4; 200_000]).await;
    let source = reader(hdfs.conf());
    let version = version_of(&source, &path("/file")).await;
    let file = source.open(&version).await.unwrap();
    hdfs.run(&["pause-dn", "0"]);
    hdfs.run(&["pause-dn", "1"]);
    assert_eq!(file.read(range(0, 200_000)).await.unwrap(), vec![4; 200_000]);
    hdfs.run(&["resume-dn", "0"]);
    hdfs.run(&["resume-dn", "1"]);
}

/// P4.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_replica_is_passed_over_and_damaged_bytes_are_never_read() {
    let hdfs = OwnHdfs::start(&["-d", "1"]);
    put(&writer(hdfs.conf()), "/file", &[6; 100_000]).await;
    let source = reader(hdfs.conf());
    let version = version_of(&source, &path("/file")).await;
    let file = source.open(&version).await.unwrap();
    hdfs.damage_replicas();
    let error = file.read(range(0, 100_000)).await.unwrap_err();
    eprintln!("{error:?}");
    assert!(matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::Corrupt
    ));
}

#[tokio::test]
async fn a_namenode_that_is_not_there_is_unavailable_in_time() {
    let options = HdfsOptions {
        metadata_deadline: Duration::from_secs(3),
        ..HdfsOptions::default()
    };
    let source = HdfsSource::new("127.0.0.1:1", &options).unwrap();
    let error = source.status(&SourcePath::root()).await.unwrap_err();
    assert!(error.kind().is_transient(), "{error:?}");
}
