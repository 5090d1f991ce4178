//! A file under a temporary name, in the directory of its final one; and a directory for as long as it is needed.
//!
//! Owns the guarantee that a final name holds a whole file or none, and that nothing is left behind where writing failed.
//! Never replaces a file unless told to. Called by [`crate::sample`] and [`crate::rewrite`].

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A file that is removed unless it was moved.
pub(crate) struct Temporary(PathBuf);

impl Temporary {
    /// Beside `path`, hidden.
    pub(crate) fn beside(path: &Path) -> io::Result<Temporary> {
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a file name"))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        Ok(Temporary(path.with_file_name(hidden)))
    }

    /// Creates it.
    pub(crate) fn create(&self) -> io::Result<File> {
        File::options().write(true).create_new(true).open(&self.0)
    }

    /// Where it is until then.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Gives it its final name.
    pub(crate) fn move_to(self, path: &Path, replace: bool) -> io::Result<()> {
        if replace {
            return fs::rename(&self.0, path);
        }
        // A link, unlike a rename, fails if somebody made the name meanwhile.
        match fs::hard_link(&self.0, path) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP)) => {
                if path.symlink_metadata().is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                fs::rename(&self.0, path)
            }
            linked => linked,
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Gone already after a rename.
        let _ = fs::remove_file(&self.0);
    }
}

/// A directory among the system's temporary files, of this user alone, that is removed with all in it.
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Whose name begins with `name`.
    pub(crate) fn new(name: &str) -> io::Result<Directory> {
        use std::os::unix::fs::DirBuilderExt;
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let unique = started.map_or(0, |since| since.as_nanos());
        let path = std::env::temp_dir().join(format!("{name}.{}.{unique:x}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Directory(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left is in a place that the system clears.
        let _ = fs::remove_dir_all(&self.0);
    }
}
