//! Rules for Rust sources: file and function sizes, the header, files that nothing compiles, and errno constants in one
//! place. Sees text, not a syntax tree: `blank` takes comments and literals out first, so that braces in them count for nothing.

use crate::blank::blank;
use crate::tree::Tree;

/// Lines before the first `#[cfg(test)]` that no file exceeds.
const FILE_LINES_MAX: usize = 500;
/// Above this many the file is listed as one to split.
const FILE_LINES_WISHED: usize = 300;
/// Lines of a function, signature and closing brace included.
const FUNCTION_LINES_MAX: usize = 70;

/// Functions that may be longer: (file, function, why).
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];

/// Errno constants outside of `fs/src/errno.rs`: (file, constant, why). One in a pattern or `Some(…)` needs no entry:
/// that asks what the kernel answered, and makes nothing.
const ERRNO_ALLOWED: &[(&str, &str, &str)] = &[];

/// The part of a source before its module of unit tests. A single item for tests does not end it.
pub(crate) fn before_tests(text: &str) -> &str {
    let module = text
        .match_indices("#[cfg(test)]\n")
        .find(|(at, line)| text[at + line.len()..].trim_start().starts_with("mod "));
    module.map_or(text, |(at, _)| &text[..at])
}

/// Whether a source is all tests.
pub(crate) fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Files over the budget, and those that come near it.
pub(crate) fn file_sizes(tree: &Tree) -> (Vec<String>, Vec<String>) {
    let (mut over, mut near) = (Vec::new(), Vec::new());
    for (path, file) in tree.ending(".rs") {
        if path.ends_with("/tests.rs") {
            continue; // unit tests that moved to a file of their own
        }
        let count = before_tests(&file.text).lines().count();
        if count > FILE_LINES_MAX {
            over.push(format!(
                "{path}: {count} lines before its tests, {FILE_LINES_MAX} at most: split it by role"
            ));
        } else if count > FILE_LINES_WISHED {
            near.push(format!(
                "{path}: {count} lines before its tests, {FILE_LINES_WISHED} wished"
            ));
        }
    }
    (over, near)
}

/// Functions with too many lines.
pub(crate) fn function_sizes(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, file) in tree.ending(".rs") {
        for (line, name, count) in functions(&blank(&file.text)) {
            let listed = LONG_FUNCTIONS
                .iter()
                .any(|(file, function, _)| *file == path && *function == name);
            if count > FUNCTION_LINES_MAX && !listed {
                findings.push(format!(
                    "{path}:{line}: fn {name} has {count} lines, {FUNCTION_LINES_MAX} at most"
                ));
            }
        }
    }
    findings
}

/// First line, name and line count of every function with a body. Nested functions count on their own and in the outer one.
fn functions(code: &str) -> Vec<(usize, String, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name: String = code[at + 3..]
            .trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if name.is_empty() {
            continue; // the type `fn (A) -> B`
        }
        if let Some(end) = body_end(code, at) {
            let first = code[..at].matches('\n').count() + 1;
            found.push((first, name, code[at..end].matches('\n').count() + 1));
        }
    }
    found
}

