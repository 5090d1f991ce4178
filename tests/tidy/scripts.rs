//! Rules for shell scripts, test targets and file sizes: what is not Rust and not prose.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::tree::{File, Tree, is_fixture};

/// Bytes of a file that people write, and of a fixture.
const FILE_BYTES_MAX: u64 = 256 << 10;
const FIXTURE_BYTES_MAX: u64 = 2 << 20;

/// No large file enters the history: it never leaves again. Cargo.lock grows as it must.
pub(crate) fn small_files(tree: &Tree) -> Vec<String> {
    let limit = |path: &str| {
        if is_fixture(path) {
            FIXTURE_BYTES_MAX
        } else {
            FILE_BYTES_MAX
        }
    };
    tree.iter()
        .filter(|(path, file)| *path != "Cargo.lock" && file.bytes > limit(path))
        .map(|(path, file)| format!("{path}: {} bytes, {} at most", file.bytes, limit(path)))
        .collect()
}

fn is_shell(path: &str, file: &File) -> bool {
    path.ends_with(".sh") || interpreter(&file.text).is_some_and(|name| name == "bash" || name == "sh")
}

fn interpreter(text: &str) -> Option<&str> {
    let line = text.lines().next()?.strip_prefix("#!")?;
    line.split(['/', ' '])
        .rfind(|word| !word.is_empty() && !word.starts_with('-'))
}

/// What a script that must outlive a failing command says, with its reason behind it; it still sets `-uo pipefail`.
const GOES_ON: &str = "# No set -e: ";

/// A script can be executed and stops at the first error. A part that another script sources has no `#!`, is not
/// executable, and lies in a folder named after that script.
pub(crate) fn strict_shell(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, file) in tree.written().filter(|(path, file)| is_shell(path, file)) {
        let Some(interpreter) = interpreter(&file.text) else {
            let owner = path.rsplit_once('/').map(|(folder, _)| format!("{folder}.sh"));
            if file.executable || !owner.is_some_and(|owner| tree.has(&owner)) {
                findings.push(format!(
                    "{path}: no `#!` line, and not a part in the folder of the script that sources it"
                ));
            }
            continue;
        };
        let wanted = if interpreter == "bash" {
            "set -euo pipefail"
        } else {
            "set -eu"
        };
        let has = |wanted: &str| file.text.lines().any(|line| line.trim() == wanted);
        let has_reason = file.text.lines().any(|line| {
            line.strip_prefix(GOES_ON)
                .is_some_and(|reason| !reason.is_empty())
        });
        let goes_on = has_reason && has("set -uo pipefail");
        if !has(wanted) && !goes_on {
            findings.push(format!(
                "{path}: no line `{wanted}` (or `{GOES_ON}why` and `set -uo pipefail`)"
            ));
        }
        if !file.executable {
            findings.push(format!("{path}: not executable: chmod +x {path}"));
        }
    }
    findings
}

/// Every script can be parsed.
pub(crate) fn shell_parses(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, file) in tree.written().filter(|(path, file)| is_shell(path, file)) {
        let mut bash = Command::new("bash")
            .arg("-n")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bash is there");
        let mut input = bash.stdin.take().expect("bash has an input");
        // bash may stop reading at the error it is about to tell.
        let _ = input.write_all(file.text.as_bytes());
        drop(input);
        let output = bash.wait_with_output().expect("bash ends");
        if !output.status.success() {
            findings.push(format!(
                "{path}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
    }
    findings
}

/// Every target that a manifest names exists.
pub(crate) fn targets_exist(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, file) in tree.written().filter(|(path, _)| path.ends_with("Cargo.toml")) {
        let folder = path.trim_end_matches("Cargo.toml");
        for line in file
            .text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
        {
            // A dependency's path is a folder, a target's path is a file.
            let target = line
                .split("path = \"")
                .nth(1)
                .and_then(|rest| rest.split('"').next());
            if let Some(target) = target.filter(|target| !tree.has(&format!("{folder}{target}"))) {
                findings.push(format!("{path}: there is no {folder}{target}"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_is_found() {
        let large = "x".repeat(300 << 10);
        let found = small_files(&Tree::of(&[
            ("a.bin", &large),
            ("tests/fixtures/a.bin", &large),
            ("Cargo.lock", &large),
        ]));
        assert_eq!(found.len(), 1, "{found:?}");
        let huge = "x".repeat((2 << 20) + 1);
        assert_eq!(
            small_files(&Tree::of(&[("tests/fixtures/a.bin", &huge)])).len(),
            1
        );
    }

    #[test]
    fn a_lax_script_is_found() {
        for bad in [
            ("a.sh*", "#!/usr/bin/env bash\nset -e\n"),
            ("a.sh", "#!/bin/bash\nset -euo pipefail\n"),
            ("a*", "#!/bin/sh\n"),
            ("a.sh*", "#!/bin/bash\nset -uo pipefail\n"),
            ("a.sh*", "#!/bin/bash\n# No set -e: \nset -uo pipefail\n"),
            ("a.sh", "echo a\n"),
            ("b/a.sh", "echo a\n"),
        ] {
            assert_eq!(strict_shell(&Tree::of(&[bad])).len(), 1, "{bad:?}");
        }
        let good = [
            ("b.sh*", "#!/usr/bin/env bash\nset -euo pipefail\n"),
            ("b/a.sh", "echo part\n"),
            ("c*", "#!/bin/sh -e\nset -eu\n"),
            (
                "e*",
                "#!/bin/bash\n# No set -e: counts failures.\nset -uo pipefail\n",
            ),
            ("d.py", "#!/usr/bin/env python3\n"),
        ];
        assert_eq!(strict_shell(&Tree::of(&good)), Vec::<String>::new());
    }

    #[test]
    fn a_script_with_a_syntax_error_is_found() {
        assert_eq!(shell_parses(&Tree::of(&[("a.sh", "if true; then\n")])).len(), 1);
        assert_eq!(
            shell_parses(&Tree::of(&[("a.sh", "if true; then :; fi\n")])),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_target_that_is_not_there_is_found() {
        let manifest = "[[test]]\nname = \"a\"\npath = \"a.rs\"\n[dependencies]\nb = { path = \"../b\" }\n";
        let bad = Tree::of(&[("tests/Cargo.toml", manifest)]);
        assert_eq!(targets_exist(&bad).len(), 2);
        let good = Tree::of(&[
            ("Cargo.toml", "b = { path = \"b\" }"),
            ("b/Cargo.toml", "path = \"src/lib.rs\""),
            ("b/src/lib.rs", ""),
        ]);
        assert_eq!(targets_exist(&good), Vec::<String>::new());
    }
}
