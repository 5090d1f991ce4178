//! Reads a Hadoop configuration folder as Hadoop does: `core-site.xml`, then `hdfs-site.xml`, with `xi:include`,
//! `final` and `${name}`; `hdfs-native` itself knows neither of the three.
//!
//! Refuses: include chains deeper than [`DEPTH_MAX`], files over [`FILE_BYTES_MAX`], a reference that never ends.
//! `${env.NAME}` and system properties of a Java process are not known here and stay as they are.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

const DEPTH_MAX: usize = 8;
const FILE_BYTES_MAX: u64 = 16 << 20;
const ENTITIES_MAX: usize = 32;
/// As in Hadoop.
const SUBSTITUTIONS_MAX: usize = 20;

/// All properties of the folder `dir`, then those of `overrides`, which win.
pub(super) fn load(dir: Option<&Path>, overrides: &[(String, String)]) -> Result<HashMap<String, String>> {
    let mut properties = Properties::default();
    if let Some(dir) = dir {
        if !dir.is_dir() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "the Hadoop configuration {} is no folder: set HADOOP_CONF_DIR or hadoop_conf to one that has \
                     core-site.xml and hdfs-site.xml",
                    dir.display()
                ),
            ));
        }
        for name in ["core-site.xml", "hdfs-site.xml"] {
            let file = dir.join(name);
            if file.exists() {
                properties.read(&file, 0)?;
            }
        }
    }
    for (name, value) in overrides {
        properties.values.insert(name.clone(), value.clone());
    }
    Ok(properties
        .values
        .iter()
        .map(|(name, value)| (name.clone(), expand(value, &properties.values)))
        .collect())
}

#[derive(Default)]
struct Properties {
    values: HashMap<String, String>,
    finals: Vec<String>,
}

