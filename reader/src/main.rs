//! The binary `lookup`: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    lookupfs_reader::cli::main()
}
