//! The binary `lookupfs`: parse, do, say. Errors go to stderr in one line; exit code 0 done, 1 failed, 2 wrong usage.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use lookupfs_fs::cli::{Cli, Command};
use lookupfs_fs::{commands, warm};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return wrong_usage(&error),
    };
    let done = match cli.command {
        Command::Mount(args) => commands::mount(&args),
        Command::Umount(args) => commands::umount(&args),
        Command::Stats(args) => commands::stats(&args),
        Command::Warm(args) => warm::client::warm(&args),
        Command::Daemon(args) => commands::daemon(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lookupfs: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Says on one line what is wrong with the command line; help that was asked for, or that is all there is to say, is
/// printed whole.
fn wrong_usage(error: &clap::Error) -> ExitCode {
    let is_help = !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help {
        error.exit();
    }
    let text = error.render().to_string();
    // The first paragraph is the error; usage and hints follow it.
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    let line = words.join(" ");
    eprintln!(
        "lookupfs: {}; try `lookupfs --help`",
        line.trim_start_matches("error: ")
    );
    ExitCode::from(2)
}
