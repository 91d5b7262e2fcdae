// SPDX-License-Identifier: Apache-2.0
//! Commands that choose among implementations of one function: there is one of each, which can be
//! chosen, and others are unknown (`odp-execute/action-impl-`, `dpif-netdev/dpif-impl-`,
//! `dpif-netdev/miniflow-parser-`).

use super::{Answer, Commands};

pub(super) fn register(commands: &Commands<'_>) {
    commands.show("odp-execute/action-impl-set", "name", 1, 1, |_, call| {
        match call.arg(0).unwrap_or_default() {
            "scalar" => Ok("Action implementation set to scalar.".to_owned()),
            name => Err(format!("Error: unknown action implementation, {name}, specified!")),
        }
    });
    commands.show("dpif-netdev/dpif-impl-set", "dpif_implementation_name", 1, 1, |_, call| {
        match call.arg(0).unwrap_or_default() {
            "dpif_scalar" => Ok("DPIF implementation set to dpif_scalar.".to_owned()),
            name => Err(format!(
                "DPIF implementation not available: Unknown DPIF implementation {name}."
            )),
        }
    });
    commands.show(
        "dpif-netdev/miniflow-parser-set",
        "[-pmd core] miniflow_implementation_name [study_pkt_cnt]",
        1,
        5,
        |_, call| miniflow_parser(call.args),
    );
    commands.fixed(
        "odp-execute/action-impl-show",
        "",
        0,
        0,
        Ok("Available Actions implementations:\n  scalar (available: Yes, active: Yes)\n"),
    );
    commands.fixed(
        "dpif-netdev/dpif-impl-get",
        "",
        0,
        0,
        Ok("Available DPIF implementations:\n  dpif_scalar (pmds: none)\n"),
    );
    commands.fixed(
        "dpif-netdev/miniflow-parser-get",
        "",
        0,
        0,
        Ok("Available MFEX implementations:\n  scalar (available: True pmds: none)\n"),
    );
}

/// The answer to a parser without a name.
const NO_NAME: &str = "Error: no miniflow extract name provided. Output of miniflow-parser-get shows \
     implementation list.";

/// Carries out `dpif-netdev/miniflow-parser-set`.
fn miniflow_parser(args: &[String]) -> Answer {
    let mut words = args.iter().map(String::as_str);
    let mut name = words.next().unwrap_or_default();
    let mut thread = None;
    if name == "-pmd" {
        let core = words.next().ok_or("Error: -pmd option requires a thread id argument.")?;
        let number = core.parse::<u32>();
        thread = Some(number.map_err(|_| {
            format!("Error: miniflow extract parser not changed, PMD thread passed is not valid: '{core}'. Pass a valid pmd thread ID.")
        })?);
        name = words.next().ok_or(NO_NAME)?;
    }
    if let Some(word) = words.next() {
        return Err(format!("Error: unknown argument {word}."));
    }
    if name != "scalar" {
        return Err(format!("Error: unknown miniflow extract implementation {name}."));
    }
    match thread {
        Some(core) => Err(format!(
            "Error: miniflow extract parser not changed, PMD thread {core} not in use, pass a valid \
             pmd thread ID."
        )),
        None => Ok("Miniflow extract implementation set to scalar.".to_owned()),
    }
}
