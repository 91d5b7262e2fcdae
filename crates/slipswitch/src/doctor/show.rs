// SPDX-License-Identifier: Apache-2.0
//! The doctor's answers: a table, details, or JSON.

use super::host::{Compiler, Host};
use super::{Interface, TierState};
use anyhow::Result;
use serde_json::{Value, json};
use std::fmt::Write as _;

const HEADINGS: [&str; 4] = ["INTERFACE", "TIER", "POSSIBLE", "TO BE FASTER"];

/// Returns a line for each interface, and the properties of the host that stand in the way.
pub(super) fn table(host: &Host, interfaces: &[Interface]) -> String {
    let mut rows: Vec<[String; 4]> = vec![HEADINGS.map(str::to_owned)];
    rows.extend(interfaces.iter().map(row));
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max();
    let [name, tier, possible] = [0, 1, 2].map(|column| width(column).unwrap_or_default());
    let mut out = String::new();
    for [a, b, c, d] in &rows {
        let line = format!("{a:<name$}  {b:<tier$}  {c:<possible$}  {d}");
        let _ = writeln!(out, "{}", line.trim_end()); // a String takes all writes
    }
    let _ = writeln!(out, "\nkernel {}, the daemon {}", host.kernel, host.daemon_text());
    if matches!(host.compiler, Compiler::Off) {
        let _ = writeln!(out, "BPF compiler {}", host.compiler.text());
    }
    for interface in interfaces {
        if let Some(line) = xdp_flow(interface) {
            let _ = writeln!(out, "{}: {line}", interface.name);
        }
    }
    out + &tunnels(host)
}

/// Returns a line about an interface that `slipswitch xdp-flow` serves.
fn xdp_flow(interface: &Interface) -> Option<String> {
    let count = interface.xdp_flow?;
    Some(format!("slipswitch xdp-flow runs {count} of its tc filters at XDP"))
}

/// Returns a line for each kind and port of tunnels: the kernel's device that helps them, or the reason
/// why there is none.
fn tunnels(host: &Host) -> String {
    host.tunnels.iter().map(|line| format!("tunnel device for {line}\n")).collect()
}

fn row(interface: &Interface) -> [String; 4] {
    let possible: Vec<&str> =
        interface.tiers.iter().filter(|t| t.is_possible).map(|t| t.name.as_str()).collect();
    [
        interface.name.clone(),
        interface.in_use().unwrap_or("no port").to_owned(),
        possible.join(", "),
        interface
            .lacks()
            .map_or_else(|| "nothing".to_owned(), |tier| format!("{}: {}", tier.name, tier.detail)),
    ]
}

/// Returns all facts about the host, then all tiers of each interface with their reasons.
pub(super) fn details(host: &Host, interfaces: &[Interface]) -> String {
    let (directory, count) = &host.pins;
    let pins = match count {
        0 => "nothing is pinned there".to_owned(),
        n => format!("{n} objects are pinned: flows go on while the daemon is away"),
    };
    let ends = if host.hears_other_ends {
        "what veths' other ends do is heard at once"
    } else {
        "what veths' other ends do is looked for every 5 s: with CAP_NET_BROADCAST it is heard at once"
    };
    let mut out = format!(
        "kernel            {}\nBPF compiler      {}\npins              {directory} ({pins})\n\
         daemon            {}\nother ends        {ends}\n",
        host.kernel,
        host.compiler.text(),
        host.daemon_text(),
    ) + &tunnels(host);
    for interface in interfaces {
        let port = if interface.is_port { " (a port of the running switch)" } else { "" };
        let _ = writeln!(out, "\n{}{port}", interface.name);
        for TierState { name, is_possible, detail } in &interface.tiers {
            let line = match is_possible {
                true => format!("  {name:<10} yes  {detail}"),
                false => format!("  {name:<10} no   {detail}"),
            };
            let _ = writeln!(out, "{}", line.trim_end());
        }
        for line in interface.more.iter().chain(&xdp_flow(interface)) {
            let _ = writeln!(out, "  {line}");
        }
    }
    out
}

