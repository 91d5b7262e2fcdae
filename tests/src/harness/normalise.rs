// SPDX-License-Identifier: Apache-2.0
//! Taking out of a text what may differ between two runs of the same program.

use std::collections::BTreeMap;

/// `text` without durations, times, unique ids, process ids and the directory `dir`; numbers
/// that a program hands out in its own order (recirculation ids) are renamed by the order of
/// their appearance, and lines of flow dumps, whose order is that of a hash table, are sorted.
pub fn normalise(text: &str, dir: &str) -> String {
    let mut text = text.replace(dir, "DIR");
    for (prefix, to) in [
        ("duration=", "TIME"),
        ("duration:", "TIME"),
        ("idle_age=", "TIME"),
        ("hard_age=", "TIME"),
        ("used:", "TIME"),
        ("last_used:", "TIME"),
    ] {
        text =
            replace(&text, prefix, |c| c.is_ascii_digit() || matches!(c, '.' | 's'), |_| to.into());
    }
    text = replace(&text, "xid=0x", |c| c.is_ascii_hexdigit(), |_| "XID".into());
    text = replace(&text, "ovs-vswitchd.", |c| c.is_ascii_digit(), |_| "PID".into());
    text = replace(&text, "ufid:", |c| c.is_ascii_hexdigit() || c == '-', |_| "UFID".into());
    // Hash functions are each switch's own.
    text = replace(&text, ": score ", |c| c.is_ascii_digit(), |_| "SCORE".into());
    text = replace(&text, ",recirc_id=", |c| c.is_ascii_digit(), |_| "ID".into());
    text = replace(&text, "datapath tx mod id ", |c| c.is_ascii_digit(), |_| "N".into());
    // Dummies' addresses count up over the life of the process.
    text = replace(
        &text,
        "aa:55:aa:55:00:",
        |c| c.is_ascii_hexdigit(),
        |n| if n == "00" { "00".into() } else { "XX".into() },
    );
    // Other addresses are random, but for those that a script gives.
    text = replace(
        &text,
        "addr:",
        |c| c.is_ascii_hexdigit() || c == ':' || c == 'X',
        |address| {
            if address.starts_with("aa:55:aa:55") { address.to_owned() } else { "RANDOM".into() }
        },
    );
    let mut names = BTreeMap::new();
    for prefix in ["recirc_id(0x", "recirc(0x", "recirc_id=0x"] {
        text = replace(
            &text,
            prefix,
            |c| c.is_ascii_hexdigit(),
            |id| {
                if id == "0" {
                    return "0".into();
                }
                let next = names.len() + 1;
                format!("R{}", names.entry(id.to_owned()).or_insert(next))
            },
        );
    }
    let lines = without_protocols(&text).lines().map(line).collect();
    sort_runs(lines)
}

/// `mdb/show` without the column that Open vSwitch has from 3.3 on; a text of another command is
/// returned as it is.
fn without_protocols(text: &str) -> String {
    const PORT_AND_VLAN: &str = " port  VLAN  ";
    const PROTOCOL: &str = "protocol  ";
    let Some(columns) = text.strip_prefix(PORT_AND_VLAN).and_then(|t| t.strip_prefix(PROTOCOL))
    else {
        return text.to_owned();
    };
    let (header, lines) = columns.split_once('\n').unwrap_or((columns, ""));
    let mut out = format!("{PORT_AND_VLAN}{header}\n");
    for line in lines.lines() {
        let place =
            line.get(..PORT_AND_VLAN.len()).zip(line.get(PORT_AND_VLAN.len() + PROTOCOL.len()..));
        out.extend(place.map(|(place, rest)| format!("{place}{rest}\n")));
    }
    out
}

/// One megaflow of a dump without statistics and id.
pub(super) fn megaflow(line: &str) -> String {
    let line = line.trim();
    let line = match line.split_once(", recirc_id(") {
        Some((head, rest)) if head.starts_with("ufid:") => format!("recirc_id({rest}"),
        _ => line.to_owned(),
    };
    let Some((key, rest)) = line.split_once(", packets:") else { return line };
    let actions = rest.split_once("actions:").map_or("", |(_, a)| a);
    format!("{key}, actions:{actions}")
}

/// The outputs of datapath actions that only push and pop VLAN tags and output, each as
/// `TAGS:PORT`, sorted; other actions stay as they are.
pub(super) fn outputs(actions: &str) -> Vec<String> {
    let mut tags: Vec<&str> = Vec::new();
    let mut out = Vec::new();
    for action in split_actions(actions) {
        if action.starts_with("push_vlan(") {
            tags.push(action);
        } else if action == "pop_vlan" && !tags.is_empty() {
            tags.pop();
        } else if tags.is_empty() {
            out.push(action.to_owned());
        } else {
            out.push(format!("{}:{action}", tags.concat()));
        }
    }
    out.sort();
    out
}

