//! The reference model: what a mount must show, as a map from paths to bytes, and random operations on both.
//!
//! After each operation on the source side the mount is compared with the model. The mount has `ttl=0`, so that every
//! lookup asks the source: what is tested is that no layer shows, keeps or mixes what it must not.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{Rng, RngCore, SeedableRng};

use crate::read_mapped;
use crate::source_side::SourceSide;

/// Largest file that is made: some pages and more than one HDFS block of the test's HDFS.
const FILE_BYTES_MAX: usize = 1_300_000;
/// Open files that are watched at once.
const HELD_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Directory,
    File(Vec<u8>),
}

/// A file that was opened when it had these bytes.
struct Held {
    path: String,
    file: File,
    bytes: Vec<u8>,
}

/// The model beside a mount.
pub struct Reference<'a> {
    nodes: BTreeMap<String, Node>,
    side: &'a mut dyn SourceSide,
    mount: PathBuf,
    random: StdRng,
    held: Vec<Held>,
    /// Paths where something was.
    gone: Vec<String>,
    next_name: u64,
    /// What was done, newest last; printed with a failure.
    history: Vec<String>,
    /// Answers of open files whose version had gone.
    stale: u64,
}

impl std::fmt::Debug for Reference<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Reference({} nodes, {} steps)",
            self.nodes.len(),
            self.history.len()
        )
    }
}

