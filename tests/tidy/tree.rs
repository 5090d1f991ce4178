//! The files of the checkout as the rules see them: path, bytes, executable bit. Read once from `git ls-files`, or made
//! of literals for the cases that must fail. Refuses to guess: without git there is no list, and that is a failure.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One file of the tree.
pub(crate) struct File {
    /// Its bytes as text; bytes that are no UTF-8 are replaced, which only matters for fixtures.
    pub(crate) text: String,
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// Whether its owner may execute it.
    pub(crate) executable: bool,
}

/// All files by path relative to the root.
pub(crate) struct Tree {
    files: BTreeMap<String, File>,
}

impl Tree {
    /// Tracked files, and new ones that no ignore rule names.
    pub(crate) fn of_checkout() -> Tree {
        let root = root();
        let listed = Command::new("git")
            .args([
                "-c",
                "safe.directory=*",
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(&root)
            .output()
            .expect("git lists the files to check: install git");
        assert!(
            listed.status.success(),
            "git ls-files: {}",
            String::from_utf8_lossy(&listed.stderr)
        );
        let names = String::from_utf8(listed.stdout).expect("file names are UTF-8");
        let mut files = BTreeMap::new();
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            let path = root.join(name);
            // A file that was deleted and not yet committed is still listed.
            let Ok(metadata) = path.metadata() else { continue };
            let bytes = std::fs::read(&path).expect("a listed file can be read");
            let file = File {
                text: String::from_utf8_lossy(&bytes).into_owned(),
                bytes: metadata.len(),
                executable: metadata.permissions().mode() & 0o100 != 0,
            };
            files.insert(name.to_owned(), file);
        }
        assert!(
            files.contains_key("Cargo.toml"),
            "{} is not the root of the checkout",
            root.display()
        );
        Tree { files }
    }

    /// A tree of literals; a path that ends in `*` is executable (and loses the star).
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|(path, text)| {
            let file = File {
                text: (*text).to_owned(),
                bytes: text.len() as u64,
                executable: path.ends_with('*'),
            };
            (path.trim_end_matches('*').to_owned(), file)
        });
        Tree {
            files: files.collect(),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// The files that people write: all but fixtures, which are data.
    pub(crate) fn written(&self) -> impl Iterator<Item = (&str, &File)> {
        self.iter().filter(|(path, _)| !is_fixture(path))
    }

    /// Written files with this ending.
    pub(crate) fn ending(&self, ending: &str) -> impl Iterator<Item = (&str, &File)> {
        self.written().filter(move |(path, _)| path.ends_with(ending))
    }

    /// Whether a file or a folder is at this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(next, _)| next.starts_with(&folder))
    }

    /// Whether some file's path ends in these components.
    pub(crate) fn has_ending(&self, path: &str) -> bool {
        let ending = format!("/{}", path.trim_end_matches('/'));
        let inner = format!("{ending}/");
        self.files
            .keys()
            .any(|file| file.ends_with(&ending) || file.contains(&inner))
    }

    /// Whether a folder of this name lies at the root.
    pub(crate) fn is_top_folder(&self, name: &str) -> bool {
        !name.is_empty() && self.has(name) && !self.files.contains_key(name)
    }
}

/// The root of the checkout. The tests package lies directly below it.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .parent()
        .expect("the tests package has a parent")
        .to_path_buf()
}

pub(crate) fn is_fixture(path: &str) -> bool {
    path.starts_with("tests/fixtures/")
}

/// `base` (a file) and a relative link joined and normalised; `None` when it leaves the root.
pub(crate) fn resolve(base: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = base.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}
