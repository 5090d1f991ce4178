//! Paths in JSON and in metrics, without loss: a path is bytes, and need not be UTF-8.
//!
//! Owns the one way they are written: as text where they are UTF-8, else in JSON as the array of their bytes, and in a
//! label of a metric with `\xNN` for each byte that is no printable ASCII. Called through `serde` by what
//! [`crate::control`] and [`crate::stats`] send.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Utf8(String),
    Bytes(Vec<u8>),
}

impl From<&PathBuf> for Text {
    fn from(path: &PathBuf) -> Text {
        match path.to_str() {
            Some(text) => Text::Utf8(text.to_owned()),
            None => Text::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<Text> for PathBuf {
    fn from(text: Text) -> PathBuf {
        match text {
            Text::Utf8(text) => PathBuf::from(text),
            Text::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        }
    }
}

/// A path as the label of a metric, where two paths never look the same unless one is written to.
pub fn escaped(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.to_owned(),
        None => path.as_os_str().as_bytes().escape_ascii().to_string(),
    }
}

/// One path.
///
/// # Errors
/// As the serializer says.
pub fn serialize<S: Serializer>(path: &PathBuf, serializer: S) -> Result<S::Ok, S::Error> {
    Text::from(path).serialize(serializer)
}

/// One path.
///
/// # Errors
/// Where it is neither text nor an array of bytes.
pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Text::deserialize(deserializer).map(PathBuf::from)
}

/// A path, or none.
pub mod option {
    use super::{Deserialize, Deserializer, PathBuf, Serialize, Serializer, Text};

    /// A path, or null.
    ///
    /// # Errors
    /// As the serializer says.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_ref().map(Text::from).serialize(serializer)
    }

    /// A path, or null.
    ///
    /// # Errors
    /// Where it is neither text nor an array of bytes.
    pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        let text = Option::<Text>::deserialize(deserializer)?;
        Ok(text.map(PathBuf::from))
    }
}

/// Several paths.
pub mod all {
    use super::{Deserialize, Deserializer, PathBuf, Serialize, Serializer, Text};

    /// Each path in its way.
    ///
    /// # Errors
    /// As the serializer says.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        let texts: Vec<Text> = paths.iter().map(Text::from).collect();
        texts.serialize(serializer)
    }

    /// Each path in its way.
    ///
    /// # Errors
    /// Where one is neither text nor an array of bytes.
    pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        let texts = Vec::<Text>::deserialize(deserializer)?;
        Ok(texts.into_iter().map(PathBuf::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sent {
        #[serde(with = "super")]
        one: PathBuf,
        #[serde(with = "super::option")]
        maybe: Option<PathBuf>,
        #[serde(with = "super::all")]
        all: Vec<PathBuf>,
    }

    #[test]
    fn what_is_sent_comes_back_whatever_its_bytes() {
        let odd = || PathBuf::from(OsString::from_vec(b"/m\xff\xfe".to_vec()));
        let plain = || PathBuf::from("/m\u{e9}");
        let sent = Sent {
            one: odd(),
            maybe: Some(odd()),
            all: vec![plain(), odd()],
        };
        let json = serde_json::to_string(&sent).unwrap();
        assert_eq!(
            json,
            "{\"one\":[47,109,255,254],\"maybe\":[47,109,255,254],\"all\":[\"/m\u{e9}\",[47,109,255,254]]}"
        );
        assert_eq!(serde_json::from_str::<Sent>(&json).unwrap(), sent);
        assert_eq!(
            (escaped(&odd()), escaped(&plain())),
            ("/m\\xff\\xfe".into(), "/m\u{e9}".into())
        );
    }
}
