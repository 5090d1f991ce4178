//! Rules for the command line: every flag that `--help` of a binary knows is documented, every mount option is in
//! fs/CONFIG.md, and every flag in a documented command exists. Asks the built binaries, so that no list can go stale.

use std::collections::BTreeSet;
use std::process::Command;

use crate::prose::{lines, spans};
use crate::tree::Tree;

/// Where a user looks for a flag.
const DOCUMENTS: &[&str] = &["README.md", "fs/README.md", "fs/CONFIG.md", "reader/README.md"];
/// How the heading begins in `lookupfs mount --help` below which the mount options stand. More headings may follow it.
const OPTIONS_HEADING: &str = "Mount options";

/// What a binary says of itself.
#[derive(Default)]
pub(crate) struct Help {
    /// Long flags of all commands.
    pub(crate) flags: BTreeSet<String>,
    /// Mount options.
    pub(crate) options: BTreeSet<String>,
}

/// Asks a binary for its help and the help of its commands, two levels deep.
pub(crate) fn help_of(binary: &str) -> Help {
    let mut help = Help::default();
    let text = run(binary, &[]);
    read_help(&text, &mut help);
    for command in commands(&text) {
        let text = run(binary, &[&command]);
        read_help(&text, &mut help);
        for inner in commands(&text) {
            read_help(&run(binary, &[&command, &inner]), &mut help);
        }
    }
    help
}

fn run(binary: &str, command: &[&str]) -> String {
    let mut process = Command::new(binary);
    let output = process.args(command).arg("--help").output();
    let output = output.unwrap_or_else(|e| panic!("{binary} cannot be run: {e}"));
    assert!(
        output.status.success(),
        "{binary} {command:?} --help ended with {}",
        output.status
    );
    String::from_utf8(output.stdout).expect("help is text")
}

/// The names below `Commands:`.
fn commands(help: &str) -> Vec<String> {
    let below = help.lines().skip_while(|line| line.trim() != "Commands:").skip(1);
    let names = below
        .take_while(|line| line.starts_with(' ') || line.is_empty())
        .filter_map(|line| {
            // Deeper indented lines continue a description.
            let name = line.strip_prefix("  ")?.split_whitespace().next()?;
            (!line.starts_with("   ") && name != "help").then(|| name.to_owned())
        });
    names.collect()
}

fn read_help(text: &str, help: &mut Help) {
    for line in text.lines() {
        // A flag is defined at the start of a line; elsewhere it is only mentioned.
        let line = line.trim_start();
        if line.starts_with('-') {
            let own = line.split("  ").next().unwrap_or_default();
            help.flags.extend(flags_in(own));
        }
    }
    let below = text.lines().skip_while(|line| !line.starts_with(OPTIONS_HEADING));
    for line in below.take_while(|line| line.is_empty() || line.starts_with(' ') || line.ends_with(':')) {
        // Two blanks, names, two blanks, a description. More blanks at the start continue a description.
        let Some(own) = line.strip_prefix("  ").filter(|own| !own.starts_with(' ')) else {
            continue;
        };
        for option in own.split("  ").next().unwrap_or_default().split(", ") {
            let name: String = option
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || *c == '_')
                .collect();
            help.options.extend((!name.is_empty()).then_some(name));
        }
    }
}

/// All `--flag`s of a text.
fn flags_in(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("--") {
        let is_start = !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
        let name: String = text[at + 2..]
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '-')
            .collect();
        if is_start && name.starts_with(|c: char| c.is_ascii_lowercase()) {
            found.insert(format!("--{name}"));
        }
    }
    found
}

/// Each flag occurs in a document that users read.
pub(crate) fn documented(tree: &Tree, binary: &str, help: &Help) -> Vec<String> {
    let texts: Vec<&str> = DOCUMENTS
        .iter()
        .filter_map(|path| tree.get(path))
        .map(|file| file.text.as_str())
        .collect();
    let known: BTreeSet<String> = texts.iter().flat_map(|text| flags_in(text)).collect();
    let silent = help
        .flags
        .iter()
        .filter(|flag| !["--help", "--version"].contains(&flag.as_str()));
    silent
        .filter(|flag| !known.contains(*flag))
        .map(|flag| format!("{binary} {flag}: in none of {}", DOCUMENTS.join(", ")))
        .collect()
}

