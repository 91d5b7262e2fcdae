// SPDX-License-Identifier: Apache-2.0
//! `slipswitch/explain`: a trace like that of `ofproto/trace`, with more about the megaflow: the
//! rule that needs each field of its mask, the tier where it runs, and the reason why no faster
//! tier has it.
//!
//! `slipswitch explain` is this command from a shell.

use super::flow_line::{LineStyle, flow_line};
use super::ports::PortNames;
use super::trace::arguments::Arguments;
use super::trace::{self, Traced};
use super::{ANY, Answer, Commands, tiers};
use crate::daemon::Daemon;
use datapath::{Action, FlowDump, Megaflow, PortNo, Verdict};
use flow::text::format_match;
use flow::{Key, Match};
use std::fmt::Write as _;

pub(super) fn register(commands: &Commands<'_>) {
    commands.change(
        "slipswitch/explain",
        "{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet]",
        1,
        ANY,
        |daemon, call| {
            let words: Vec<&str> = call.args.iter().map(String::as_str).collect();
            explain(daemon, &Arguments::parse(&words)?)
        },
    );
}

fn explain(daemon: &mut Daemon, arguments: &Arguments<'_>) -> Answer {
    let traced = trace::run(daemon, arguments, None)?;
    let mut out = traced.text();
    mask_reasons(&mut out, &traced);
    place(&mut out, daemon, &traced);
    Ok(out)
}

/// Writes the fields of the mask, each with the rule or action that needed it first.
fn mask_reasons(out: &mut String, traced: &Traced) {
    out.push_str("\nFields that the megaflow matches, and the reason for each:\n");
    let names = traced.names();
    for reason in traced.tracer.mask_reasons(&traced.translation.mask) {
        let fields = format_match(&Match::new(&traced.key, &reason.mask), &|n| names.name(n));
        let fields = if fields.is_empty() { "the kind of packet" } else { &fields };
        let _ = writeln!(out, "  {fields}\n    {}", reason.by); // a String takes all writes
    }
}

/// Writes where the megaflow runs, or would run.
fn place(out: &mut String, daemon: &Daemon, traced: &Traced) {
    out.push_str("\nWhere it runs:\n");
    let bridge = daemon.switch.bridge(traced.bridge);
    let port = bridge.and_then(|b| b.ports.get(&openflow::PortNo(traced.key.in_port.get())));
    let Some(in_port) = port.and_then(|p| p.dp_port) else {
        out.push_str("  nowhere: packets do not come in by this port from a device\n");
        return;
    };
    let key = Key { in_port: in_port.0.into(), ..traced.key };
    let megaflow = daemon.switch.slow_path().megaflow(&key, &traced.translation);
    let names = PortNames::of_datapath(daemon);
    match held(daemon, &key, &megaflow) {
        Some(flow) => {
            let style = LineStyle { verbose: true, names: Some(&names), dpctl: true };
            let _ = writeln!(out, "  {}", flow_line(&flow, daemon.clock.now(), style));
        }
        None => {
            let would = match daemon.placed.as_ref().map(|p| p.would_run(&megaflow)) {
                Some(would) => would_run(&would),
                None => "would run in userspace".to_owned(),
            };
            let _ = writeln!(out, "  no such megaflow is in the datapath now; it {would}");
        }
    }
    let name = |port: PortNo| names.name(port.0).unwrap_or_default();
    let _ = write!(out, "{}\n{}", name(in_port), tiers::lines(daemon, in_port));
    let Some(placed) = &daemon.placed else { return };
    for action in megaflow.actions.iter() {
        if let Action::Output(port) = action {
            let _ = write!(out, "output to {}\n{}", name(*port), tiers::about(placed, *port));
        }
        let bond = match action {
            Action::LbOutput(id) => daemon.switch.datapath().bonds().and_then(|b| b.table(*id)),
            _ => None,
        };
        for port in bond.iter().flat_map(|bond| &bond.members) {
            let about = tiers::about(placed, *port);
            let _ = write!(out, "output to {}, a member of a bond\n{about}", name(*port));
        }
    }
}

/// Returns where a megaflow would run, and the reasons of faster tiers.
fn would_run(would: &Verdict) -> String {
    let place = match would.tiers.fastest() {
        Some(tier) => format!("at {}", tier.name()),
        None => "in userspace".to_owned(),
    };
    let why =
        if would.refusals.is_empty() { String::new() } else { format!(": {}", would.refusals) };
    format!("would run {place}{why}")
}

/// Returns the megaflow that packets with `key` match: `megaflow`, or an earlier one.
fn held(daemon: &Daemon, key: &Key, megaflow: &Megaflow) -> Option<FlowDump> {
    let datapath = daemon.switch.datapath();
    datapath
        .flow(megaflow.ufid)
        .or_else(|| datapath.dump().into_iter().find(|f| f.flow.matching.matches(key)))
}
