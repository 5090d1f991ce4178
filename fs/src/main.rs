//! The binary `lookupfs`: parse, do, say. Errors go to stderr in one line; exit code 0 done, 1 failed, 2 wrong usage.

use std::process::ExitCode;

use clap::Parser;
use lookupfs_fs::cli::{Cli, Command};
use lookupfs_fs::commands;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Mount(args) => commands::mount(&args),
        Command::Umount(args) => commands::umount(&args),
        Command::Stats(args) => commands::stats(&args),
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