/// Each mount option occurs in a code span of fs/CONFIG.md.
pub(crate) fn options_configured(tree: &Tree, help: &Help) -> Vec<String> {
    let text = tree.get("fs/CONFIG.md").map_or("", |file| file.text.as_str());
    let known: BTreeSet<&str> = text
        .lines()
        .flat_map(spans)
        .filter_map(|span| span.trim_start_matches('-').split(['=', ' ']).next())
        .collect();
    let missing = help
        .options
        .iter()
        .filter(|option| !known.contains(option.as_str()));
    missing
        .map(|option| format!("mount option {option}: no code span of fs/CONFIG.md names it"))
        .collect()
}

/// Each flag that a documented command of this binary uses exists.
pub(crate) fn documented_flags_exist(tree: &Tree, binary: &str, help: &Help) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, file) in tree.ending(".md") {
        for line in lines(&file.text) {
            let texts = if line.fenced {
                vec![line.text]
            } else {
                spans(line.text)
            };
            for text in texts.into_iter().filter_map(|text| command_of(text, binary)) {
                for flag in flags_in(text).difference(&help.flags) {
                    findings.push(format!("{path}:{}: `{binary}` has no {flag}", line.number));
                }
            }
        }
    }
    findings
}

/// The part of a line that is arguments of this binary; `None` if the line is another command.
fn command_of<'a>(line: &'a str, binary: &str) -> Option<&'a str> {
    let line = line
        .trim_start()
        .trim_start_matches("$ ")
        .trim_start_matches("sudo ");
    let (program, arguments) = line.split_once(' ')?;
    let own = arguments.split([';', '|', '#']).next().unwrap_or_default();
    let own = own.split(" && ").next().unwrap_or_default();
    (program.rsplit('/').next() == Some(binary)).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Mounts.\n\nUsage: lookupfs mount [OPTIONS]\n\nCommands:\n  mount   see --other\n          more\n  help    Print\n\n\
        Options:\n  -o, --option <OPT>  one of the options\n      --foreground    stay, unlike --background\n  -h, --help\n\n\
        Mount options (-o); see there:\n  ttl=SECONDS  how long, at least\n      a continued line\n  uid=N, gid=N  ids\n\
        Options of all:\n  page_size=BYTES\n\nIgnored: ro\n  none";

    fn help() -> Help {
        let mut help = Help::default();
        read_help(HELP, &mut help);
        help
    }

    #[test]
    fn help_is_read() {
        assert_eq!(commands(HELP), ["mount"]);
        assert_eq!(
            help().flags.into_iter().collect::<Vec<_>>(),
            ["--foreground", "--help", "--option"]
        );
        assert_eq!(
            help().options.into_iter().collect::<Vec<_>>(),
            ["gid", "page_size", "ttl", "uid"]
        );
    }

    #[test]
    fn an_undocumented_flag_is_found() {
        let bad = Tree::of(&[
            ("README.md", "`--option` and --foreground-only"),
            ("ELSE.md", "--foreground"),
        ]);
        assert_eq!(documented(&bad, "lookupfs", &help()).len(), 1);
        let good = Tree::of(&[("README.md", "`--option`"), ("fs/README.md", "`--foreground`")]);
        assert_eq!(documented(&good, "lookupfs", &help()), Vec::<String>::new());
    }

    #[test]
    fn an_undocumented_mount_option_is_found() {
        let bad = Tree::of(&[("fs/CONFIG.md", "`ttl=5`, `uid`, `gid` but page_size in no span")]);
        assert_eq!(options_configured(&bad, &help()).len(), 1);
        assert_eq!(options_configured(&Tree::of(&[]), &help()).len(), 4);
        let good = Tree::of(&[(
            "fs/CONFIG.md",
            "| `ttl` | 5 |\n| `uid`, `gid` |\n| `page_size=BYTES` |",
        )]);
        assert_eq!(options_configured(&good, &help()), Vec::<String>::new());
    }

    #[test]
    fn a_documented_flag_that_does_not_exist_is_found() {
        for bad in [
            "`lookupfs mount --gone`",
            "```\nsudo target/debug/lookupfs mount --gone | cat\n```",
        ] {
            assert_eq!(
                documented_flags_exist(&Tree::of(&[("a.md", bad)]), "lookupfs", &help()).len(),
                1,
                "{bad}"
            );
        }
        for good in [
            "`lookupfs mount --option x | sort --gone`",
            "`cargo test --gone`",
            "lookupfs --gone",
        ] {
            let found = documented_flags_exist(&Tree::of(&[("a.md", good)]), "lookupfs", &help());
            assert_eq!(found, Vec::<String>::new(), "{good}");
        }
    }
}
