// SPDX-License-Identifier: Apache-2.0
//! The report of the agent: as JSON, and as text for people.

use crate::agent::Agent;
use crate::layout::OUTCOMES;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Returns everything about the agent's devices. Counts of `tc` are read from the kernel at this moment.
pub fn json(agent: &mut Agent) -> Value {
    let fresh = agent.fresh_filters();
    let devices: Vec<Value> = (0..)
        .zip(&agent.served)
        .map(|(slot, device)| {
            let counts = agent.counts(device);
            let filters: Vec<Value> = device
                .filters
                .iter()
                .zip(&device.plan.reasons)
                .map(|(filter, reason)| {
                    let place = filter.place;
                    let now = fresh.get(&(device.ifindex, place)).unwrap_or(filter);
                    let xdp = counts.get(&place).copied().unwrap_or_default();
                    json!({
                        "chain": place.chain,
                        "pref": place.priority,
                        "handle": place.handle,
                        "protocol": filter.protocol,
                        "kind": filter.kind,
                        "at_xdp": reason.is_none(),
                        "reason": reason,
                        "tc": {"packets": now.packets, "bytes": now.bytes},
                        "xdp": {"packets": xdp.packets, "bytes": xdp.bytes},
                    })
                })
                .collect();
            let outcomes: serde_json::Map<String, Value> = OUTCOMES
                .iter()
                .zip(agent.outcomes(slot))
                .map(|((name, _), packets)| ((*name).to_owned(), packets.into()))
                .collect();
            json!({
                "name": device.name,
                "ifindex": device.ifindex,
                "problem": device.problem,
                "packets": outcomes,
                "filters": filters,
            })
        })
        .collect();
    json!({"current": agent.is_current(), "devices": devices})
}

/// Returns the text of a report that [`json()`] made.
pub fn text(report: &Value) -> String {
    let mut out = String::new();
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    for device in report["devices"].as_array().into_iter().flatten() {
        // A String takes all writes.
        let _ = writeln!(out, "{}", name(&device["name"]));
        if let Some(problem) = device["problem"].as_str() {
            let _ = writeln!(out, "  all packets pass to tc: {problem}");
        }
        for (key, meaning) in OUTCOMES {
            let packets = count(&device["packets"][key]);
            if packets != 0 {
                let _ = writeln!(out, "  {packets} packets {meaning}");
            }
        }
        for filter in device["filters"].as_array().into_iter().flatten() {
            let (tc, xdp) = (count(&filter["tc"]["packets"]), count(&filter["xdp"]["packets"]));
            let _ = write!(
                out,
                "  chain {} pref {} protocol {} {} handle {:#x}: tc {tc}, xdp {xdp}, sum {}",
                count(&filter["chain"]),
                count(&filter["pref"]),
                protocol(count(&filter["protocol"])),
                name(&filter["kind"]),
                count(&filter["handle"]),
                tc + xdp,
            );
            let _ = match filter["reason"].as_str() {
                Some(reason) => writeln!(out, ", stop: {reason}"),
                None => writeln!(out),
            };
        }
    }
    out
}

/// The name of an Ethernet type as `tc` writes it.
fn protocol(number: u64) -> String {
    match number {
        3 => "all".into(),
        0x0800 => "ip".into(),
        0x86dd => "ipv6".into(),
        0x0806 => "arp".into(),
        0x8100 => "802.1Q".into(),
        0x88a8 => "802.1ad".into(),
        other => format!("{other:#06x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_line_for_each_filter() {
        let report = json!({"current": true, "devices": [{
            "name": "eth0", "ifindex": 2, "problem": null,
            "packets": {"ran": 5, "missed": 0},
            "filters": [
                {"chain": 0, "pref": 1, "handle": 1, "protocol": 2048, "kind": "flower",
                 "at_xdp": true, "reason": null, "tc": {"packets": 1}, "xdp": {"packets": 5}},
                {"chain": 0, "pref": 2, "handle": 0, "protocol": 3, "kind": "u32",
                 "at_xdp": false, "reason": "no", "tc": {"packets": 0}, "xdp": {"packets": 0}}]}]});
        assert_eq!(
            text(&report),
            "eth0\n  5 packets run at XDP\n  chain 0 pref 1 protocol ip flower handle 0x1: tc 1, xdp \
             5, sum 6\n  chain 0 pref 2 protocol all u32 handle 0x0: tc 0, xdp 0, sum 0, stop: no\n"
        );
    }
}
