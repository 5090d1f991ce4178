//! What an error of `hdfs-native` means to a caller: one total function from error to kind.
//!
//! A NameNode answers with the name of a Java class; the class decides, not the text, but for two classes that Hadoop
//! uses for several things. An unknown class is `Unavailable`: it may pass, and it must not look like a missing file.

use hdfs_native::HdfsError;

use crate::error::{Error, ErrorKind};

/// The error of this crate for `error`, which happened while doing `what` (for instance "cannot open /a/b").
pub(super) fn describe(what: &str, error: &HdfsError) -> Error {
    let kind = kind_of(error);
    let advice = match kind {
        ErrorKind::Denied => "; check the file's permissions and this user's credentials",
        ErrorKind::Unsupported => "; this client cannot read such a file",
        _ => "",
    };
    Error::with_cause(kind, format!("{what}{advice}"), first_line(error))
}

/// NameNodes send a whole Java stack trace; its first line says it all.
fn first_line(error: &HdfsError) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    // The client's reader remembers who failed once, and then says so of nobody.
    if line.contains("All DataNodes failed: []") {
        return "no DataNode that has this HDFS block could be read from (`hdfs fsck PATH -files -blocks -locations` names \
                them)"
            .to_owned();
    }
    line.to_owned()
}

/// Kind of `error`. Total: a new variant of the client does not compile until it has a kind here.
pub(super) fn kind_of(error: &HdfsError) -> ErrorKind {
    match error {
        HdfsError::FileNotFound(_) | HdfsError::InvalidPath(_) => ErrorKind::NotFound,
        HdfsError::IsADirectoryError(_) => ErrorKind::IsDirectory,
        HdfsError::RPCError(class, text) | HdfsError::FatalRPCError(class, text) => {
            kind_of_exception(class, text)
        }
        HdfsError::SASLError(_) | HdfsError::GSSAPIError(..) | HdfsError::NoSASLMechanism => {
            ErrorKind::Denied
        }
        HdfsError::ChecksumError | HdfsError::InvalidRPCResponse(_) => ErrorKind::Corrupt,
        HdfsError::UnsupportedErasureCodingPolicy(_) | HdfsError::UnsupportedFeature(_) => {
            ErrorKind::Unsupported
        }
        HdfsError::InvalidArgument(_)
        | HdfsError::UrlParseError(_)
        | HdfsError::XmlParseError(_)
        | HdfsError::TrashNotEnabled
        | HdfsError::AlreadyExists(_) => ErrorKind::Invalid,
        HdfsError::IOError(_)
        | HdfsError::DataTransferError(_)
        | HdfsError::BlocksNotFound(_)
        | HdfsError::OperationFailed(_)
        | HdfsError::ErasureCodingError(_)
        | HdfsError::InternalError(_) => ErrorKind::Unavailable,
    }
}

fn kind_of_exception(class: &str, text: &str) -> ErrorKind {
    let name = class.rsplit(['.', '$']).next().unwrap_or(class);
    match name {
        // Opening a directory is a FileNotFoundException, too.
        "FileNotFoundException" if text.contains("is not a file") => ErrorKind::IsDirectory,
        "FileNotFoundException" | "InvalidPathException" => ErrorKind::NotFound,
        "ParentNotDirectoryException" | "PathIsNotDirectoryException" => ErrorKind::NotDirectory,
        // Hadoop before 2.8 says so where the parent is a file.
        "AccessControlException" if text.contains("is not a directory") => ErrorKind::NotDirectory,
        // Or that the file, whose mode is the last field and begins with a dash, cannot be passed through.
        "AccessControlException" if text.contains("access=EXECUTE") && mode_field(text).starts_with('-') => {
            ErrorKind::NotDirectory
        }
        "AccessControlException"
        | "AuthorizationException"
        | "InvalidToken"
        | "SaslException"
        | "GSSException" => ErrorKind::Denied,
        "UnresolvedPathException" | "UnresolvedLinkException" | "RpcNoSuchMethodException" => {
            ErrorKind::Unsupported
        }
        _ => ErrorKind::Unavailable,
    }
}

/// The end of `Permission denied: user=alice, access=EXECUTE, inode="/a":root:supergroup:-rw-r--r--`.
fn mode_field(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.rsplit(':').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_nobody_says_what_to_do() {
        let error = HdfsError::DataTransferError("All DataNodes failed: []".to_owned());
        let text = format!("{:?}", describe("cannot read bytes 0..1 of /a", &error));
        assert!(text.contains("hdfs fsck") && !text.contains("[]"), "{text}");
    }

    #[test]
    fn exceptions_are_told_apart_by_class() {
        for (class, text, kind) in [
            (
                "java.io.FileNotFoundException",
                "File does not exist: /a",
                ErrorKind::NotFound,
            ),
            (
                "java.io.FileNotFoundException",
                "Path is not a file: /a",
                ErrorKind::IsDirectory,
            ),
            (
                "org.apache.hadoop.security.AccessControlException",
                "Permission denied: user=bob",
                ErrorKind::Denied,
            ),
            (
                "org.apache.hadoop.security.AccessControlException",
                "/a (is not a directory)",
                ErrorKind::NotDirectory,
            ),
            (
                "org.apache.hadoop.security.AccessControlException",
                "Permission denied: user=alice, access=EXECUTE, inode=\"/a/b\":root:supergroup:-rw-r--r--\n\tat X",
                ErrorKind::NotDirectory,
            ),
            (
                "org.apache.hadoop.security.AccessControlException",
                "Permission denied: user=alice, access=EXECUTE, inode=\"/a:-/b\":root:supergroup:drwx------",
                ErrorKind::Denied,
            ),
            (
                "org.apache.hadoop.fs.ParentNotDirectoryException",
                "/a (is not a directory)",
                ErrorKind::NotDirectory,
            ),
            (
                "org.apache.hadoop.security.token.SecretManager$InvalidToken",
                "token expired",
                ErrorKind::Denied,
            ),
            (
                "org.apache.hadoop.ipc.StandbyException",
                "standby",
                ErrorKind::Unavailable,
            ),
            (
                "org.apache.hadoop.hdfs.server.namenode.SafeModeException",
                "",
                ErrorKind::Unavailable,
            ),
            ("java.lang.NullPointerException", "", ErrorKind::Unavailable),
        ] {
            assert_eq!(kind_of_exception(class, text), kind, "{class} {text}");
        }
    }

    #[test]
    fn the_stack_trace_of_the_namenode_stays_out_of_the_message() {
        let error = HdfsError::RPCError("java.io.IOException".into(), "broken\n\tat X\n\tat Y".into());
        let error = describe("cannot open /a", &error);
        assert!(!format!("{error:?}").contains("at X"), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}
