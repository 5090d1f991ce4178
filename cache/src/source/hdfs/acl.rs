//! What a file's group may really do: in HDFS the group bits of a file with an ACL are the ACL's mask.
//!
//! Hadoop 2 marks such a file in its mode; then the group bits are cleared. Hadoop 3 says it in flags that
//! `hdfs-native` drops, so the only way to know is to ask for the ACL: one NameNode request for each status, and for
//! each entry of a listing whose group bits are set. That is the option `ask_acls`.

use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use hdfs_native::HdfsError;
use hdfs_native::acl::{AclEntry, AclEntryScope, AclEntryType};

use super::Shared;
use crate::error::{ErrorKind, Result};
use crate::source::Entry;
use crate::version::SourcePath;

/// Set by Hadoop 2 in the mode of a file that has an ACL.
const ACL_BIT: u16 = 1 << 12;
const GROUP_BITS: u16 = 0o070;
const REQUESTS_AT_ONCE: usize = 16;

/// Permission bits as the NameNode sent them, without what is only known to be a mask.
pub(super) fn without_mask(permission: u16) -> u16 {
    let mode = permission & 0o1777;
    if permission & ACL_BIT == 0 {
        mode
    } else {
        mode & !GROUP_BITS
    }
}

impl Shared {
    /// `mode` of `path` with the group's own bits, if the source is to ask for them.
    pub(super) async fn narrow(&self, path: &SourcePath, mode: u16) -> Result<u16> {
        if !self.ask_acls.load(Ordering::Relaxed) || mode & GROUP_BITS == 0 {
            return Ok(mode);
        }
        let text = path.as_utf8()?;
        let answer = self
            .namenodes
            .call(&format!("no ACL of {path}"), |client| async move {
                match client.get_acl_status(text).await {
                    Ok(status) => Ok(Some(status.entries)),
                    Err(HdfsError::RPCError(class, _)) if class.ends_with(".AclException") => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .await;
        match answer {
            Ok(Some(entries)) => Ok(narrowed(mode, &entries)),
            Ok(None) => {
                tracing::info!(source = %self.id, "this HDFS has no ACLs: not asking for them any more");
                self.ask_acls.store(false, Ordering::Relaxed);
                Ok(mode)
            }
            // Gone or closed since it was listed: nobody of the group gets in either.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Denied) => {
                Ok(mode & !GROUP_BITS)
            }
            Err(error) => Err(error),
        }
    }

    /// [`Shared::narrow`] for all entries of the directory `path`.
    pub(super) async fn narrow_all(&self, path: &SourcePath, entries: &mut [Entry]) -> Result<()> {
        if !self.ask_acls.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Boxed, since the compiler cannot prove a stream of borrowing futures to be `Send`.
        let narrowing: Vec<BoxFuture<'_, Result<()>>> = entries
            .iter_mut()
            .map(|entry| self.narrow_entry(path, entry).boxed())
            .collect();
        stream::iter(narrowing)
            .buffer_unordered(REQUESTS_AT_ONCE)
            .try_collect()
            .await
    }

    async fn narrow_entry(&self, path: &SourcePath, entry: &mut Entry) -> Result<()> {
        let path = path.join(&entry.name)?;
        entry.status.mode = self.narrow(&path, entry.status.mode).await?;
        Ok(())
    }
}

/// `mode` whose group bits are a mask if `entries` hold an access ACL.
fn narrowed(mode: u16, entries: &[AclEntry]) -> u16 {
    let mut access = entries
        .iter()
        .filter(|entry| entry.scope == AclEntryScope::Access)
        .peekable();
    if access.peek().is_none() {
        return mode;
    }
    let unnamed = |entry: &&AclEntry| entry.name.as_deref().unwrap_or_default().is_empty();
    let group = access.find(|entry| entry.r#type == AclEntryType::Group && unnamed(entry));
    let group_bits = group.map_or(0, |entry| (entry.permissions.clone() as u16) << 3);
    mode & (!GROUP_BITS | group_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: &str, scope: &str, action: &str, name: Option<&str>) -> AclEntry {
        AclEntry::new(kind, scope, action, name.map(str::to_owned))
    }

    #[test]
    fn the_group_gets_its_own_bits_and_never_the_mask() {
        let bob = entry("user", "access", "rw-", Some("bob"));
        let staff = entry("group", "access", "rwx", Some("staff"));
        let own = entry("group", "access", "r--", None);
        let inherited = entry("user", "default", "rwx", Some("bob"));
        for (mode, entries, narrow) in [
            (0o664, vec![bob.clone(), own.clone()], 0o644),
            (0o624, vec![bob.clone(), staff.clone(), own], 0o604),
            (0o664, vec![bob, staff], 0o604),
            (0o1770, vec![inherited], 0o1770),
            (0o664, vec![], 0o664),
        ] {
            assert_eq!(narrowed(mode, &entries), narrow, "{mode:o} {entries:?}");
        }
    }

    #[test]
    fn the_mark_of_hadoop_2_takes_the_group_bits_away() {
        assert_eq!(without_mask(0o664 | ACL_BIT), 0o604);
        assert_eq!(without_mask(0o664), 0o664);
    }
}
