// SPDX-License-Identifier: Apache-2.0
//! Spanning trees (`stp/`, `rstp/`).

use super::{Commands, texts};
use crate::daemon::Daemon;
use bridge::spanning_tree::{BridgeId, PortState, Report, SpanningTree, TreeKind, bridge_parts};
use packet::Mac;
use std::fmt::Write as _;
use std::sync::Arc;

/// The protocols, the names of their commands, and the answer where a bridge has no such tree.
const PROTOCOLS: [(TreeKind, [&str; 2], &str); 2] = [
    (TreeKind::Stp, ["stp/show", "stp/tcn"], "no such stp object"),
    (TreeKind::Rstp, ["rstp/show", "rstp/tcn"], "No such RSTP object"),
];

pub(super) fn register(commands: &Commands<'_>) {
    for (kind, [show, tcn], missing) in PROTOCOLS {
        commands.show(show, "[bridge]", 0, 1, move |daemon, call| {
            let all = trees(daemon, kind);
            texts(all, call.arg(0), missing, |name, tree| details(name, &tree.report()))
        });
        commands.change(tcn, "[bridge]", 0, 1, move |daemon, call| {
            let wanted = |name: &str| call.arg(0).is_none_or(|wanted| wanted == name);
            let chosen: Vec<&Arc<SpanningTree>> = trees(daemon, kind)
                .filter(|(name, _)| wanted(name))
                .map(|(_, tree)| tree)
                .collect();
            if call.arg(0).is_some() && chosen.is_empty() {
                return Err(missing.to_owned());
            }
            chosen.into_iter().for_each(|tree| daemon.switch.force_topology_change(tree));
            Ok("OK".to_owned())
        });
    }
}

fn trees(daemon: &Daemon, kind: TreeKind) -> impl Iterator<Item = (&str, &Arc<SpanningTree>)> {
    let all = daemon.switch.bridges();
    let all = all.filter_map(|bridge| Some((bridge.name.as_str(), bridge.tree()?)));
    all.filter(move |(_, tree)| tree.kind() == kind)
}

fn bridge_text(kind: TreeKind, id: BridgeId, times: [u32; 3]) -> String {
    let (priority, address) = bridge_parts(id);
    let [hello, age, delay] = times;
    let label = match kind {
        TreeKind::Stp => "stp-priority",
        TreeKind::Rstp => "stp-priority  ",
    };
    format!(
        "  {label}  {priority}\n  stp-system-id   {}\n  stp-hello-time  {hello}s\n  \
         stp-max-age     {age}s\n  stp-fwd-delay   {delay}s\n",
        Mac(address),
    )
}

fn details(name: &str, report: &Report) -> String {
    let kind = report.kind;
    let root = bridge_text(kind, report.root.root, report.root_times);
    let mut out = format!("---- {name} ----\nRoot ID:\n{root}");
    match &report.root_port {
        None => out.push_str("  This bridge is the root\n"),
        Some(port) => {
            let cost = report.root.cost;
            // A String takes all writes, here and below.
            let _ = write!(out, "  root-port       {port}\n  root-path-cost  {cost}\n");
        }
    }
    let bridge = bridge_text(kind, report.id, report.bridge_times);
    let width = match kind {
        TreeKind::Stp => 5,
        TreeKind::Rstp => 8,
    };
    let _ = write!(
        out,
        "\nBridge ID:\n{bridge}\n  {:<11}{:<11}{:<11}{:<cost$}{:<8}\n  \
         ---------- ---------- ---------- {} -------\n",
        "Interface",
        "Role",
        "State",
        "Cost",
        "Pri.Nbr",
        "-".repeat(width),
        cost = width + 1,
    );
    for port in report.ports.iter().filter(|port| port.state != PortState::Disabled) {
        let _ = writeln!(
            out,
            "  {:<11.10}{:<11.10}{:<11.10}{:<cost$}{}.{}",
            port.name,
            kind.role_name(port.role),
            kind.state_name(port.state),
            port.cost,
            port.priority,
            port.number,
            cost = width + 1,
        );
    }
    out.push('\n');
    out
}