impl Properties {
    fn read(&mut self, file: &Path, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(refuse(file, "xi:include goes deeper than 8 files"));
        }
        let text = read_text(file)?;
        let folder = file.parent().unwrap_or(Path::new("/"));
        let entities: [OnceCell<String>; ENTITIES_MAX] = Default::default();
        let used = Cell::new(0);
        let resolve = |_: Option<&str>, uri: &str| {
            let slot = entities.get(used.get()).ok_or("too many entities")?;
            used.set(used.get() + 1);
            let path = beneath(folder, uri).ok_or("an entity may only name a file beside this one")?;
            let text = read_text(&path).map_err(|error| error.to_string())?;
            Ok(Some(slot.get_or_init(|| text).as_str()))
        };
        let options = roxmltree::ParsingOptions {
            allow_dtd: true,
            entity_resolver: Some(&resolve),
            ..Default::default()
        };
        let document = roxmltree::Document::parse_with_options(&text, options)
            .map_err(|error| refuse(file, &error.to_string()))?;
        let root = document.root_element();
        if root.tag_name().name() != "configuration" {
            return Err(refuse(file, "the outermost element is not <configuration>"));
        }
        self.take(&root, file, depth)
    }

    fn take(&mut self, parent: &roxmltree::Node<'_, '_>, file: &Path, depth: usize) -> Result<()> {
        for node in parent.children().filter(roxmltree::Node::is_element) {
            match node.tag_name().name() {
                "property" => self.take_property(&node),
                // A configuration inside of one counts as its content, in Hadoop too.
                "configuration" if depth < DEPTH_MAX => self.take(&node, file, depth + 1)?,
                "include" => self.include(&node, file, depth)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn take_property(&mut self, property: &roxmltree::Node<'_, '_>) {
        let text_of = |name: &str| {
            property
                .children()
                .find(|child| child.tag_name().name() == name)
                .map(|child| child.text().unwrap_or_default())
        };
        let (Some(name), Some(value)) = (text_of("name"), text_of("value")) else {
            return;
        };
        let name = name.trim().to_owned();
        if !self.finals.contains(&name) {
            if text_of("final").is_some_and(|text| text.trim() == "true") {
                self.finals.push(name.clone());
            }
            self.values.insert(name, value.trim().to_owned());
        }
    }

    fn include(&mut self, node: &roxmltree::Node<'_, '_>, file: &Path, depth: usize) -> Result<()> {
        let href = node
            .attribute("href")
            .ok_or_else(|| refuse(file, "xi:include has no href"))?;
        let href = href.strip_prefix("file://").unwrap_or(href);
        let folder = file.parent().unwrap_or(Path::new("/"));
        let target = folder.join(href);
        if target.exists() {
            return self.read(&target, depth + 1);
        }
        let fallback = node
            .children()
            .find(|child| child.tag_name().name() == "fallback");
        match fallback {
            Some(fallback) => self.take(&fallback, file, depth + 1),
            None => Err(refuse(
                file,
                &format!("it includes {}, which does not exist", target.display()),
            )),
        }
    }
}

fn read_text(file: &Path) -> Result<String> {
    let fail = |error: std::io::Error| {
        Error::with_cause(
            ErrorKind::Invalid,
            format!("cannot read the Hadoop configuration {}", file.display()),
            error,
        )
    };
    if std::fs::metadata(file).map_err(fail)?.len() > FILE_BYTES_MAX {
        return Err(refuse(file, "it is larger than 16 MiB"));
    }
    std::fs::read_to_string(file).map_err(fail)
}

/// `name` inside `folder`; none where it would lead elsewhere.
fn beneath(folder: &Path, name: &str) -> Option<PathBuf> {
    let plain = Path::new(name)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    plain.then(|| folder.join(name))
}

fn refuse(file: &Path, why: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!("the Hadoop configuration {}: {why}", file.display()),
    )
}

/// Replaces each `${name}` that is known.
fn expand(value: &str, values: &HashMap<String, String>) -> String {
    let mut value = value.to_owned();
    let mut from = 0;
    for _ in 0..SUBSTITUTIONS_MAX {
        let Some(start) = value[from..].find("${").map(|at| at + from) else {
            break;
        };
        let Some(end) = value[start..].find('}').map(|at| at + start) else {
            break;
        };
        match values.get(&value[start + 2..end]) {
            Some(known) => value.replace_range(start..=end, known),
            None => from = end,
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn property(name: &str, value: &str) -> String {
        format!("<property><name>{name}</name><value> {value}\n</value></property>")
    }

    #[test]
    fn includes_references_and_final_work_as_in_hadoop() {
        let core = format!(
            "<configuration xmlns:xi=\"http://www.w3.org/2001/XInclude\"><xi:include href=\"more.xml\"/>\
             <xi:include href=\"none.xml\"><xi:fallback>{}</xi:fallback></xi:include>{}\
             <property><name>fixed</name><value>1</value><final>true</final></property></configuration>",
            property("fallen", "back"),
            property("fs.defaultFS", "hdfs://${ns}"),
        );
        let more = format!("<configuration>{}</configuration>", property("ns", "prod"));
        let hdfs = format!(
            "<?xml version=\"1.0\"?><configuration>{}{}{}</configuration>",
            property("fixed", "2"),
            property("unknown", "${no.such}/${ns}"),
            property("endless", "${endless}"),
        );
        let dir = folder(&[
            ("core-site.xml", &core),
            ("more.xml", &more),
            ("hdfs-site.xml", &hdfs),
        ]);
        let overrides = [("ns".to_owned(), "test".to_owned())];
        let values = load(Some(dir.path()), &overrides).unwrap();
        for (name, value) in [
            ("fs.defaultFS", "hdfs://test"),
            ("fallen", "back"),
            ("fixed", "1"),
            ("unknown", "${no.such}/test"),
            ("endless", "${endless}"),
        ] {
            assert_eq!(values[name], value, "{name}");
        }
    }

    #[test]
    fn an_entity_in_a_file_beside_it_is_read_and_one_elsewhere_is_refused() {
        let with = |uri: &str| {
            format!(
                "<!DOCTYPE configuration [<!ENTITY more SYSTEM \"{uri}\">]><configuration>&more;</configuration>"
            )
        };
        let dir = folder(&[
            ("core-site.xml", &with("more.ent")),
            ("more.ent", &property("a", "b")),
        ]);
        assert_eq!(load(Some(dir.path()), &[]).unwrap()["a"], "b");
        std::fs::write(dir.path().join("core-site.xml"), with("/etc/passwd")).unwrap();
        assert!(load(Some(dir.path()), &[]).is_err());
    }

    #[test]
    fn a_file_that_includes_itself_ends_in_an_error() {
        let dir = folder(&[(
            "core-site.xml",
            "<configuration><include href=\"core-site.xml\"/></configuration>",
        )]);
        let error = load(Some(dir.path()), &[]).unwrap_err();
        assert!(error.to_string().contains("deeper"), "{error}");
    }
}
