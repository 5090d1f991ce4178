//! A file under a temporary name, in the directory of its final one.
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
