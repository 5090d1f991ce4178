//! The rule for promises: each number in fs/SEMANTICS.md is quoted by a test.

use std::collections::BTreeSet;

use crate::code::{before_tests, is_test};
use crate::tree::Tree;

/// Numbers are promised in headings, table rows and list items that begin with `P1`, bold or not.
fn promised(text: &str) -> BTreeSet<u32> {
    let begins = text
        .lines()
        .map(|line| line.trim_start_matches(['#', '|', '-', '*', ' ', '`']));
    begins
        .filter_map(|line| {
            numbers(line)
                .into_iter()
                .next()
                .filter(|n| line.starts_with(&format!("P{n}")))
        })
        .collect()
}

/// All `P1` or `p1_` of a text.
fn numbers(text: &str) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(['P', 'p']) {
        let before = text[..at].chars().next_back();
        let digits: String = text[at + 1..].chars().take_while(char::is_ascii_digit).collect();
        let after = text[at + 1 + digits.len()..].chars().next();
        let is_name = text[at..].starts_with('p');
        let begins = before.is_none_or(|c| !c.is_alphanumeric() && (c != '_' || is_name));
        let ends = if is_name {
            after == Some('_')
        } else {
            after.is_none_or(|c| !c.is_alphanumeric() && c != '_')
        };
        if begins && ends {
            found.extend(digits.parse::<u32>());
        }
    }
    found
}

/// Each promise has a test that names it. There must be promises as soon as there is a filesystem.
pub(crate) fn proven(tree: &Tree) -> Vec<String> {
    let Some(document) = tree.get("fs/SEMANTICS.md") else {
        let needed = tree.has("fs/src/fuse.rs") || tree.has("fs/src/fuse");
        return needed
            .then(|| "fs/SEMANTICS.md is missing: a filesystem without promises".to_owned())
            .into_iter()
            .collect();
    };
    let promised = promised(&document.text);
    if promised.is_empty() {
        return vec!["fs/SEMANTICS.md: no heading, row or item begins with a number such as `P1`".to_owned()];
    }
    let mut quoted = BTreeSet::new();
    for (path, file) in tree
        .ending(".rs")
        .filter(|(path, _)| !path.starts_with("tests/tidy"))
    {
        let from = if is_test(path) {
            0
        } else {
            before_tests(&file.text).len()
        };
        quoted.extend(numbers(&file.text[from..]));
    }
    for (_, file) in tree.ending(".sh").filter(|(path, _)| path.starts_with("tests/")) {
        quoted.extend(numbers(&file.text));
    }
    promised
        .difference(&quoted)
        .map(|n| format!("fs/SEMANTICS.md: no test quotes P{n}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: (&str, &str) = (
        "fs/SEMANTICS.md",
        "# S\n## P1 one version\n- **P2** a change shows\n| P3 | deadline |\nsee P9",
    );

    #[test]
    fn promises_are_read() {
        assert_eq!(promised(DOCUMENT.1), BTreeSet::from([1, 2, 3]));
        assert_eq!(
            numbers("P1, (P2) fn p3_reads() XP4 P5x P6_a p7 fn test_p8_x"),
            BTreeSet::from([1, 2, 3, 8])
        );
    }

    #[test]
    fn a_promise_without_a_test_is_found() {
        let code = "//! P3 is kept here.\n#[cfg(test)]\nmod tests {\n    fn p2_holds() {}\n}\n";
        let bad = Tree::of(&[DOCUMENT, ("tests/a.rs", "// P1"), ("fs/src/a.rs", code)]);
        assert_eq!(proven(&bad), ["fs/SEMANTICS.md: no test quotes P3"]);
        let good = Tree::of(&[DOCUMENT, ("tests/a.rs", "// P1 and P3"), ("fs/src/a.rs", code)]);
        assert_eq!(proven(&good), Vec::<String>::new());
    }

    #[test]
    fn a_filesystem_without_promises_is_found() {
        assert_eq!(proven(&Tree::of(&[("fs/src/fuse.rs", "")])).len(), 1);
        assert_eq!(proven(&Tree::of(&[("fs/SEMANTICS.md", "# S\nnone")])).len(), 1);
        assert_eq!(proven(&Tree::of(&[("fs/src/lib.rs", "")])), Vec::<String>::new());
    }
}
