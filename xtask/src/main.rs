// SPDX-License-Identifier: Apache-2.0
//! Chores of this workspace that Cargo has no command for: `cargo xtask COMMAND`.

#![forbid(unsafe_code)]

mod fuzz;
mod lint;
mod tally;
mod test;
mod vm;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Chores of this workspace that Cargo has no command for.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Fuzz(fuzz::Args),
    /// Checks words, licences, and links and file names in Markdown
    Lint,
    LintWords(lint::WordsArgs),
    /// Checks that files have an SPDX line or an entry in REUSE.toml, and licences of dependencies
    LintLicences,
    /// Checks that links and file names in Markdown lead somewhere
    LintPaths,
    Test(test::Args),
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Lint => lint::run(),
        Command::LintWords(args) => lint::run_words(&args),
        Command::LintLicences => lint::run_licences(),
        Command::LintPaths => lint::run_paths(),
        Command::Test(args) => test::run(&args),
        Command::Vm(args) => vm::run(&args),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
