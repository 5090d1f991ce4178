//! The disk tier behind the memory tier: right bytes, kept over restarts, whatever happens to the files. P4, P6, P7.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::double::Fixture;
use crate::config::CacheConfig;
use crate::disk::{CompleteFile, DiskConfig, DiskStats, Rest};
use crate::page::{ByteRange, PageSize};
use crate::version::FileVersion;

mod complete;
mod pace;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A directory for the tier, and what it may take.
struct Place {
    directory: TempDir,
    config: DiskConfig,
}

impl Place {
    fn new(cache_bytes: u64) -> Place {
        let directory = tempfile::tempdir().unwrap();
        let config = DiskConfig {
            cache_dir: directory.path().to_owned(),
            cache_bytes: Some(cache_bytes),
            owner: "test".to_owned(),
        };
        Place { directory, config }
    }

    fn open(&self) -> Fixture {
        Fixture::with_disk(CacheConfig::default(), &self.config)
    }

    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for folder in fs::read_dir(self.directory.path().join("lookupfs-1")).unwrap() {
            let folder = folder.unwrap().path();
            if folder.is_dir() {
                let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
                found.extend(files.filter(|file| file.extension().is_some_and(|it| it == extension)));
            }
        }
        found.sort();
        found
    }

    /// Bytes that the file system has given to the tier's files.
    fn allocated(&self) -> u64 {
        let all = self.files("data").into_iter().chain(self.files("map"));
        all.map(|path| fs::metadata(path).unwrap().blocks() * 512).sum()
    }
}

fn disk(fixture: &Fixture) -> DiskStats {
    fixture.cache.stats().disk.unwrap()
}

async fn read_all(fixture: &Fixture, file: &std::sync::Arc<FileVersion>) {
    let mut at = 0;
    while at < file.len() {
        fixture.read(file, at, 128 * KIB).await;
        let range = ByteRange::clamped(at, 128 * KIB, file.len());
        fixture.cache.bring_to_disk(file, range).await;
        at += 128 * KIB;
    }
    fixture.settle().await;
    fixture.cache.settle_disk().await;
}