/// `a,b(c,d),e` at the commas outside of parentheses.
pub fn split_actions(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

/// True for datapath actions whose order may be that of a hash table: a flood.
fn is_flood(actions: &str) -> bool {
    let list = split_actions(actions);
    list.len() > 1
        && list.iter().all(|a| {
            *a == "pop_vlan" || a.starts_with("push_vlan(") || a.bytes().all(|b| b.is_ascii_digit())
        })
}

/// Rules for whole lines.
fn line(line: &str) -> String {
    for prefix in ["Datapath actions: ", "actions:"] {
        if let Some((before, actions)) = line.rsplit_once(prefix)
            && is_flood(actions.trim_end())
        {
            return format!(
                "{}{prefix}{}",
                self::line(before),
                outputs(actions.trim_end()).join(",")
            );
        }
    }
    // 2026-01-31T12:00:00Z|00001|module|LEVEL|message
    let parts: Vec<&str> = line.splitn(3, '|').collect();
    if let [time, number, rest] = parts.as_slice()
        && time.ends_with('Z')
        && number.bytes().all(|b| b.is_ascii_digit())
    {
        return format!("TIME|N|{rest}");
    }
    // Speaks of the miniflow, a structure of OVS's own.
    match line.split_once(", dp-extra-info:") {
        Some((before, _)) => before.to_owned(),
        None => line.to_owned(),
    }
}

/// Sorts runs of neighbouring lines that are entries of a flow dump.
fn sort_runs(lines: Vec<String>) -> String {
    let is_entry = |line: &String| {
        let text = line.trim_start();
        ["cookie=", "group_id=", "port "].iter().any(|p| text.starts_with(p))
            || line.contains("recirc_id(")
            // A flow without statistics.
            || line.starts_with(' ') && line.contains(" actions=")
    };
    let mut out = Vec::with_capacity(lines.len());
    let mut run: Vec<String> = Vec::new();
    for line in lines {
        if is_entry(&line) {
            run.push(line);
        } else if line.starts_with("           ") && !run.is_empty() {
            // The entry goes on.
            if let Some(last) = run.last_mut() {
                *last = format!("{last}\n{line}");
            }
        } else {
            run.sort();
            out.append(&mut run);
            out.push(line);
        }
    }
    run.sort();
    out.append(&mut run);
    out.into_iter().map(|l| format!("{}\n", l.trim_end())).collect()
}

/// Replaces what follows `prefix`, as far as `of` goes and if it starts with a hexadecimal
/// digit.
fn replace(
    text: &str,
    prefix: &str,
    of: impl Fn(char) -> bool,
    mut by: impl FnMut(&str) -> String,
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(prefix) {
        let (before, after) = rest.split_at(at + prefix.len());
        out += before;
        let end = after.find(|c| !of(c)).unwrap_or(after.len());
        let (value, after) = after.split_at(end);
        if value.starts_with(|c: char| c.is_ascii_hexdigit()) {
            out += &by(value);
        } else {
            out += value;
        }
        rest = after;
    }
    out + rest
}

/// Verbose megaflows of Open vSwitch with the tier where Slipswitch says it: at the end of the
/// line, with how much of the flow is offloaded, as `, reason:` may follow.
pub(super) fn tier_last(text: &str) -> String {
    const TIER: &str = ", dp:ovs, actions:";
    let line = |line: &str| match line.split_once(TIER) {
        Some((flow, actions)) => {
            format!("{flow}, actions:{actions}, offloaded:no, dp:userspace")
        }
        None => line.to_owned(),
    };
    text.split('\n').map(line).collect::<Vec<String>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mdb_show_has_no_protocol() {
        let newer = " port  VLAN  protocol  GROUP                Age\n\
            \x20   1     5  IGMPv2    224.1.1.1             7\n\
            LOCAL     0  UNKNOWN   querier               7\n";
        let older = " port  VLAN  GROUP                Age\n\
            \x20   1     5  224.1.1.1             7\n\
            LOCAL     0  querier               7\n";
        assert_eq!(normalise(newer, "/x"), normalise(older, "/x"));
        assert!(normalise(newer, "/x").contains("224.1.1.1"));
    }

    #[test]
    fn times_and_ids_go_and_counts_stay() {
        let a = " cookie=0x5, duration=1.5s, table=0, n_packets=1, n_bytes=60, actions=drop\n";
        let b = " cookie=0x5, duration=0s, table=0, n_packets=1, n_bytes=60, actions=drop\n";
        assert_eq!(normalise(a, "/x"), normalise(b, "/x"));
        assert!(normalise(a, "/x").contains("n_packets=1"));
    }

    #[test]
    fn recirculation_ids_are_named_in_order() {
        let text = "recirc_id(0),actions:recirc(0x7)\nrecirc_id(0x7),actions:1\n";
        assert_eq!(
            normalise(text, "/x"),
            "recirc_id(0),actions:recirc(0xR1)\nrecirc_id(0xR1),actions:1\n"
        );
    }

    #[test]
    fn floods_are_sorted() {
        assert_eq!(
            outputs("push_vlan(vid=10,pcp=0),3,pop_vlan,2"),
            ["2", "push_vlan(vid=10,pcp=0):3"]
        );
        assert_eq!(normalise("Datapath actions: 3,100,2\n", "/x"), "Datapath actions: 100,2,3\n");
        assert_eq!(
            normalise("Datapath actions: 3,set(eth(src=0)),2\n", "/x"),
            "Datapath actions: 3,set(eth(src=0)),2\n"
        );
    }

    #[test]
    fn megaflows_lose_their_statistics() {
        let line =
            "ufid:1-2, recirc_id(0),in_port(1), packets:3, bytes:9, used:never, dp:ovs, actions:2";
        assert_eq!(megaflow(line), "recirc_id(0),in_port(1), actions:2");
    }
}
