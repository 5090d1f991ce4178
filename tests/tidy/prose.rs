//! Rules for Markdown: links and anchors resolve, what looks like a path of this repository is one, and a document has
//! exactly one title. Prose that no machine checks goes false.

use crate::tree::{Tree, resolve};

/// One line of a document and whether it stands in a fenced code block.
pub(crate) struct Line<'a> {
    pub(crate) number: usize,
    pub(crate) text: &'a str,
    pub(crate) fenced: bool,
}

pub(crate) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut inside = false;
    text.lines().enumerate().filter_map(move |(index, text)| {
        if text.trim_start().starts_with("```") {
            inside = !inside;
            return None;
        }
        Some(Line {
            number: index + 1,
            text,
            fenced: inside,
        })
    })
}

/// The contents of the code spans of a line.
pub(crate) fn spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// Every relative link leads to a file of the tree, and every anchor to a heading.
pub(crate) fn links_resolve(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, file) in tree.ending(".md") {
        for line in lines(&file.text).filter(|line| !line.fenced) {
            for link in links(line.text) {
                if let Some(reason) = broken(tree, path, link) {
                    findings.push(format!("{path}:{}: link `{link}` {reason}", line.number));
                }
            }
        }
    }
    findings
}

fn links(line: &str) -> Vec<&str> {
    let inline = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next());
    let reference = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .map(|(_, target)| target.trim());
    inline.chain(reference).collect()
}

fn broken(tree: &Tree, document: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (target, anchor) = link
        .split_once('#')
        .map_or((link, None), |(target, anchor)| (target, Some(anchor)));
    let target = if target.is_empty() {
        Some(document.to_owned())
    } else {
        resolve(document, target)
    };
    let Some(target) = target.filter(|target| tree.has(target)) else {
        return Some("leads nowhere in this tree".to_owned());
    };
    let anchor = anchor?;
    let text = tree.get(&target).map_or("", |file| file.text.as_str());
    let found = lines(text)
        .filter(|line| !line.fenced)
        .any(|line| heading(line.text).is_some_and(|h| h == anchor));
    (!found).then(|| format!("names no heading of {target}"))
}

/// A heading as the anchor that web views make of it.
fn heading(line: &str) -> Option<String> {
    let title = line
        .strip_prefix('#')?
        .trim_start_matches('#')
        .strip_prefix(' ')?;
    let kept = title
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    Some(kept.collect::<String>().trim().to_lowercase().replace(' ', "-"))
}

/// What looks like a path of this repository, in a code span or at the start of a command, is one.
pub(crate) fn paths_exist(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, file) in tree.ending(".md") {
        for line in lines(&file.text) {
            let words: Vec<&str> = if line.fenced {
                line.text
                    .split_whitespace()
                    .filter(|word| is_rooted(tree, word) && has_known_ending(word))
                    .collect()
            } else {
                spans(line.text)
                    .into_iter()
                    .filter_map(|span| span.split_whitespace().next())
                    .collect()
            };
            for word in words.into_iter().filter(|word| is_missing(tree, path, word)) {
                findings.push(format!(
                    "{path}:{}: there is no `{word}` in this tree",
                    line.number
                ));
            }
        }
    }
    findings
}

/// Documents that comments of code and scripts name exist too.
pub(crate) fn documents_named_in_code_exist(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    let files = [".rs", ".sh", ".toml"]
        .into_iter()
        .flat_map(|ending| tree.ending(ending));
    for (path, file) in files.filter(|(path, _)| !path.starts_with("tests/tidy")) {
        for (index, line) in file.text.lines().enumerate() {
            let trimmed = line.trim_start();
            if !(trimmed.starts_with("//") || trimmed.starts_with('#')) {
                continue;
            }
            for word in trimmed.split(|c: char| !(c.is_ascii_alphanumeric() || "._-/".contains(c))) {
                let word = word.trim_end_matches('.');
                if word.len() > 3 && word.ends_with(".md") && is_missing(tree, path, word) {
                    findings.push(format!("{path}:{}: there is no {word} in this tree", index + 1));
                }
            }
        }
    }
    findings
}

fn is_missing(tree: &Tree, document: &str, word: &str) -> bool {
    let word = word.trim_start_matches("./");
    let is_plain = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    if !is_plain || word.starts_with(['/', '.']) && !word.starts_with("..") && !is_rooted(tree, word) {
        return false;
    }
    let bare_file = !word.contains('/') && has_known_ending(word) && !word.starts_with('.');
    let path_like = word.contains('/') && (is_rooted(tree, word) || has_known_ending(word));
    if !bare_file && !path_like {
        return false;
    }
    let found = tree.has(word)
        || resolve(document, word).is_some_and(|path| tree.has(&path))
        || !word.starts_with("..") && tree.has_ending(word);
    !found
}

fn is_rooted(tree: &Tree, word: &str) -> bool {
    word.trim_start_matches("./")
        .split_once('/')
        .is_some_and(|(first, _)| tree.is_top_folder(first))
}