impl<'a> Reference<'a> {
    /// An empty tree below `mount`, written by `side`.
    pub fn new(side: &'a mut dyn SourceSide, mount: &Path, seed: u64) -> Reference<'a> {
        Reference {
            nodes: BTreeMap::new(),
            side,
            mount: mount.to_owned(),
            random: StdRng::seed_from_u64(seed),
            held: Vec::new(),
            gone: Vec::new(),
            next_name: 0,
            history: Vec::new(),
            stale: 0,
        }
    }

    /// Takes `steps` random steps; each is an operation on the source side and a comparison. The answer is the number
    /// of reads of open files that were told that their version had gone.
    pub fn run(&mut self, steps: usize) -> u64 {
        for step in 0..steps {
            let touched = self.step();
            self.check_directory(parent(&touched));
            self.check_path(&touched);
            if let Some(path) = self.any(|node| matches!(node, Node::File(_))) {
                self.check_path(&path);
                self.hold(&path);
            }
            self.check_held();
            if step % 20 == 19 {
                self.check_everything();
            }
        }
        self.check_everything();
        self.stale
    }

    /// One operation on the source side; the path that it touched.
    fn step(&mut self) -> String {
        let file = self.any(|node| matches!(node, Node::File(_)));
        let (what, path) = match (self.random.random_range(0..10), file) {
            (0, _) => {
                let path = self.new_path();
                self.side.mkdir(&path);
                self.nodes.insert(path.clone(), Node::Directory);
                ("mkdir", path)
            }
            (1 | 2, Some(path)) => {
                let more = self.bytes(100_000);
                self.side.append(&path, &more);
                if let Some(Node::File(bytes)) = self.nodes.get_mut(&path) {
                    bytes.extend_from_slice(&more);
                }
                ("append", path)
            }
            (3 | 4, Some(path)) => {
                let len = self.file_bytes(&path).len();
                let bytes = self.bytes_of_len(len);
                self.side.replace(&path, &bytes);
                self.nodes.insert(path.clone(), Node::File(bytes));
                ("replace by the same length", path)
            }
            (5, Some(path)) => {
                let bytes = self.bytes(FILE_BYTES_MAX);
                self.side.replace(&path, &bytes);
                self.nodes.insert(path.clone(), Node::File(bytes));
                ("replace", path)
            }
            (6, Some(_)) => self.rename(),
            (7, Some(_)) => {
                let path = self.any(|_| true).expect("there is a file");
                self.side.delete(&path);
                self.gone
                    .extend(self.nodes.keys().filter(|other| is_within(other, &path)).cloned());
                self.nodes.retain(|other, _| !is_within(other, &path));
                ("delete", path)
            }
            _ => {
                let path = self.new_path();
                let bytes = self.bytes(FILE_BYTES_MAX);
                self.side.create(&path, &bytes);
                self.nodes.insert(path.clone(), Node::File(bytes));
                ("create", path)
            }
        };
        self.history.push(format!("{what} {path}"));
        path
    }

    fn rename(&mut self) -> (&'static str, String) {
        let from = self.any(|_| true).expect("there is a file");
        let mut to = self.new_path();
        if is_within(&to, &from) {
            // A directory cannot move into itself.
            to = self.new_name();
        }
        self.side.rename(&from, &to);
        let moved: Vec<String> = self
            .nodes
            .keys()
            .filter(|path| is_within(path, &from))
            .cloned()
            .collect();
        for path in moved {
            if let Some(node) = self.nodes.remove(&path) {
                self.gone.push(path.clone());
                self.nodes.insert(format!("{to}{}", &path[from.len()..]), node);
            }
        }
        assert!(
            !self.mount.join(&from).exists(),
            "{from} is still there; {:?}",
            self.history
        );
        ("rename", to)
    }

    /// What the mount shows at `path` is what the model says: kind, length, and bytes by read and by mmap.
    fn check_path(&mut self, path: &str) {
        let shown = self.mount.join(path);
        let found = std::fs::symlink_metadata(&shown);
        match self.nodes.get(path) {
            None => {
                let error = found.expect_err("nothing is there");
                assert_eq!(
                    error.kind(),
                    io::ErrorKind::NotFound,
                    "{path}: {error}; {:?}",
                    self.history
                );
            }
            Some(Node::Directory) => assert!(found.expect("stat").is_dir(), "{path}; {:?}", self.history),
            Some(Node::File(bytes)) => {
                assert_eq!(
                    found.expect("stat").len(),
                    bytes.len() as u64,
                    "{path}; {:?}",
                    self.history
                );
                let file = File::open(&shown).expect("open");
                let offset = self.random.random_range(0..=bytes.len());
                let len = self.random.random_range(0..=bytes.len() - offset);
                let mut part = vec![0; len];
                file.read_exact_at(&mut part, offset as u64).expect("read");
                self.assert_same(path, &part, &bytes[offset..offset + len]);
                if self.random.random_bool(0.5) {
                    self.assert_same(path, &read_mapped(&file), bytes);
                }
            }
        }
    }

    fn check_directory(&self, path: &str) {
        if !path.is_empty() && !self.nodes.contains_key(path) {
            return;
        }
        let entries = std::fs::read_dir(self.mount.join(path)).expect("readdir");
        let mut shown: Vec<String> = entries
            .map(|e| e.expect("entry").file_name().into_string().expect("UTF-8"))
            .collect();
        shown.sort();
        let expected: Vec<String> = self
            .nodes
            .keys()
            .filter(|other| parent(other) == path)
            .map(|other| other.rsplit('/').next().unwrap_or(other).to_owned())
            .collect();
        assert_eq!(shown, expected, "directory {path:?}; {:?}", self.history);
    }

    fn check_everything(&mut self) {
        self.check_directory("");
        let paths: Vec<(String, Node)> = self.nodes.clone().into_iter().collect();
        for (path, node) in paths {
            match node {
                Node::Directory => self.check_directory(&path),
                Node::File(bytes) => {
                    let shown = std::fs::read(self.mount.join(&path)).expect("read");
                    self.assert_same(&path, &shown, &bytes);
                }
            }
        }
    }

    fn hold(&mut self, path: &str) {
        let Some(Node::File(bytes)) = self.nodes.get(path) else {
            return;
        };
        let file = File::open(self.mount.join(path)).expect("open");
        // fstat, so that the kernel has looked: what is held is the version of now.
        assert_eq!(file.metadata().expect("fstat").len(), bytes.len() as u64);
        self.held.push(Held {
            path: path.to_owned(),
            file,
            bytes: bytes.clone(),
        });
        if self.held.len() > HELD_MAX {
            self.held.remove(0);
        }
    }

    /// P1: an open file shows the bytes that it had when it was opened, or ESTALE; its length stays.
    fn check_held(&mut self) {
        for at in 0..self.held.len() {
            let held = &self.held[at];
            assert_eq!(
                held.file.metadata().expect("fstat").len(),
                held.bytes.len() as u64,
                "{}",
                held.path
            );
            if held.bytes.is_empty() {
                continue;
            }
            let offset = self.random.random_range(0..held.bytes.len());
            let len = self
                .random
                .random_range(1..=(held.bytes.len() - offset).min(200_000));
            let mut part = vec![0; len];
            match held.file.read_exact_at(&mut part, offset as u64) {
                Ok(()) => self.assert_same(&held.path, &part, &held.bytes[offset..offset + len]),
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {
                    let is_there = self.nodes.get(&held.path) == Some(&Node::File(held.bytes.clone()));
                    assert!(!is_there, "{} is there as it was; {:?}", held.path, self.history);
                    self.stale += 1;
                }
                Err(error) => panic!("{}: {error}; {:?}", held.path, self.history),
            }
        }
    }

    fn assert_same(&self, path: &str, shown: &[u8], expected: &[u8]) {
        if shown == expected {
            return;
        }
        let at = shown.iter().zip(expected).position(|(a, b)| a != b);
        let (have, want) = (shown.len(), expected.len());
        panic!(
            "{path}: other bytes from {at:?} of {have}, expected {want}; {:?}",
            self.history
        );
    }

    fn file_bytes(&self, path: &str) -> Vec<u8> {
        match self.nodes.get(path) {
            Some(Node::File(bytes)) => bytes.clone(),
            _ => Vec::new(),
        }
    }

    fn any(&mut self, is_wanted: impl Fn(&Node) -> bool) -> Option<String> {
        let wanted = self
            .nodes
            .iter()
            .filter(|(_, node)| is_wanted(node))
            .map(|(path, _)| path.clone());
        wanted.choose(&mut self.random)
    }

    /// Where nothing is: often a path where something was, since those are the ones that caches remember.
    fn new_path(&mut self) -> String {
        let free: Vec<&String> = self.gone.iter().filter(|path| self.is_free(path)).collect();
        let gone = free.into_iter().choose(&mut self.random).cloned();
        match gone {
            Some(path) if self.random.random_bool(0.3) => return path,
            _ => {}
        }
        let name = self.new_name();
        match self.any(|node| *node == Node::Directory) {
            Some(directory) if self.random.random_bool(0.7) => format!("{directory}/{name}"),
            _ => name,
        }
    }

    fn is_free(&self, path: &str) -> bool {
        let has_parent = parent(path).is_empty() || self.nodes.get(parent(path)) == Some(&Node::Directory);
        has_parent && !self.nodes.contains_key(path)
    }

    fn new_name(&mut self) -> String {
        self.next_name += 1;
        let odd = ["a", "b c", "Ünï", "x%2Fy", "q\"'", "-f", "new\nline"];
        let name = odd[self.random.random_range(0..odd.len())];
        format!("{name}{}", self.next_name)
    }

    fn bytes(&mut self, len_max: usize) -> Vec<u8> {
        let len = match self.random.random_range(0..4) {
            0 => self.random.random_range(0..100),
            1 => self.random.random_range(0..=20_000.min(len_max)),
            _ => self.random.random_range(0..=len_max),
        };
        self.bytes_of_len(len)
    }

    fn bytes_of_len(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.random.fill_bytes(&mut bytes);
        bytes
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn is_within(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