async fn complete_file(fixture: &Fixture, file: &FileVersion) -> CompleteFile {
    let verified = async {
        loop {
            if let Ok(complete) = fixture.cache.complete_file(file) {
                return complete;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), verified)
        .await
        .unwrap()
}

/// Flips one bit of the byte at `at`.
fn damage(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_finds_everything_on_disk_and_asks_the_source_nothing_p7() {
    let place = Place::new(64 * MIB);
    let fixture = place.open();
    let files = [
        fixture.add_random("/a.bin", 3_000_001),
        fixture.add_random("/b.bin", 1),
        fixture.add_random("/c.bin", 16 << 10),
    ];
    for file in &files {
        read_all(&fixture, file).await;
    }
    let asked = fixture.log().bytes();
    let all: u64 = files.iter().map(|file| file.len()).sum();
    assert_eq!(asked, all, "each byte was asked for once");
    let fixture = fixture.restarted(CacheConfig::default(), &place.config);
    fixture.log().reset();
    for file in &files {
        read_all(&fixture, file).await;
    }
    assert_eq!(fixture.log().requests(), 0, "{:?}", disk(&fixture));
    let stats = disk(&fixture);
    let pages: u64 = files.iter().map(|file| file.len().div_ceil(16 * KIB)).sum();
    assert_eq!((stats.data.hits, stats.misses, stats.pages), (pages, 0, pages));
    assert_eq!(stats.corrupt_pages, 0);
    // Promoted: the second time nothing is asked of the disk either.
    for file in &files {
        read_all(&fixture, file).await;
    }
    assert_eq!(disk(&fixture).data.hits, pages);
}

#[tokio::test(flavor = "multi_thread")]
async fn footers_survive_a_restart_with_their_kind_p7() {
    let place = Place::new(64 * MIB);
    let fixture = place.open();
    let nested: &[u8] = include_bytes!("../../../tests/data/nested.parquet");
    let file = fixture.add("/t/a.parquet", nested);
    let footer = |fixture: &Fixture| {
        let at = file.len() - 8;
        let file = file.clone();
        let range = ByteRange::clamped(at, 8, file.len());
        let (cache, source) = (fixture.cache.clone(), fixture.source.clone());
        async move { cache.read(&source, &file, range).await.unwrap() }
    };
    footer(&fixture).await;
    fixture.settle().await;
    fixture.cache.settle_disk().await;
    let before = disk(&fixture);
    assert!(before.metadata.used_bytes > 0, "{before:?}");
    let fixture = fixture.restarted(CacheConfig::default(), &place.config);
    fixture.log().reset();
    footer(&fixture).await;
    fixture.read(&file, 140_218, file.len() - 140_218).await;
    assert_eq!(fixture.log().requests(), 0);
    let stats = fixture.cache.stats();
    assert_eq!(
        stats.disk.unwrap().metadata.used_bytes,
        before.metadata.used_bytes
    );
    assert!(stats.metadata.memory_bytes > 0, "promoted as metadata: {stats:?}");
    assert!(stats.disk.unwrap().metadata.hits > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_is_one_corrupt_page_and_right_bytes_p4() {
    let place = Place::new(64 * MIB);
    let fixture = place.open();
    let file = fixture.add_random("/a.bin", 1 << 20);
    read_all(&fixture, &file).await;
    let fixture = fixture.restarted(CacheConfig::default(), &place.config);
    damage(&place.files("data")[0], 500_000);
    fixture.log().reset();
    read_all(&fixture, &file).await;
    assert_eq!(disk(&fixture).corrupt_pages, 1);
    assert_eq!(fixture.log().bytes(), 16 * KIB, "one page is fetched again");
    let fixture = fixture.restarted(CacheConfig::default(), &place.config);
    fixture.log().reset();
    read_all(&fixture, &file).await;
    assert_eq!(
        (fixture.log().requests(), disk(&fixture).corrupt_pages),
        (0, 0),
        "mended"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn several_damaged_pages_of_one_read_are_all_mended_p4() {
    let place = Place::new(64 * MIB);
    let fixture = place.open();
    let file = fixture.add_random("/a.bin", 1 << 20);
    read_all(&fixture, &file).await;
    // In one run and in another: page 8 is not read from disk.
    for page in [1, 2, 5, 11] {
        damage(&place.files("data")[0], page * 16 * KIB + 77);
    }
    fixture.cache.clear();
    fixture.read(&file, 8 * 16 * KIB, 1).await;
    fixture.read(&file, 0, 256 * KIB).await;
    fixture.settle().await;
    fixture.cache.settle_disk().await;
    assert_eq!(disk(&fixture).corrupt_pages, 4);
    fixture.cache.clear();
    fixture.log().reset();
    read_all(&fixture, &file).await;
    assert_eq!((fixture.log().requests(), disk(&fixture).corrupt_pages), (0, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_done_to_a_map_reads_give_the_right_bytes_p7() {
    let seed = 0x5eed_a3a9;
    println!("seed {seed:#x}");
    let mut random = StdRng::seed_from_u64(seed);
    let place = Place::new(64 * MIB);
    let mut fixture = place.open();
    let file = fixture.add_random("/a.bin", 1 << 20);
    read_all(&fixture, &file).await;
    for round in 0..60 {
        let (map, data) = (place.files("map").remove(0), place.files("data").remove(0));
        let len = fs::metadata(&map).unwrap().len();
        match round % 6 {
            0 => fs::write(&map, vec![random.random::<u8>(); random.random_range(0..5000)]).unwrap(),
            1 => fs::File::options()
                .write(true)
                .open(&map)
                .unwrap()
                .set_len(random.random_range(0..len))
                .unwrap(),
            2 => fs::File::options()
                .write(true)
                .open(&data)
                .unwrap()
                .set_len(random.random_range(0..1 << 20))
                .unwrap(),
            3 => (0..20).for_each(|_| damage(&map, random.random_range(0..len))),
            4 => fs::remove_file(&map).unwrap(),
            _ => damage(&map, random.random_range(72 + 15..len)),
        }
        fixture = fixture.restarted(CacheConfig::default(), &place.config);
        read_all(&fixture, &file).await;
        assert_eq!(fixture.log().bytes() % (16 * KIB), 0);
    }
    // Nothing of it is left: the last rounds mended what they broke.
    fixture = fixture.restarted(CacheConfig::default(), &place.config);
    fixture.log().reset();
    read_all(&fixture, &file).await;
    assert_eq!(fixture.log().requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_page_size_is_a_miss() {
    let place = Place::new(64 * MIB);
    let fixture = place.open();
    let file = fixture.add_random("/a.bin", 1 << 20);
    read_all(&fixture, &file).await;
    let config = CacheConfig {
        page_size: PageSize::new(64 << 10).unwrap(),
        ..CacheConfig::default()
    };
    let fixture = fixture.restarted(config, &place.config);
    fixture.log().reset();
    read_all(&fixture, &file).await;
    let stats = disk(&fixture);
    assert_eq!((stats.dropped_versions, stats.corrupt_pages), (1, 0));
    assert_eq!(fixture.log().bytes(), 1 << 20);
    assert_eq!(stats.pages, 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_load_never_takes_more_than_cache_size_p6() {
    let seed = 0x5eed_0d15;
    println!("seed {seed:#x}");
    let mut random = StdRng::seed_from_u64(seed);
    let place = Place::new(12 * MIB);
    let config = CacheConfig {
        memory_bytes: 4 * MIB,
        ..CacheConfig::default()
    };
    let mut fixture = Fixture::with_disk(config, &place.config);
    let names = ["/a.bin", "/b.parquet", "/c.avro", "/d.orc", "/e.bin", "/f.bin"];
    let files: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(index, name)| fixture.add_random(name, 4_000_000 * index + 12_345))
        .collect();
    for round in 0..6 {
        for step in 0..400 {
            let file = &files[random.random_range(0..files.len())];
            let offset = random.random_range(0..=file.len());
            let len = 1 << random.random_range(0..20);
            fixture.read(file, offset, random.random_range(0..=len)).await;
            let used = disk(&fixture).used_bytes;
            assert!(used <= 12 * MIB, "{used} in round {round}");
            if step % 50 == 0 {
                fixture.settle().await;
                fixture.cache.settle_disk().await;
                assert!(place.allocated() <= 12 * MIB, "{}", place.allocated());
            }
        }
        fixture.settle().await;
        fixture.cache.settle_disk().await;
        let stats = disk(&fixture);
        assert!(stats.metadata.used_bytes <= 12 * MIB / 8, "{stats:?}");
        assert_eq!((stats.corrupt_pages, stats.failed_writes), (0, 0), "{stats:?}");
        assert!(
            stats.data.hits > 0 && (round == 0 || stats.evicted_pages > 0),
            "{stats:?}"
        );
        fixture = fixture.restarted(config, &place.config);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_evicts_itself_and_neither_metadata_nor_what_was_hit_again() {
    let place = Place::new(64 * MIB);
    let config = CacheConfig {
        memory_bytes: 4 * MIB,
        ..CacheConfig::default()
    };
    let fixture = Fixture::with_disk(config, &place.config);
    let manifest = fixture.add_random("/t/m.avro", 100_000);
    let hot = fixture.add_random("/hot.bin", 8 << 20);
    let scan = fixture.add_random("/scan.bin", 160 << 20);
    read_all(&fixture, &manifest).await;
    // Read twice: the second time from disk.
    read_all(&fixture, &hot).await;
    fixture.cache.clear();
    read_all(&fixture, &hot).await;
    read_all(&fixture, &scan).await;
    assert!(disk(&fixture).evicted_pages > 0);
    fixture.cache.clear();
    fixture.log().reset();
    read_all(&fixture, &manifest).await;
    read_all(&fixture, &hot).await;
    assert_eq!(fixture.log().requests(), 0, "{:?}", disk(&fixture));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_directory_is_made_anew_and_no_byte_is_wrong_p7() {
    let place = Place::new(64 * MIB);
    let fixture = place.open();
    let file = fixture.add_random("/a.bin", 2 << 20);
    let other = fixture.add_random("/b.bin", (1 << 20) + 5);
    read_all(&fixture, &file).await;
    fs::remove_dir_all(place.directory.path().join("lookupfs-1")).unwrap();
    fixture.cache.clear();
    read_all(&fixture, &file).await;
    read_all(&fixture, &other).await;
    let stats = disk(&fixture);
    assert_eq!(stats.lost_directories, 1);
    assert_eq!((stats.corrupt_pages, stats.versions), (0, 1), "{stats:?}");
    fixture.cache.clear();
    read_all(&fixture, &file).await;
    let fixture = fixture.restarted(CacheConfig::default(), &place.config);
    fixture.log().reset();
    read_all(&fixture, &other).await;
    assert_eq!(fixture.log().requests(), 0, "what came after is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_a_directory_put_in_its_place_is_on_the_account_p6() {
    let place = Place::new(64 * MIB);
    let fixture = place.open();
    let file = fixture.add_random("/a.bin", 2 << 20);
    read_all(&fixture, &file).await;
    let (ours, copy) = (
        place.directory.path().join("lookupfs-1"),
        place.directory.path().join("copy"),
    );
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&ours).unwrap() {
        let entry = entry.unwrap();
        fs::rename(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    fs::remove_dir(&ours).unwrap();
    fs::rename(&copy, &ours).unwrap();
    let other = fixture.add_random("/b.bin", 1 << 20);
    read_all(&fixture, &other).await;
    let stats = disk(&fixture);
    assert_eq!((stats.lost_directories, stats.versions), (1, 2), "{stats:?}");
    assert!(stats.used_bytes >= place.allocated(), "{stats:?}");
    fixture.cache.clear();
    fixture.log().reset();
    read_all(&fixture, &file).await;
    assert_eq!(fixture.log().requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_a_crash_left_without_an_entry_are_given_back() {
    let place = Place::new(64 * MIB);
    let fixture = place.open();
    let file = fixture.add_random("/a.bin", 8 << 20);
    fixture.read(&file, 0, 16 * KIB).await;
    fixture.settle().await;
    fixture.cache.settle_disk().await;
    let data = fs::File::options()
        .write(true)
        .open(&place.files("data")[0])
        .unwrap();
    data.write_all_at(&vec![7; 4 << 20], 1 << 20).unwrap();
    assert!(place.allocated() > 4 * MIB);
    let fixture = fixture.restarted(CacheConfig::default(), &place.config);
    fixture.cache.clear();
    fixture.log().reset();
    fixture.read(&file, 0, 16 * KIB).await;
    assert_eq!(fixture.log().requests(), 0);
    assert!(place.allocated() < 64 * KIB, "{}", place.allocated());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_brought_is_written_however_small_the_queue() {
    let place = Place::new(64 * MIB);
    let config = CacheConfig {
        memory_bytes: 32 * MIB,
        ..CacheConfig::default()
    };
    let fixture = Fixture::with_disk(config, &place.config);
    let file = fixture.add_random("/a.bin", 4 << 20);
    let whole = ByteRange::clamped(0, u64::MAX, file.len());
    fixture.try_read(&file, 0, file.len()).await.unwrap();
    fixture.cache.bring_to_disk(&file, whole).await;
    fixture.cache.settle_disk().await;
    assert_eq!(fixture.cache.count_on_disk(&file, whole), 256);
    assert_eq!(disk(&fixture).queued_bytes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_hit_is_answered_at_once_when_the_kernel_has_it() {
    let place = Place::new(64 * MIB);
    let fixture = place.open();
    let file = fixture.add_random("/a.bin", 4 << 20);
    read_all(&fixture, &file).await;
    let fixture = fixture.restarted(CacheConfig::default(), &place.config);
    let range = |start, end| ByteRange::new(start, end).unwrap();
    // The first read of a version after a start looks into its map, and so may wait.
    assert!(fixture.cache.read_cached(&file, range(0, 100)).is_none());
    fixture.read(&file, 0, 100).await;
    for (start, end) in [(20_000, 20_100), (50_000, 250_000), (4 << 20, 4 << 20)] {
        let bytes = fixture.cache.read_cached(&file, range(start, end)).unwrap();
        assert_eq!(bytes, fixture.expected(&file, start, end - start));
    }
    let hits = disk(&fixture).data.hits;
    assert!(
        fixture
            .cache
            .read_cached(&file, range(1 << 20, (1 << 20) + 300_000))
            .is_none(),
        "too long"
    );
    fixture.cache.read_cached(&file, range(20_000, 20_100)).unwrap();
    assert_eq!(disk(&fixture).data.hits, hits, "promoted to memory");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_tier_is_off_reads_go_to_the_source_and_nothing_is_lost() {
    let place = Place::new(64 * MIB);
    let fixture = place.open();
    let file = fixture.add_random("/a.bin", 1 << 20);
    read_all(&fixture, &file).await;
    let fixture = fixture.restarted(CacheConfig::default(), &place.config);
    fixture.log().reset();
    fixture.cache.disk.as_ref().unwrap().switch_off();
    assert_eq!(disk(&fixture).on, 0);
    assert!(fixture.cache.complete_file(&file).is_err());
    read_all(&fixture, &file).await;
    assert_eq!(fixture.log().bytes(), 1 << 20);
    let fixture = fixture.restarted(CacheConfig::default(), &place.config);
    fixture.log().reset();
    read_all(&fixture, &file).await;
    assert_eq!(fixture.log().requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absurd_length_is_not_kept_and_harms_nobody() {
    let place = Place::new(64 * MIB);
    let fixture = place.open();
    let path = crate::version::SourcePath::parse(b"/huge.bin").unwrap();
    let id = crate::version::SourceId::new("memory://double");
    let huge = std::sync::Arc::new(FileVersion::new(id, path, 1 << 62, 1, 0));
    fixture.add_random("/huge.bin", 1 << 20);
    fixture.try_read(&huge, 0, 4096).await.unwrap();
    fixture.cache.settle_disk().await;
    assert_eq!(disk(&fixture).versions, 0);
    assert_eq!(
        fixture
            .cache
            .count_on_disk(&huge, ByteRange::clamped(0, u64::MAX, 1 << 62)),
        0
    );
    assert!(fixture.cache.complete_file(&huge).is_err());
    fixture.cache.evict_from_disk(&huge);
}