/// Where the body of the function at `at` ends; `None` for a declaration.
fn body_end(code: &str, at: usize) -> Option<usize> {
    let (mut round, mut curly) = (0_i32, 0_i32);
    for (offset, c) in code[at..].char_indices() {
        match c {
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            ';' if round == 0 && curly == 0 => return None,
            '{' => curly += 1,
            '}' => {
                curly -= 1;
                if curly == 0 && round == 0 {
                    return Some(at + offset + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Every source begins by saying what it owns; a crate may say it with its README.
pub(crate) fn headers(tree: &Tree) -> Vec<String> {
    tree.ending(".rs")
        .filter(|(_, file)| {
            !(file.text.starts_with("//! ") || file.text.starts_with("#![doc = include_str!(\""))
        })
        .map(|(path, _)| {
            format!("{path}: does not begin with `//! ` (what it owns, what it refuses, who calls it)")
        })
        .collect()
}

/// Every source is compiled by somebody: a root of a target, or named by a `mod` or `path`.
pub(crate) fn orphans(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, _) in tree.ending(".rs") {
        let package = path.split('/').next().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        let stem = name.trim_end_matches(".rs");
        let folder = path.strip_suffix(name).unwrap_or_default();
        let is_discovered = matches!(
            folder.strip_prefix(&format!("{package}/")),
            Some("tests/" | "examples/" | "benches/" | "src/bin/")
        );
        let module = if stem == "mod" {
            folder
                .trim_end_matches('/')
                .rsplit('/')
                .next()
                .unwrap_or_default()
        } else {
            stem
        };
        let named = |(other, file): (&str, &crate::tree::File)| {
            other.starts_with(&format!("{package}/"))
                && other != path
                && (other.ends_with(".rs") && file.text.contains(&format!("mod {module};"))
                    || (other.ends_with(".toml") || other.ends_with(".rs")) && names_path(&file.text, name))
        };
        if !matches!(name, "lib.rs" | "main.rs" | "build.rs") && !is_discovered && !tree.iter().any(named) {
            findings.push(format!(
                "{path}: no `mod {module};` and no `path` names it, so nothing compiles it"
            ));
        }
    }
    findings
}

/// Whether a `path = "…/name"` stands in the text.
fn names_path(text: &str, name: &str) -> bool {
    text.split("path = \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .any(|path| {
            path.strip_suffix(name)
                .is_some_and(|before| before.is_empty() || before.ends_with('/'))
        })
}

/// Errors become errno in one file. Elsewhere a constant may only be matched against what the kernel answered.
pub(crate) fn errno_constants(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, file) in tree.ending(".rs") {
        if path == "fs/src/errno.rs" || is_test(path) {
            continue;
        }
        let code = blank(before_tests(&file.text));
        for (at, name) in errnos(&code) {
            let listed = ERRNO_ALLOWED
                .iter()
                .any(|(file, constant, _)| *file == path && *constant == name);
            if !listed && !is_compared(&code[..at]) && !is_pattern(&code[at..]) {
                let line = code[..at].matches('\n').count() + 1;
                findings.push(format!(
                    "{path}:{line}: {name} outside of fs/src/errno.rs: make a typed error and map it there"
                ));
            }
        }
    }
    findings
}

fn errnos(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for prefix in ["libc::", "Errno::"] {
        for (at, _) in code.match_indices(prefix) {
            let rest = &code[at + prefix.len()..];
            let len = rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .unwrap_or(rest.len());
            let name = &rest[..len];
            let is_errno = name.len() > 2
                && name.starts_with('E')
                && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
                && !["EPOLL", "ECHO"].iter().any(|other| name.starts_with(other));
            if is_errno {
                found.push((at, name));
            }
        }
    }
    found
}

/// Whether the text ends within the parentheses of a `Some(` or `matches!(`.
fn is_compared(before: &str) -> bool {
    let asks = |text: &str| text.ends_with("Some") || text.ends_with("matches!");
    let mut depth = 0;
    for (at, c) in before.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' if depth == 0 && asks(&before[..at]) => return true,
            '(' if depth == 0 => {}
            '(' => depth -= 1,
            ';' | '{' | '}' => return false,
            _ => {}
        }
    }
    false
}

/// Whether the text begins with the rest of a match arm's pattern.
fn is_pattern(from: &str) -> bool {
    let in_pattern = |c: char| c.is_alphanumeric() || c.is_whitespace() || "_|:)".contains(c);
    from.trim_start_matches(in_pattern).starts_with("=>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Tree {
        Tree::of(&[("fs/src/lib.rs", text)])
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let (over, near) = file_sizes(&one(&"//! x\n".repeat(501)));
        assert_eq!((over.len(), near.len()), (1, 0));
        let (over, near) = file_sizes(&one(&"//! x\n".repeat(301)));
        assert_eq!((over.len(), near.len()), (0, 1));
        let tested = format!("//! x\n#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(600));
        let (over, near) = file_sizes(&one(&tested));
        assert_eq!((over.len(), near.len()), (0, 0));
        let early = format!(
            "#[cfg(test)]\nuse a;\n#[cfg(test)]\nfn b() {{}}\n{}",
            "\n".repeat(600)
        );
        assert_eq!(file_sizes(&one(&early)).0.len(), 1);
    }

    #[test]
    fn a_long_function_is_found() {
        let long = |lines: usize| {
            one(&format!(
                "impl A {{\n    fn f(a: [u8; 3]) -> u8 {{\n{}    }}\n}}\n",
                "let c = '}';\n".repeat(lines)
            ))
        };
        assert_eq!(function_sizes(&long(69)).len(), 1);
        assert_eq!(function_sizes(&long(68)), Vec::<String>::new());
        let declared = format!("trait T {{ fn f(&self);\n{}}}", "const A: u8 = 0;\n".repeat(100));
        assert_eq!(function_sizes(&one(&declared)), Vec::<String>::new());
    }

    #[test]
    fn a_missing_header_is_found() {
        assert_eq!(headers(&one("use std::fs;\n//! late")).len(), 1);
        assert_eq!(headers(&one("//! The crate.")), Vec::<String>::new());
        assert_eq!(
            headers(&one("#![doc = include_str!(\"../README.md\")]")),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_source_that_nothing_compiles_is_found() {
        let bad = Tree::of(&[
            ("fs/src/lib.rs", "mod a;"),
            ("fs/src/a.rs", ""),
            ("fs/src/b.rs", ""),
            ("cache/src/lib.rs", "mod b;"),
        ]);
        assert_eq!(orphans(&bad).len(), 1);
        let unnamed = Tree::of(&[
            ("tests/Cargo.toml", "path = \"a.rs\""),
            ("tests/a.rs", ""),
            ("tests/b.rs", ""),
            ("tests/c/a.rs", ""),
        ]);
        assert_eq!(orphans(&unnamed).len(), 1, "{:?}", orphans(&unnamed));
        let good = Tree::of(&[
            ("tests/tidy.rs", "#[path = \"tidy/a.rs\"]\nmod x;"),
            ("tests/tidy/a.rs", ""),
            ("tests/Cargo.toml", "path = \"tidy.rs\""),
        ]);
        assert_eq!(orphans(&good), Vec::<String>::new());
    }

    #[test]
    fn an_errno_made_outside_of_its_file_is_found() {
        for bad in [
            "reply.error(libc::EIO);",
            "let e = Errno::EROFS;",
            "io::Error::from_raw_os_error(libc::ESTALE)",
            "match e { A => Errno::EIO, B => 1 }",
            "match e { A => Err(libc::EIO), B => 1 }",
        ] {
            assert_eq!(errno_constants(&one(bad)).len(), 1, "{bad}");
        }
        let good = [
            "if e.raw_os_error() == Some(libc::ESTALE) {}",
            "match e { Some(libc::ENOTTY | libc::EINVAL) => 1 }",
            "match e { Err(Errno::EAGAIN | Errno::EINTR) => 1, Errno::EIO\n| Errno::EPERM => 2 }",
            "if a && matches!(stat(&path), Err(Errno::ENOTCONN)) {}",
            "libc::EPOLLIN; libc::EXIT_FAILURE; // libc::EIO",
            "//! x\n#[cfg(test)]\nmod tests { libc::EIO }",
        ];
        for good in good {
            assert_eq!(errno_constants(&one(good)), Vec::<String>::new(), "{good}");
        }
        assert_eq!(
            errno_constants(&Tree::of(&[("fs/src/errno.rs", "libc::EIO")])),
            Vec::<String>::new()
        );
    }
}
