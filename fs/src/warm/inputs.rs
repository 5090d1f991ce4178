//! The paths of a command: from its arguments, from a file, from stdin; and which mount each is below.
//!
//! Owns reading lists without holding them, and looking paths up in the kernel's table of mounts, which waits for no
//! filesystem. Refuses lines longer than any path. Called by `client.rs`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use super::shown;
use crate::mount_point::{FILESYSTEM_TYPE, MountedAt};

/// Longest path in a list; Linux takes 4096 bytes.
const PATH_BYTES_MAX: u64 = 16 << 10;

/// Arguments, then a list.
pub(super) struct Paths {
    arguments: std::vec::IntoIter<PathBuf>,
    list: Option<Box<dyn BufRead + Send>>,
    end: u8,
}

impl Paths {
    /// The `arguments`, and the paths that `list` names, each ended by a NUL or a newline. `-` is stdin, as an argument
    /// and as a list.
    pub(super) fn new(
        mut arguments: Vec<PathBuf>,
        list: Option<&Path>,
        is_nul_separated: bool,
    ) -> io::Result<Paths> {
        let stdin = Path::new("-");
        let before = arguments.len();
        arguments.retain(|path| path != stdin);
        let list: Option<Box<dyn BufRead + Send>> = match list {
            Some(path) if path != stdin => Some(Box::new(BufReader::new(File::open(path)?))),
            Some(_) => Some(Box::new(BufReader::new(io::stdin()))),
            None if arguments.len() < before => Some(Box::new(BufReader::new(io::stdin()))),
            None => None,
        };
        Ok(Paths {
            arguments: arguments.into_iter(),
            list,
            end: if is_nul_separated { 0 } else { b'\n' },
        })
    }
}

impl Iterator for Paths {
    type Item = io::Result<PathBuf>;

    fn next(&mut self) -> Option<io::Result<PathBuf>> {
        if let Some(path) = self.arguments.next() {
            return Some(Ok(path));
        }
        loop {
            let mut line = Vec::new();
            let list = self.list.as_mut()?;
            let read = list.take(PATH_BYTES_MAX).read_until(self.end, &mut line);
            let ended = line.last() == Some(&self.end);
            if ended {
                line.pop();
            }
            let error = match read {
                Ok(0) => return None,
                Ok(_) if line.is_empty() => continue,
                Ok(read) if ended || (read as u64) < PATH_BYTES_MAX => {
                    return Some(Ok(PathBuf::from(OsString::from_vec(line))));
                }
                Ok(_) => io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a line of the list has {PATH_BYTES_MAX} bytes or more, which no path has"),
                ),
                Err(error) => error,
            };
            // What would follow is not the beginning of a line.
            self.list = None;
            return Some(Err(error));
        }
    }
}

/// A path, as the daemon behind its mount wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) mount_point: PathBuf,
    pub(super) below: PathBuf,
}

/// Finds the mount that `path` is below. Only where its letters do not say so the filesystems are asked, for the links on
/// the way.
pub(super) fn resolve(path: &Path, table: &[MountedAt]) -> Result<Target, String> {
    let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
    // `a/..` is only plain without links.
    let is_plain = !absolute.components().any(|c| matches!(c, Component::ParentDir));
    if is_plain && let Some(target) = below_mount(&absolute, table) {
        return Ok(target);
    }
    let real = absolute.canonicalize().map_err(|error| error.to_string())?;
    below_mount(&real, table).ok_or_else(|| {
        format!("it is not below a mount of lookupfs; `findmnt -t {FILESYSTEM_TYPE}` lists them")
    })
}

/// The innermost mount counts, and of two at one place the upper one, which comes last.
fn below_mount(path: &Path, table: &[MountedAt]) -> Option<Target> {
    let innermost = table
        .iter()
        .filter(|mounted| path.starts_with(&mounted.path))
        .max_by_key(|mounted| mounted.path.components().count())?;
    if innermost.fstype != FILESYSTEM_TYPE {
        return None;
    }
    Some(Target {
        mount_point: innermost.path.clone(),
        below: path.strip_prefix(&innermost.path).ok()?.to_owned(),
    })
}

/// As [`shown`], for a path.
pub(super) fn shown_path(path: &Path) -> String {
    shown(OsStr::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(path: &str, fstype: &str) -> MountedAt {
        MountedAt {
            path: path.into(),
            fstype: fstype.into(),
            device: String::new(),
        }
    }

    #[test]
    fn the_innermost_mount_counts() {
        let table = [
            mounted("/", "ext4"),
            mounted("/m", FILESYSTEM_TYPE),
            mounted("/m/a/b", FILESYSTEM_TYPE),
            mounted("/m/tmp", "tmpfs"),
            mounted("/over", FILESYSTEM_TYPE),
            mounted("/over", "tmpfs"),
        ];
        let find = |path: &str| {
            let target = below_mount(Path::new(path), &table)?;
            Some((
                target.mount_point.to_str()?.to_owned(),
                target.below.to_str()?.to_owned(),
            ))
        };
        let at = |mount: &str, below: &str| Some((mount.to_owned(), below.to_owned()));
        assert_eq!(find("/m"), at("/m", ""));
        assert_eq!(find("/m/a/f"), at("/m", "a/f"));
        assert_eq!(find("/m/a/b/c/"), at("/m/a/b", "c"));
        for outside in ["/", "/mm/f", "/m/tmp/f", "/over/f", "/elsewhere"] {
            assert_eq!(find(outside), None, "{outside}");
        }
        assert!(
            resolve(Path::new("/tmp"), &table)
                .unwrap_err()
                .contains("findmnt")
        );
    }

    #[test]
    fn lists_are_read_line_by_line_and_a_line_without_end_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("list");
        let read = |bytes: &[u8], nul| {
            std::fs::write(&file, bytes).unwrap();
            let paths = Paths::new(vec!["x".into()], Some(&file), nul).unwrap();
            paths.map(|path| path.map_err(|e| e.kind())).collect::<Vec<_>>()
        };
        let ok = |text: &str| Ok(PathBuf::from(text));
        assert_eq!(
            read(b"a\n\nb c\nd", false),
            [ok("x"), ok("a"), ok("b c"), ok("d")]
        );
        assert_eq!(read(b"a\nb\0c\0", true), [ok("x"), ok("a\nb"), ok("c")]);
        let long = vec![b'a'; 40_000];
        let error = Err(io::ErrorKind::InvalidData);
        assert_eq!(read(&long, false), [ok("x"), error]);
    }
}
