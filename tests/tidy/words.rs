//! Rules for words: what is unfinished, names that say nothing, and traces of the machine that a file was written on.
//! Each banned word comes with what to do instead. Banned words are put together here, so that this file passes.

use crate::blank::blank;
use crate::tree::Tree;

/// A word, and what to do instead.
type Ban = (String, &'static str);

/// Words of unfinished work: whole words, case counts.
fn unfinished() -> Vec<Ban> {
    let instead = "finish it, or say in a document what is not done";
    [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["XX", "X"],
        ["todo", "!"],
        ["unimplemented", "!"],
    ]
    .map(|word| (word.concat(), instead))
    .into()
}

/// Names of places that only the author's machine or network knows.
fn places() -> Vec<Ban> {
    let machine = "a path of one machine: use a relative path, an argument or mktemp";
    let registry = "a registry's host: name the package and the tool that fetches it";
    let machine = [["/wo", "rk/"], ["/ro", "ot/"]].map(|word| (word.concat(), machine));
    let registry = [
        ["crates", ".io"],
        ["repo.maven.", "apache.org"],
        ["repo1.", "maven.org"],
        ["py", "pi.org"],
        ["files.python", "hosted.org"],
        ["registry.", "npmjs.org"],
        ["proxy.", "golang.org"],
    ]
    .map(|word| (word.concat(), registry));
    machine.into_iter().chain(registry).collect()
}

/// Nothing unfinished in any written file.
pub(crate) fn finished(tree: &Tree) -> Vec<String> {
    find(tree, &unfinished())
}

/// No path of a machine, no host of a registry. Cargo.lock is cargo's.
pub(crate) fn portable(tree: &Tree) -> Vec<String> {
    find(tree, &places())
}

fn find(tree: &Tree, bans: &[Ban]) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, file) in tree.written().filter(|(path, _)| *path != "Cargo.lock") {
        for (index, line) in file.text.lines().enumerate() {
            for (word, instead) in bans.iter().filter(|(word, _)| has_word(line, word)) {
                findings.push(format!("{path}:{}: {word} — {instead}", index + 1));
            }
        }
    }
    findings
}

/// Whether `word` stands in the line, not as a part of a longer word or path.
fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    // A path that begins elsewhere is another path: `$HOME/…`, `./…`, `{dir}/…`.
    let joins_before = |c: char| joins(c) || word.starts_with('/') && "./}~-)".contains(c);
    line.match_indices(word).any(|(at, _)| {
        let after = &line[at + word.len()..];
        let ends = !word.ends_with(char::is_alphanumeric) || !after.starts_with(joins);
        !line[..at].ends_with(joins_before) && ends
    })
}

/// Types and modules are named for what they are.
pub(crate) fn names(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, file) in tree.ending(".rs") {
        let code = blank(&file.text);
        for (at, keyword) in ["struct ", "enum ", "trait ", "type ", "union ", "mod "]
            .iter()
            .flat_map(|k| code.match_indices(k))
        {
            let begins = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let rest = &code[at + keyword.len()..];
            let name = rest
                .split(|c: char| !(c.is_alphanumeric() || c == '_'))
                .next()
                .unwrap_or_default();
            if begins && says_nothing(name) {
                let line = code[..at].matches('\n').count() + 1;
                findings.push(format!(
                    "{path}:{line}: {keyword}{name} says nothing: name what it is or does"
                ));
            }
        }
        let stem = path
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .trim_end_matches(".rs");
        if says_nothing(stem) || path.split('/').any(says_nothing) {
            findings.push(format!(
                "{path}: the file's name says nothing: name what is in it"
            ));
        }
    }
    findings
}

fn says_nothing(name: &str) -> bool {
    let lower = name.to_lowercase();
    let words = [["man", "ager"], ["hel", "per"]].map(|word| word.concat());
    let whole = ["util", "utils", "common", "misc", "helpers", "managers"];
    whole.contains(&lower.as_str())
        || words.iter().any(|word| lower.ends_with(word))
        || name.ends_with("Util")
        || name.ends_with("Utils")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(parts: &[&str]) -> Tree {
        Tree::of(&[("a/src/lib.rs", &parts.concat())])
    }

    #[test]
    fn unfinished_work_is_found() {
        for bad in [
            ["// TO", "DO later"],
            ["to", "do!()"],
            ["#FIX", "ME"],
            ["unimplemented", "!(\"x\")"],
            ["# XX", "X:"],
        ] {
            assert_eq!(finished(&join(&bad)).len(), 1, "{bad:?}");
        }
        for good in [["mktemp -d x.XXXX", "XX"], ["TO", "DOS"], ["to", "do"]] {
            assert_eq!(finished(&join(&good)), Vec::<String>::new(), "{good:?}");
        }
    }

    #[test]
    fn a_path_of_one_machine_and_a_registry_are_found() {
        for bad in [
            ["cp /wo", "rk/x ."],
            ["\"/ro", "ot/.cache\""],
            ["https://static.crates", ".io/x"],
            ["see py", "pi.org"],
        ] {
            assert!(!portable(&join(&bad)).is_empty(), "{bad:?}");
        }
        for good in [["$dir/wo", "rk/x"], ["./ro", "ot/x"], ["{dir}/wo", "rk/"]] {
            assert_eq!(portable(&join(&good)), Vec::<String>::new(), "{good:?}");
        }
        let lock = Tree::of(&[("Cargo.lock", &["crates", ".io"].concat())]);
        assert_eq!(portable(&lock), Vec::<String>::new());
    }

    #[test]
    fn a_name_that_says_nothing_is_found() {
        for bad in [
            ["struct PageMan", "ager;"],
            ["mod uti", "ls;"],
            ["pub trait ReadHel", "per {"],
            ["mod com", "mon {"],
        ] {
            assert_eq!(names(&join(&bad)).len(), 1, "{bad:?}");
        }
        assert_eq!(
            names(&Tree::of(&[(&["a/src/uti", "l.rs"].concat(), "")])).len(),
            1
        );
        for good in [
            ["// the mount hel", "per"],
            ["struct Commo", "nPrefix;"],
            ["fn help", "er() {}"],
        ] {
            assert_eq!(names(&join(&good)), Vec::<String>::new(), "{good:?}");
        }
    }
}
