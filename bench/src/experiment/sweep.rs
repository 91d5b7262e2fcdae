// SPDX-License-Identifier: Apache-2.0
//! How long a pass over all megaflows takes.

use super::setup::{are_there, begin, prepared};
use super::{Asked, Run, Task, parameter, with_rules};
use crate::catalogue::Experiment;
use crate::peer::Rules;
use crate::setting::Setting;
use anyhow::{Context, Result};

const FEW: u32 = 1 << 14;
const MANY: u32 = 1 << 16;
/// Most datagrams that are on their way.
const WINDOW: u32 = 32;
/// Scatter (MAD over median) that is too wide.
const WIDE: f64 = 0.15;

/// Measures.
pub fn run(run: &mut Run, experiment: &Experiment) -> Result<()> {
    let numbers: &[u32] = if run.plan.full { &[FEW, MANY] } else { &[MANY] };
    let cpus = run.cpus;
    for flows in numbers.iter().copied() {
        let task = Task {
            asked: Asked {
                parameters: parameter("megaflows", flows.into()),
                metric: "a pass over all megaflows",
                unit: "ms",
                wide: WIDE,
            },
            rules: None,
            turns: 1,
            work: Box::new(move |s: &Setting| pass(s, flows)),
        };
        let make = move |system| prepared(Setting::make(system, cpus, Rules::Destinations(flows))?);
        run.compare(experiment, &with_rules(), None, &make, &[task]);
    }
    Ok(())
}

/// Milliseconds of the last pass, when all megaflows are there.
fn pass(setting: &Setting, flows: u32) -> Result<f64> {
    let switch = setting.switch()?;
    // Each megaflow has something to credit.
    begin(setting, flows, WINDOW)?;
    are_there(setting, flows)?;
    switch.appctl("revalidator/wait");
    let text = switch.appctl("upcall/show");
    behind(&text, "dump duration : ").context("upcall/show tells no duration")
}

/// The number behind some words.
fn behind(text: &str, words: &str) -> Option<f64> {
    let rest = text.split(words).nth(1)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_upcall_show() {
        let text = "netdev@ovs-netdev:\n  flows         : (current 65538) (avg 3) (max 4) (limit 5)\n  dump duration : 137ms\n";
        assert_eq!(behind(text, "dump duration : "), Some(137.0));
        assert_eq!(behind(text, "flow_limit "), None);
    }
}
