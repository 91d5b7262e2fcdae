// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask fuzz`: the targets of `fuzz/`, under libFuzzer.

mod args;
mod build;
mod run;
mod stats;

pub use args::Args;

use crate::vm::workspace::Workspace;
use anyhow::{Result, bail};
use build::Binaries;
use run::{Outcome, Plan};

/// Runs the command. Returns the exit status: 1 when an input failed.
pub fn run(args: &Args) -> Result<u8> {
    let workspace = Workspace::load()?;
    let binaries = Binaries::build(&workspace, args.address)?;
    let plans = plans(&binaries, args)?;
    if args.list {
        plans.iter().for_each(|plan| println!("{}", plan.name));
        return Ok(0);
    }
    let mut outcomes = Vec::new();
    for plan in &plans {
        eprintln!("fuzz: {} for {} minutes", plan.name, args.minutes);
        outcomes.push(run::fuzz(&binaries, plan, args.minutes)?);
    }
    if args.keep {
        for plan in &plans {
            run::minimise(&binaries, plan)?;
        }
        binaries.corpus("pack")?;
    }
    Ok(conclude(&outcomes))
}

/// Returns the targets that the command line selects.
fn plans(binaries: &Binaries, args: &Args) -> Result<Vec<Plan>> {
    let all = Plan::parse_all(&binaries.corpus("unpack")?)?;
    if args.keep || args.target.is_empty() || args.target.iter().any(|t| t == "all") {
        return Ok(all);
    }
    if let Some(unknown) = args.target.iter().find(|t| all.iter().all(|p| p.name != **t)) {
        let names: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
        bail!("there is no target {unknown}; there are {}", names.join(", "));
    }
    Ok(all.into_iter().filter(|p| args.target.contains(&p.name)).collect())
}

/// Prints the result of each target. Returns the exit status.
fn conclude(outcomes: &[Outcome]) -> u8 {
    println!(
        "{:12} {:>12} {:>8} {:>9} {:>7}",
        "target", "executions", "edges", "features", "inputs"
    );
    for outcome in outcomes {
        let s = &outcome.stats;
        println!(
            "{:12} {:>12} {:>8} {:>9} {:>7}",
            outcome.name, s.executions, s.edges, s.features, s.inputs
        );
    }
    for outcome in outcomes {
        for file in &outcome.artifacts {
            println!(
                "\n{} fails: {} FILE, where FILE is\n  {}",
                outcome.name,
                outcome.program.display(),
                file.display()
            );
        }
        if outcome.artifacts.is_empty() && !outcome.ended_well {
            println!("\n{} ended badly: see {}", outcome.name, outcome.log.display());
        }
    }
    u8::from(outcomes.iter().any(|o| !o.ended_well || !o.artifacts.is_empty()))
}