fn has_known_ending(word: &str) -> bool {
    [".rs", ".md", ".sh", ".toml", ".service", ".jars"]
        .iter()
        .any(|end| word.len() > end.len() && word.ends_with(end))
}

/// A document has one title, as its first heading.
pub(crate) fn one_title(tree: &Tree) -> Vec<String> {
    let titles = |text: &str| {
        lines(text)
            .filter(|line| !line.fenced && line.text.starts_with("# "))
            .count()
    };
    tree.ending(".md")
        .map(|(path, file)| (path, titles(&file.text)))
        .filter(|(_, count)| *count != 1)
        .map(|(path, count)| format!("{path}: {count} titles (`# `), where a document has one"))
        .collect()
}

/// Whatever fs/TROUBLESHOOTING.md says that a command says is in the code; `…` stands for what differs.
pub(crate) fn messages_are_said(tree: &Tree) -> Vec<String> {
    let joined = |text: &str| {
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let words = text.lines().filter(is_code).flat_map(str::split_whitespace);
        words.collect::<Vec<_>>().join(" ")
    };
    let code: Vec<String> = tree
        .ending(".rs")
        .filter(|(path, _)| {
            ["fs/src/", "cache/src/"]
                .iter()
                .any(|part| path.starts_with(part))
        })
        // A string that goes on in the next line.
        .map(|(_, file)| joined(&file.text).replace("\\ ", ""))
        .collect();
    let document = tree.get("fs/TROUBLESHOOTING.md").map_or("", |file| &file.text);
    let (mut findings, mut is_quoted) = (Vec::new(), false);
    for line in lines(document) {
        is_quoted = line.text.starts_with("| what it says") || is_quoted && line.text.starts_with('|');
        let cell = line.text.split('|').nth(1).unwrap_or_default();
        for span in spans(cell).into_iter().filter(|_| is_quoted) {
            let is_said = |part: &&str| code.iter().any(|text| text.contains(part.trim()));
            if let Some(part) = span.split('…').find(|part| !is_said(part)) {
                findings.push(format!(
                    "fs/TROUBLESHOOTING.md:{}: nothing says `{part}`",
                    line.number
                ));
            }
        }
    }
    findings
}

#[test]
fn a_message_that_nothing_says_is_found() {
    let document =
        "| what it says | why |\n|---|---|\n| `the disk … is full` | x |\n| `it is on fire` | y |\n";
    let code = "f(\"the disk {name} \\\n    is full\")";
    let tree = Tree::of(&[("fs/TROUBLESHOOTING.md", document), ("fs/src/a.rs", code)]);
    let findings = messages_are_said(&tree);
    assert_eq!(
        findings,
        ["fs/TROUBLESHOOTING.md:4: nothing says `it is on fire`"]
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Tree {
        Tree::of(&[
            ("doc/a.md", text),
            ("doc/b.md", "# B\n## Cold reads, warm\n"),
            ("fs/src/lib.rs", ""),
            ("run.sh", ""),
        ])
    }

    #[test]
    fn a_dead_link_is_found() {
        assert_eq!(links_resolve(&tree("see [b](c.md)")).len(), 1);
        assert_eq!(links_resolve(&tree("[b]: ../../b.md")).len(), 1);
        assert_eq!(links_resolve(&tree("see [b](b.md#warm-reads)")).len(), 1);
        let good = "[b](b.md), [b](b.md#cold-reads-warm), [l](../fs/src/), [h](https://example.org/x)\n```\n[x](y)\n```";
        assert_eq!(links_resolve(&tree(good)), Vec::<String>::new());
    }

    #[test]
    fn a_path_that_is_not_there_is_found() {
        for bad in [
            "`fs/src/gone.rs`",
            "`gone.sh`",
            "`fs/src/gone.rs start`",
            "```\nfs/gone.sh all\n```",
            "`../gone.md`",
        ] {
            assert_eq!(paths_exist(&tree(bad)).len(), 1, "{bad}");
        }
        for good in [
            "`fs/src/lib.rs`",
            "`lib.rs`",
            "`src/lib.rs`",
            "`/mnt/a.toml`",
            "`a/b`",
            "`run.sh all`",
            "`x::y`",
            "`*.rs`",
        ] {
            assert_eq!(paths_exist(&tree(good)), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn a_document_that_only_a_comment_knows_is_found() {
        let bad = Tree::of(&[("fs/src/a.rs", "//! See fs/GONE.md.\nlet x = \"OTHER.md\";")]);
        assert_eq!(documents_named_in_code_exist(&bad).len(), 1);
        let good = Tree::of(&[("fs/src/a.rs", "// See fs/HERE.md."), ("fs/HERE.md", "# H")]);
        assert_eq!(documents_named_in_code_exist(&good), Vec::<String>::new());
    }

    #[test]
    fn no_title_and_two_titles_are_found() {
        assert_eq!(one_title(&tree("text\n```\n# no title\n```")).len(), 1);
        assert_eq!(one_title(&tree("# One\n# Two")).len(), 1);
        assert_eq!(
            one_title(&tree("# One\n## Part\n```\n# comment\n```")),
            Vec::<String>::new()
        );
    }
}
