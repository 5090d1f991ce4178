//! What the source side of a mount does in tests: the writers that lookupfs never is.

use std::path::PathBuf;

use hdfs_native::{Client, ClientBuilder, WriteOptions};

use crate::hdfs::MiniHdfs;

/// A writer of a source. Paths are relative to the directory that the test mounts, without a leading slash.
pub trait SourceSide {
    /// Makes a directory; its parent exists.
    fn mkdir(&mut self, path: &str);
    /// Writes a file that is not there yet.
    fn create(&mut self, path: &str, bytes: &[u8]);
    /// Writes at the end of a file.
    fn append(&mut self, path: &str, bytes: &[u8]);
    /// Puts other bytes in the place of a file, in one step.
    fn replace(&mut self, path: &str, bytes: &[u8]);
    /// Moves a file or directory to a path where nothing is.
    fn rename(&mut self, from: &str, to: &str);
    /// Removes a file, or a directory with everything in it.
    fn delete(&mut self, path: &str);
}

/// A local directory.
#[derive(Debug)]
pub struct FileSide(pub PathBuf);

impl SourceSide for FileSide {
    fn mkdir(&mut self, path: &str) {
        std::fs::create_dir(self.0.join(path)).expect("mkdir");
    }

    fn create(&mut self, path: &str, bytes: &[u8]) {
        std::fs::write(self.0.join(path), bytes).expect("create");
    }

    fn append(&mut self, path: &str, bytes: &[u8]) {
        use std::io::Write;
        let mut file = std::fs::File::options()
            .append(true)
            .open(self.0.join(path))
            .expect("open");
        file.write_all(bytes).expect("append");
    }

    fn replace(&mut self, path: &str, bytes: &[u8]) {
        // Beside the mounted directory's names: a model does not know it.
        let other = self.0.with_extension("replacement");
        std::fs::write(&other, bytes).expect("write");
        std::fs::rename(other, self.0.join(path)).expect("rename over");
    }

    fn rename(&mut self, from: &str, to: &str) {
        std::fs::rename(self.0.join(from), self.0.join(to)).expect("rename");
    }

    fn delete(&mut self, path: &str) {
        let path = self.0.join(path);
        if path.is_dir() {
            std::fs::remove_dir_all(path).expect("rmdir");
        } else {
            std::fs::remove_file(path).expect("delete");
        }
    }
}

/// A directory of a real HDFS, written through hdfs-native.
pub struct HdfsSide {
    client: Client,
    runtime: tokio::runtime::Runtime,
    root: String,
}

impl std::fmt::Debug for HdfsSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HdfsSide({})", self.root)
    }
}

impl HdfsSide {
    /// Makes the directory `root` and writes below it.
    pub fn new(hdfs: &MiniHdfs, root: &str) -> HdfsSide {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let conf = hdfs.conf.to_str().expect("UTF-8").to_owned();
        let client = runtime.block_on(async { ClientBuilder::new().with_config_dir(conf).build() });
        let client = client.expect("a client");
        runtime
            .block_on(client.mkdirs(root, 0o755, true))
            .expect("mkdirs");
        HdfsSide {
            client,
            runtime,
            root: root.to_owned(),
        }
    }

    fn path(&self, path: &str) -> String {
        format!("{}/{path}", self.root)
    }

    /// hdfs-native does not repeat an `addBlock` that the NameNode is not ready for, so whole writes are repeated.
    fn write(&self, path: &str, bytes: &[u8]) {
        for _ in 0..5 {
            let written = self.runtime.block_on(async {
                let options = WriteOptions::default().overwrite(true);
                let mut writer = self.client.create(path, options).await?;
                writer.write_bytes(bytes.to_vec().into()).await?;
                writer.close().await
            });
            match written {
                Ok(()) => return,
                Err(error) => eprintln!("writing {path} again: {error}"),
            }
        }
        panic!("{path} cannot be written");
    }
}

impl SourceSide for HdfsSide {
    fn mkdir(&mut self, path: &str) {
        self.runtime
            .block_on(self.client.mkdirs(&self.path(path), 0o755, false))
            .expect("mkdir");
    }

    fn create(&mut self, path: &str, bytes: &[u8]) {
        self.write(&self.path(path), bytes);
    }

    fn append(&mut self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        let appended = self.runtime.block_on(async {
            let mut writer = self.client.append(&path).await?;
            writer.write_bytes(bytes.to_vec().into()).await?;
            writer.close().await
        });
        appended.expect("append");
    }

    fn replace(&mut self, path: &str, bytes: &[u8]) {
        let (other, path) = (format!("{}.replacement", self.root), self.path(path));
        self.write(&other, bytes);
        self.runtime
            .block_on(self.client.rename(&other, &path, true))
            .expect("rename over");
    }

    fn rename(&mut self, from: &str, to: &str) {
        let (from, to) = (self.path(from), self.path(to));
        self.runtime
            .block_on(self.client.rename(&from, &to, false))
            .expect("rename");
    }

    fn delete(&mut self, path: &str) {
        let path = self.path(path);
        assert!(
            self.runtime
                .block_on(self.client.delete(&path, true))
                .expect("delete"),
            "{path} was not there"
        );
    }
}
