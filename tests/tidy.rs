//! The house's rules, as tests: what a rule refuses fails here with the file, the line and what to do. Each rule lives in
//! a module of `tests/tidy/` beside a case that must fail, and sees a `Tree`, so that a bad tree can be made of literals.
//! `tests/run.sh tidy` runs it; the flag rules ask the binaries that LOOKUPFS_BIN and LOOKUP_BIN name.

#[path = "tidy/blank.rs"]
mod blank;
#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/flags.rs"]
mod flags;
#[path = "tidy/promises.rs"]
mod promises;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/scripts.rs"]
mod scripts;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/words.rs"]
mod words;

use tree::Tree;

fn none(findings: &[String]) {
    assert!(
        findings.is_empty(),
        "{} found:\n{}",
        findings.len(),
        findings.join("\n")
    );
}

#[test]
fn links_resolve() {
    none(&prose::links_resolve(&Tree::of_checkout()));
}

#[test]
fn paths_in_prose_exist() {
    none(&prose::paths_exist(&Tree::of_checkout()));
}

#[test]
fn documents_named_in_code_exist() {
    none(&prose::documents_named_in_code_exist(&Tree::of_checkout()));
}

#[test]
fn messages_in_troubleshooting_are_said() {
    none(&prose::messages_are_said(&Tree::of_checkout()));
}

#[test]
fn documents_have_one_title() {
    none(&prose::one_title(&Tree::of_checkout()));
}

#[test]
fn files_keep_to_their_size() {
    let (over, near) = code::file_sizes(&Tree::of_checkout());
    near.iter().for_each(|line| println!("to split: {line}"));
    none(&over);
}

#[test]
fn functions_keep_to_their_size() {
    none(&code::function_sizes(&Tree::of_checkout()));
}

#[test]
fn sources_say_what_they_own() {
    none(&code::headers(&Tree::of_checkout()));
}

#[test]
fn every_source_is_compiled() {
    none(&code::orphans(&Tree::of_checkout()));
}

#[test]
fn errnos_are_made_in_one_file() {
    none(&code::errno_constants(&Tree::of_checkout()));
}

#[test]
fn nothing_is_unfinished() {
    none(&words::finished(&Tree::of_checkout()));
}

#[test]
fn nothing_knows_the_machine() {
    none(&words::portable(&Tree::of_checkout()));
}

#[test]
fn names_say_something() {
    none(&words::names(&Tree::of_checkout()));
}

#[test]
fn files_are_small() {
    none(&scripts::small_files(&Tree::of_checkout()));
}

#[test]
fn scripts_are_strict() {
    none(&scripts::strict_shell(&Tree::of_checkout()));
}

#[test]
fn scripts_parse() {
    none(&scripts::shell_parses(&Tree::of_checkout()));
}

#[test]
fn targets_exist() {
    none(&scripts::targets_exist(&Tree::of_checkout()));
}

#[test]
fn every_promise_has_a_test() {
    none(&promises::proven(&Tree::of_checkout()));
}

/// A binary whose `main` is still empty has no help to ask for; any other must have one that names flags.
fn help(tree: &Tree, variable: &str, main: &str) -> flags::Help {
    let source = &tree.get(main).expect("the binary has a source").text;
    let binary = std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} must name the built binary: run tests/run.sh tidy, or set it to target/debug/…")
    });
    let help = if source.contains("fn main() {}") {
        flags::Help::default()
    } else {
        flags::help_of(&binary)
    };
    assert_eq!(
        help.flags.is_empty(),
        source.contains("fn main() {}"),
        "{binary} --help names no flag"
    );
    help
}

#[test]
fn flags_of_lookupfs_are_documented() {
    let tree = Tree::of_checkout();
    let help = help(&tree, "LOOKUPFS_BIN", "fs/src/main.rs");
    assert_eq!(
        help.options.is_empty(),
        help.flags.is_empty(),
        "lookupfs mount --help names no mount option"
    );
    let mut findings = flags::documented(&tree, "lookupfs", &help);
    findings.extend(flags::options_configured(&tree, &help));
    findings.extend(flags::documented_flags_exist(&tree, "lookupfs", &help));
    none(&findings);
}

#[test]
fn flags_of_lookup_are_documented() {
    let tree = Tree::of_checkout();
    let help = help(&tree, "LOOKUP_BIN", "reader/src/main.rs");
    let mut findings = flags::documented(&tree, "lookup", &help);
    findings.extend(flags::documented_flags_exist(&tree, "lookup", &help));
    none(&findings);
}
