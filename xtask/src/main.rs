// SPDX-License-Identifier: Apache-2.0
//! Chores of this workspace that Cargo has no command for: `cargo xtask COMMAND`.

#![forbid(unsafe_code)]

mod fuzz;
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
    Test(test::Args),
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Fuzz(args) => fuzz::run(&args),
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
