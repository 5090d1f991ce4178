//! The HDFS source against a real HDFS.

use std::path::PathBuf;

use lookupfs_cache::page::ByteRange;
use lookupfs_cache::source::Source;
use lookupfs_cache::source::hdfs::{HdfsOptions, HdfsSource};
use lookupfs_cache::version::SourcePath;

fn hadoop_conf() -> PathBuf {
    let dir = std::env::var_os("LOOKUPFS_TEST_HDFS_CONF").expect(
        "set LOOKUPFS_TEST_HDFS_CONF to the configuration folder of a running HDFS: mount-scripts/minihdfs.sh conf",
    );
    PathBuf::from(dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_byte_is_read() {
    let options = HdfsOptions {
        hadoop_conf: Some(hadoop_conf()),
        ..HdfsOptions::default()
    };
    let source = HdfsSource::new("", &options).unwrap();
    let path = SourcePath::parse(b"/byte").unwrap();
    let status = source.status(&path).await.unwrap();
    let listing = source.list(&SourcePath::root()).await.unwrap();
    assert_eq!(listing.find(b"byte").unwrap().status, status);
    let file = source.open(&status.version(source.id(), &path)).await.unwrap();
    let range = ByteRange::new(0, 1).unwrap();
    assert_eq!(&file.read(range).await.unwrap()[..], b"x");
}