/// Returns all facts as JSON, for programs.
pub(super) fn json(host: &Host, interfaces: &[Interface]) -> Result<String> {
    let of_interface = |interface: &Interface| -> Value {
        let tiers: Vec<Value> = interface
            .tiers
            .iter()
            .map(|t| json!({"tier": t.name, "possible": t.is_possible, "detail": t.detail}))
            .collect();
        json!({
            "name": interface.name,
            "port": interface.is_port,
            "tier": interface.in_use(),
            "tiers": tiers,
            "to_be_faster": interface.lacks().map(|t| format!("{}: {}", t.name, t.detail)),
            "more": interface.more,
            "xdp_flow_filters": interface.xdp_flow,
        })
    };
    let (directory, count) = &host.pins;
    let answer = json!({
        "kernel": host.kernel,
        "bpf_compiler": host.compiler.name(),
        "pins": {"directory": directory, "objects": count},
        "daemon": host.daemon,
        "hears_other_ends": host.hears_other_ends,
        "tunnel_devices": host.tunnels,
        "interfaces": interfaces.iter().map(of_interface).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&answer)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Host, Vec<Interface>) {
        let host = Host {
            kernel: "6.18".to_owned(),
            compiler: Compiler::Unknown("hidden".to_owned()),
            pins: ("/sys/fs/bpf/x".to_owned(), 0),
            daemon: Some(7),
            hears_other_ends: true,
            tunnels: vec!["vxlan port 4789: none: port in use by vx0".to_owned()],
        };
        let tier = |name: &str, is_possible, detail: &str| TierState {
            name: name.to_owned(),
            is_possible,
            detail: detail.to_owned(),
        };
        let tiers = vec![
            tier("xdp", false, "device-kind (this is a veth)"),
            tier("tcx", true, "by a link"),
            tier("userspace", true, ""),
        ];
        let h1 = Interface {
            name: "h1".to_owned(),
            is_port: true,
            tiers,
            more: Vec::new(),
            xdp_flow: None,
        };
        let tiers = vec![tier("xdp", true, ""), tier("userspace", true, "")];
        let eth0 = Interface {
            name: "eth0".to_owned(),
            is_port: false,
            tiers,
            more: Vec::new(),
            xdp_flow: Some(3),
        };
        (host, vec![h1, eth0])
    }

    #[test]
    fn the_table_has_a_line_for_each_interface() {
        let (host, interfaces) = sample();
        assert_eq!(
            table(&host, &interfaces),
            "\
INTERFACE  TIER     POSSIBLE        TO BE FASTER
h1         tcx      tcx, userspace  xdp: device-kind (this is a veth)
eth0       no port  xdp, userspace  nothing

kernel 6.18, the daemon runs (process 7)
eth0: slipswitch xdp-flow runs 3 of its tc filters at XDP
tunnel device for vxlan port 4789: none: port in use by vx0
"
        );
        assert!(details(&host, &interfaces).contains("BPF compiler      unknown (hidden)\n"));
    }

    #[test]
    fn programs_get_json() -> Result<()> {
        let (host, interfaces) = sample();
        let answer: Value = serde_json::from_str(&json(&host, &interfaces)?)?;
        assert_eq!(answer.pointer("/bpf_compiler"), Some(&json!("unknown")));
        assert_eq!(answer.pointer("/interfaces/0/tier"), Some(&json!("tcx")));
        assert_eq!(answer.pointer("/interfaces/1/tier"), Some(&Value::Null));
        assert_eq!(answer.pointer("/interfaces/1/xdp_flow_filters"), Some(&json!(3)));
        assert_eq!(answer.pointer("/interfaces/0/tiers/0/possible"), Some(&json!(false)));
        Ok(())
    }
}
