// SPDX-License-Identifier: Apache-2.0
//! Differences that are meant, each with its reason, and as narrow as can be.

use crate::player::Seen;
use slipswitch_tests::harness::split_actions;
use std::ops::Range;

/// A difference that is no error.
pub struct Known {
    /// Its name in the figures.
    pub name: &'static str,
    /// Why it is none.
    pub reason: &'static str,
    /// Makes two texts about the same thing equal as far as the difference goes: Open vSwitch's
    /// and Slipswitch's.
    pub even: fn(&str, String, String) -> (String, String),
}

/// All of them.
pub const KNOWN: &[Known] = &[
    Known {
        name: "megaflow masks",
        reason: "a mask may be narrower or wider; that what it means is right is for other tests",
        even: |_, real, ours| (without_megaflow(&real), without_megaflow(&ours)),
    },
    Known {
        name: "order of floods",
        reason: "the order of ports in a flood is that of a hash table",
        even: |_, real, ours| (sorted_floods(&real), sorted_floods(&ours)),
    },
    Known {
        name: "reports of mirrors in a flood",
        reason: "a mirror looks at the VLAN of each packet of a flood, in the order of a hash table",
        even: |_, real, ours| (sorted_drops(&real), sorted_drops(&ours)),
    },
    Known {
        name: "misses in other bridges",
        reason: "OVS knows the rule of a miss in the traced bridge only, and shows it as a rule elsewhere",
        even: |_, real, ours| {
            let named = real
                .replace("reg0=0x1, priority 0", "No match, and a \"packet-in\" is called for.")
                .replace("reg0=0x2, priority 0", "No match.");
            (named, ours)
        },
    },
    Known {
        name: "order of floods into other bridges",
        reason: "what a bridge does to its packet is undone for the ports that follow, in the order \
                 of a hash table",
        even: |_, real, ours| {
            let floods = ["flooding", " ALL\n", " FLOOD\n"].iter().any(|word| real.contains(word));
            match floods && real.contains("bridge(\"br1\")") {
                // Messages about the ports themselves, too.
                true if real.contains("protected ports, skipping") => {
                    (sorted_reports(&real), sorted_reports(&ours))
                }
                true => (sorted_outputs(&real), sorted_outputs(&ours)),
                false => (real, ours),
            }
        },
    },
    Known {
        name: "place of trunc",
        reason: "OVS says how much of a packet to send before it changes the packet; here it \
                 stands at the output that it is for",
        even: |_, real, ours| (trunc_last(&real), ours),
    },
    Known {
        name: "sets of parts in OpenFlow 1.0",
        reason: "to controllers of OpenFlow 1.0, OVS shows a set-field of a part of an address or \
                 port as if it set the whole",
        even: |of, real, ours| match of.contains("by OpenFlow10") {
            true => (each_list(&real, &whole_sets), each_list(&ours, &whole_sets)),
            false => (real, ours),
        },
    },
    Known {
        name: "VLAN actions of modified flows",
        reason: "OVS shows a header that OpenFlow 1.0's action may push by the match of the change, \
                 not by that of the flow, which may require a header",
        even: |of, real, ours| match of.starts_with("flows of") && !of.contains("OpenFlow10") {
            true => (without_pushes(&real), without_pushes(&ours)),
            false => (real, ours),
        },
    },
    Known {
        name: "ports of modified flows",
        reason: "OVS shows a set of a transport port by the protocol that the match of the change \
                 names, not by that of the flow; without one, as an action that only OpenFlow 1.1 has",
        even: |of, real, ours| {
            let is_newer = of.starts_with("flows of") && !of.contains("OpenFlow10");
            match is_newer && real.contains("mod_tp_") {
                true => {
                    (each_list(&real, &without_protocols), each_list(&ours, &without_protocols))
                }
                false => (real, ours),
            }
        },
    },
    Known {
        name: "what is not there yet",
        reason: "a damaged message may name a field or an action of tunnels or connections, or \
                 one for OVS's own tests; OVS then says what else is wrong with it",
        even: |_, real, ours| {
            let fields = ["NXFMFC_INVALID_TLV_FIELD", "OFPBMC_BAD_MASK", "OFPBMC_BAD_PREREQ"];
            let of_field = fields.iter().any(|e| real.contains(e));
            let errors = ["OFPBAC_BAD_LEN", "OFPBAC_BAD_ARGUMENT", "OFPBAC_BAD_SET_ARGUMENT"];
            let of_action = errors.iter().any(|e| real.contains(e));
            let unmapped = real.contains("NXFMFC_INVALID_TLV_FIELD");
            match of_field && ours.contains("OFPBMC_BAD_FIELD")
                || unmapped && ours.contains("OFPBAC_BAD_SET_TYPE")
                || of_action && ours.contains("OFPBAC_BAD_VENDOR_TYPE")
            {
                true => (ours.clone(), ours),
                false => (real, ours),
            }
        },
    },
    Known {
        name: "set-field of unknown fields",
        reason: "of a damaged one OVS blames the type or the length, by what follows; Slipswitch \
                 the length",
        even: |_, real, ours| match real.contains("BAD_SET_TYPE") && ours.contains("BAD_SET_LEN") {
            true => (ours.clone(), ours),
            false => (real, ours),
        },
    },
    Known {
        name: "commands and watched ports that are not there",
        reason: "a message may have other errors, too; Slipswitch reports these two first, OVS last",
        even: |of, real, ours| {
            let is_error = real.starts_with("Known(OfError");
            match of.starts_with("step")
                && is_error
                && ["OFPFMFC_BAD_COMMAND", "OFPGMFC_BAD_WATCH"].iter().any(|e| ours.contains(e))
            {
                true => (ours.clone(), ours),
                false => (real, ours),
            }
        },
    },
    Known {
        name: "packet type with a recirculation id",
        reason: "a flow that matches a recirculation id matches the packet type, too, which OVS \
                 shows then",
        even: |_, real, ours| (without_packet_type(&real), without_packet_type(&ours)),
    },
    Known {
        name: "watched groups",
        reason: "OVS calls a group that a bucket watches a port, where it says that it is not live",
        even: |_, real, ours| (real, ours.replace("not live due to group", "not live due to port")),
    },
    Known {
        name: "final flow",
        reason: "OVS repeats a flow of which nothing changed but the output of its action set",
        even: |_, real, ours| (unchanged(&real), ours),
    },
    Known {
        name: "slow path in a trace",
        reason: "OVS says of a set of ICMP's type that its datapath cannot do it; here there is no \
                 slow path for it",
        even: |_, real, ours| {
            const SLOW: &str = "This flow is handled by the userspace slow path because it:\n  - \
                                Uses action(s) not supported by datapath.\n";
            match ours.contains("slow path") {
                true => (real, ours),
                false => (real.replace(SLOW, ""), ours),
            }
        },
    },
    Known {
        name: "probes of management connections",
        reason: "OVS probes a peer at a bridge's own socket after a minute; that one is gone is \
                 seen there at once",
        even: |of, real, ours| match of.starts_with("sent to controllers") {
            true => (without_probes(&real), without_probes(&ours)),
            false => (real, ours),
        },
    },
    Known {
        name: "DEI of headers in a flood",
        reason: "a header that is taken off for one port and put on for the next loses its DEI, \
                 and the order of ports is that of a hash table",
        even: |of, real, ours| match of {
            _ if of.starts_with("step") => (without_dei(&real), without_dei(&ours)),
            _ if of.starts_with("sent to controllers") => {
                (told_without_dei(&real), told_without_dei(&ours))
            }
            _ => (real, ours),
        },
    },
    Known {
        name: "order of copies from other bridges",
        reason: "a flood's copy that another bridge sends back floods when its port's turn is, in \
                 the order of a hash table",
        // Where several packets came in at once the rule would hide their order.
        even: |of, real, ours| match of.contains("between bridges")
            && !of.contains(" on, at ")
            && is_flooded_again(&real)
        {
            true => (sorted_lines(&real), sorted_lines(&ours)),
            false => (real, ours),
        },
    },
    Known {
        name: "order of tunnels in a flood",
        reason: "the order of ports in a flood is that of a hash table, and the packets of several \
                 tunnels leave by one port; the DEI inside of them depends on it, too",
        even: |of, real, ours| match of.contains("through tunnels") {
            true => {
                (sorted_lines(&without_inner_dei(&real)), sorted_lines(&without_inner_dei(&ours)))
            }
            false => (real, ours),
        },
    },
    Known {
        name: "packets that are counted twice on their way into a tunnel",
        reason: "OVS counts one at the tunnel port without and with its outer headers; here it is \
                 counted without them",
        even: |of, real, ours| match of.contains("ports of br0") {
            true => (counted_once(&real, &ours), ours),
            false => (real, ours),
        },
    },
    Known {
        name: "numbers of datapath ports next to tunnels and bonds",
        reason: "a tunnel or a member of a bond takes a number that a port with a number in its name \
                 would have, where it comes first; frames themselves are compared",
        even: |of, real, ours| match of.contains("traces with tunnels")
            || of.contains("traces with a bond")
        {
            true => (without_datapath_actions(&real), without_datapath_actions(&ours)),
            false => (real, ours),
        },
    },
    Known {
        name: "members that stand for their bond",
        reason: "OVS calls a bond by the number of any member, in the order of a hash table",
        even: |_, real, ours| (with_first_member(&real), ours),
    },
    Known {
        name: "packet-ins by groups of one bucket",
        reason: "hash functions are each switch's own, and OVS needs none for one bucket",
        even: |of, real, ours| match of.starts_with("sent to controllers") {
            true => (without_hash(&real), without_hash(&ours)),
            false => (real, ours),
        },
    },
    Known {
        name: "addresses of the underlay that are learned",
        reason: "OVS does not say in a trace that the bridge under a tunnel learns its own address",
        even: |of, real, ours| match of.contains("traces with tunnels") {
            true => (real, without_own_address(&ours)),
            false => (real, ours),
        },
    },
    Known {
        name: "options that are set",
        reason: "OVS does not show an option in the final flow that the packet did not come with",
        even: |of, real, ours| match of.contains("traces with tunnels") {
            true => (unchanged(&without_options(&real)), unchanged(&without_options(&ours))),
            false => (real, ours),
        },
    },
    Known {
        name: "reports of tunnels in a flood",
        reason: "the order of ports in a flood is that of a hash table",
        even: |of, real, ours| {
            let floods = ["flooding", " ALL\n", " FLOOD\n"].iter().any(|word| real.contains(word));
            match floods && of.contains("traces with tunnels") {
                // The fields of the last tunnel stay where it leads to the own address.
                true => {
                    (sorted_reports(&without_final(&real)), sorted_reports(&without_final(&ours)))
                }
                false => (real, ours),
            }
        },
    },
    Known {
        name: "types behind labels that go in other bridges",
        reason: "a label that is on for a flood, and that another bridge takes off, was never put \
                 on where that bridge's turn is first, and OVS then leaves the type as it was; \
                 the order of ports is that of a hash table",
        even: |of, real, ours| match of.contains("between bridges") && has_labels(&real) {
            true => (without_types(&real), without_types(&ours)),
            false => (real, ours),
        },
    },
    Known {
        name: "type of a VLAN header that NORMAL took off",
        reason: "OVS keeps it for a VLAN that the next bridge sets; here that is 802.1Q's, as of any \
                 frame without a header",
        even: |of, real, ours| match of.contains("between bridges") {
            true => (without_kept_types(&real, &ours), ours),
            false => (real, ours),
        },
    },
];

/// Flows that match a recirculation id, without the packet type after it.
fn without_packet_type(text: &str) -> String {
    let line = |line: &str| {
        let split = line.split_once(",eth,").filter(|(before, _)| before.contains("recirc_id="));
        split.map_or_else(|| line.to_owned(), |(before, behind)| format!("{before},{behind}"))
    };
    each_line(text, line)
}

/// The text with each line changed by `change`, and with or without an end of its last line, as it
/// was.
fn each_line(text: &str, change: impl Fn(&str) -> String) -> String {
    let lines: Vec<String> = text.lines().map(change).collect();
    lines.join("\n") + if text.ends_with('\n') { "\n" } else { "" }
}

/// A reply about flows, where the match says that there is a VLAN header without the headers that
/// are pushed for what sets a part of it.
fn without_pushes(text: &str) -> String {
    let line = |line: &str| match line.contains(" dl_vlan") || line.contains(",dl_vlan") {
        true => line.replace("push_vlan:0x8100,set_field:", "set_field:"),
        false => line.to_owned(),
    };
    each_line(text, line)
}

fn sorted_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Returns true when the lines `PORT HEX` show a packet that was flooded more than once: several ports
/// have frames, and all ports with more than one frame have the same set. A port has only one frame if
/// the packet came from it, reached it once, or if it belongs to the other bridge.
fn is_flooded_again(text: &str) -> bool {
    let mut ports = std::collections::BTreeMap::<&str, std::collections::BTreeSet<&str>>::new();
    for (port, frame) in text.lines().filter_map(|line| line.split_once(' ')) {
        ports.entry(port).or_default().insert(frame);
    }
    let most = ports.values().max_by_key(|frames| frames.len());
    most.is_some_and(|most| {
        let is_one_or_most =
            |frames: &std::collections::BTreeSet<&str>| frames.len() == 1 || frames == most;
        most.len() > 1 && ports.len() > 1 && ports.values().all(is_one_or_most)
    })
}

/// Lines `PORT HEX` of Open vSwitch, with a first VLAN header of 802.1ad as one of 802.1Q where
/// Slipswitch has that.
fn without_kept_types(real: &str, ours: &str) -> String {
    let line = |(real, ours): (&str, &str)| {
        let mut real = real.to_owned();
        let at = real.find(' ').map_or(0, |blank| blank + 1) + 24;
        if real.get(at..at + 4) == Some("88a8") && ours.get(at..at + 4) == Some("8100") {
            real.replace_range(at..at + 4, "8100");
        }
        real + "\n"
    };
    match real.lines().count() == ours.lines().count() {
        true => real.lines().zip(ours.lines()).map(line).collect(),
        false => real.to_owned(),
    }
}

/// The text with the list of actions of each flow in a reply (see `Player`) changed by `change`.
fn each_list(text: &str, change: &dyn Fn(&str) -> String) -> String {
    let line = |line: &str| {
        let changed = || {
            let (before, rest) = line.split_once(" bytes=")?;
            let (bytes, rest) = rest.split_once(' ')?;
            let (actions, behind) = rest.rsplit_once(" [Vlan")?;
            Some(format!("{before} bytes={bytes} {} [Vlan{behind}", change(actions)))
        };
        changed().unwrap_or_else(|| line.to_owned())
    };
    each_line(text, line)
}

/// A list in which whole transport ports are set as OpenFlow 1.0 says it.
fn without_protocols(actions: &str) -> String {
    let plain = |action: &str| {
        let (value, field) = action.strip_prefix("set_field:")?.split_once("->")?;
        let (_, which) = field.split_once('_').filter(|(protocol, which)| {
            matches!(*protocol, "tcp" | "udp" | "sctp") && matches!(*which, "src" | "dst")
        })?;
        (!value.contains('/')).then(|| format!("mod_tp_{which}:{value}"))
    };
    let of = |action: &str| {
        let changed = plain(action).or_else(|| inside(action, without_protocols));
        changed.unwrap_or_else(|| action.to_owned())
    };
    split_actions(actions).into_iter().map(of).collect::<Vec<_>>().join(",")
}

/// An action that holds a list, with that changed by `change`; `None` for others.
fn inside(action: &str, change: impl Fn(&str) -> String) -> Option<String> {
    let (name, inner) = action.split_once('(')?;
    let holds = matches!(name, "clone" | "write_actions");
    holds.then(|| format!("{name}({})", change(inner.strip_suffix(')').unwrap_or(inner))))
}

/// A list in which sets of addresses and ports, or of parts of them, are written alike, those of
/// parts of the same one as one.
fn whole_sets(actions: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut last: Option<(&str, u64)> = None;
    for action in split_actions(actions) {
        let set = set_of(action);
        match (set, last) {
            (Some((field, value)), Some((before, old))) if field == before => {
                out.pop();
                last = Some((field, old | value));
            }
            _ => last = set,
        }
        out.push(match last {
            // A tag without its bit for a header is none; OVS says the rest of another in two.
            Some(("strip_vlan", value)) if value & 0x1000 == 0 => "strip_vlan".to_owned(),
            Some(("strip_vlan", value)) => {
                format!("mod_vlan_vid={:#x},mod_vlan_pcp={:#x}", value & 0xfff, value >> 13)
            }
            Some((field, value)) => format!("{field}={value:#x}"),
            None => inside(action, whole_sets).unwrap_or_else(|| action.to_owned()),
        });
    }
    out.join(",")
}

/// The field that an action of OpenFlow 1.0 sets, or a load sets a part of, and to what.
fn set_of(action: &str) -> Option<(&'static str, u64)> {
    /// Actions, how the names of their fields end, and the bits that the fields lie below them.
    const FIELDS: [(&str, &str, u32); 14] = [
        ("mod_dl_src", "_ETH_SRC", 0),
        ("mod_dl_dst", "_ETH_DST", 0),
        ("mod_nw_src", "_IP_SRC", 0),
        ("mod_nw_src", "_IPV4_SRC", 0),
        ("mod_nw_dst", "_IP_DST", 0),
        ("mod_nw_dst", "_IPV4_DST", 0),
        ("mod_nw_tos", "_IP_DSCP", 2),
        ("mod_nw_tos", "_IP_TOS", 0),
        ("mod_nw_ttl", "_IP_TTL", 0),
        ("mod_vlan_vid", "_VLAN_VID", 0),
        ("mod_vlan_pcp", "_VLAN_PCP", 0),
        ("strip_vlan", "_VLAN_TCI", 0),
        ("mod_tp_src", "P_SRC", 0),
        ("mod_tp_dst", "P_DST", 0),
    ];
    let (name, argument) = action.split_once(':')?;
    if name == "load" {
        let (value, part) = argument.split_once("->")?;
        let (field, bits) = part.split_once('[')?;
        let (name, _, below) = FIELDS.iter().find(|(_, end, _)| field.ends_with(end))?;
        let start: u32 = bits.split(['.', ']']).next().unwrap_or_default().parse().unwrap_or(0);
        let value = u64::from_str_radix(value.strip_prefix("0x").unwrap_or(value), 16).ok()?;
        let value = value << start << below;
        // A VLAN number's field says, too, that there is a header.
        return Some((name, if *name == "mod_vlan_vid" { value & 0xfff } else { value }));
    }
    let name = FIELDS.iter().find(|(n, ..)| *n == name)?.0;
    let value = if argument.contains(':') {
        u64::from_str_radix(&argument.replace(':', ""), 16).ok()?
    } else if argument.contains('.') {
        u64::from(argument.parse::<std::net::Ipv4Addr>().ok()?.to_bits())
    } else {
        argument.parse().ok()?
    };
    Some((name, value))
}

fn without_probes(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| *line != "EchoRequest([])").collect();
    lines.join("\n")
}

/// Datapath actions with every `trunc` right before the output that it is for.
fn trunc_last(text: &str) -> String {
    let line = |line: &str| {
        let Some(actions) = line.strip_prefix("Datapath actions: ") else { return line.to_owned() };
        format!("Datapath actions: {}", with_late_trunc(actions))
    };
    each_line(text, line)
}

fn with_late_trunc(actions: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut waits = None;
    for action in split_actions(actions) {
        let is_output = action.bytes().all(|b| b.is_ascii_digit());
        match action.split_once('(') {
            Some(("trunc", _)) => waits = Some(action.to_owned()),
            _ if is_output => out.extend(waits.take().into_iter().chain([action.to_owned()])),
            Some((name, inner)) if matches!(name, "clone" | "gt" | "le" | "check_pkt_len") => {
                let inner = inner.strip_suffix(')').unwrap_or(inner);
                out.push(format!("{name}({})", with_late_trunc(inner)));
            }
            _ => out.push(action.to_owned()),
        }
    }
    out.extend(waits);
    out.join(",")
}

fn unchanged(text: &str) -> String {
    // A trace has several flows where tracked copies come back.
    let mut flow = "";
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if let Some(shown) = line.strip_prefix("Flow: ") {
            flow = shown;
        }
        let repeats = !flow.is_empty() && line.strip_prefix("Final flow: ") == Some(flow);
        out.push_str(if repeats { "Final flow: unchanged\n" } else { line });
    }
    out
}

/// Lines `PORT HEX`, with the DEI of the first two VLAN headers clear.
fn without_dei(text: &str) -> String {
    let line = |line: &str| {
        let mut line = line.to_owned();
        let mut at = line.find(' ').map_or(0, |blank| blank + 1) + 24;
        for _ in 0..2 {
            let is_tag = matches!(line.get(at..at + 4), Some("8100" | "88a8"));
            let Some(digit) = line.get(at + 4..at + 5).filter(|_| is_tag) else { break };
            let cleared = u8::from_str_radix(digit, 16).map_or(0, |d| d & !1);
            line.replace_range(at + 4..at + 5, &format!("{cleared:x}"));
            at += 8;
        }
        line
    };
    each_line(text, line)
}

/// The position of a frame's type in its line, after a VLAN header if it has one.
fn type_of(line: &str) -> Option<Range<usize>> {
    let start = line.find(' ')? + 1 + 24;
    let is_tagged = matches!(line.get(start..start + 4)?, "8100" | "88a8");
    let start = if is_tagged { start + 8 } else { start };
    line.get(start..start + 4).map(|_| start..start + 4)
}

fn is_labelled(line: &str) -> bool {
    type_of(line).is_some_and(|at| matches!(line.get(at), Some("8847" | "8848")))
}

fn has_labels(text: &str) -> bool {
    text.lines().any(is_labelled)
}

/// Frames without their types, but for those that say that there are labels.
fn without_types(text: &str) -> String {
    let line = |line: &str| {
        let mut line = line.to_owned();
        if let Some(at) = type_of(&line).filter(|_| !is_labelled(&line)) {
            line.replace_range(at, "type");
        }
        line
    };
    each_line(text, line)
}

/// Packet-ins, with the DEI of their packet's first VLAN header clear.
fn told_without_dei(text: &str) -> String {
    const DATA: &str = "data: [";
    let cleared = |rest: &str| {
        let (data, behind) = rest.split_once(']')?;
        let mut bytes: Vec<u8> = data.split(", ").filter_map(|b| b.parse().ok()).collect();
        if let Some([0x81, 0] | [0x88, 0xa8]) = bytes.get(12..14)
            && let Some(dei) = bytes.get_mut(14)
        {
            *dei &= !0x10;
        }
        Some(format!("{DATA}{bytes:?}]{behind}"))
    };
    let mut parts = text.split(DATA);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + &cleared(part).unwrap_or_else(|| format!("{DATA}{part}")))
}

/// A trace in which successive reports of packets that a port does not carry are sorted.
fn sorted_drops(text: &str) -> String {
    let is_drop = |line: &&str| line.trim_start().starts_with(">>>> dropping VLAN");
    let mut lines: Vec<&str> = text.lines().collect();
    for run in lines.chunk_by_mut(|a, b| is_drop(a) && is_drop(b)) {
        run.sort_unstable();
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Datapath actions with every run of outputs and VLAN headers as the sorted ports: how headers
/// change from one output to the next depends on their order. Frames are compared themselves.
fn sorted_floods(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("Datapath actions: ") {
        Some(actions) => format!("Datapath actions: {}", sorted_runs(actions)),
        None => line.to_owned(),
    };
    each_line(text, line)
}

/// A list of datapath actions whose runs of outputs are sorted, in clones, too.
fn sorted_runs(actions: &str) -> String {
    let mut out = Vec::new();
    let mut run: Vec<String> = Vec::new();
    for action in split_actions(actions) {
        let port = action.rsplit(':').next().filter(|p| p.bytes().all(|b| b.is_ascii_digit()));
        let inner = action.strip_prefix("clone(").and_then(|rest| rest.strip_suffix(')'));
        match (port, inner) {
            (Some(port), _) => run.push(port.to_owned()),
            (None, None) if action == "pop_vlan" || action.starts_with("push_vlan(") => {}
            (None, inner) => {
                run.sort_unstable();
                out.append(&mut run);
                out.push(match inner {
                    Some(inner) => format!("clone({})", sorted_runs(inner)),
                    None => action.to_owned(),
                });
            }
        }
    }
    run.sort_unstable();
    out.append(&mut run);
    out.join(",")
}

/// Of datapath actions the outputs alone, sorted; those in clones, too, which there are where the
/// other bridge's turn is not the last.
fn sorted_outputs(text: &str) -> String {
    let line = |line: &str| {
        let Some(actions) = line.strip_prefix("Datapath actions: ") else { return line.to_owned() };
        let mut ports = outputs(actions);
        ports.sort_unstable();
        format!("Datapath actions: {}", ports.join(","))
    };
    each_line(text, line)
}

fn outputs(actions: &str) -> Vec<&str> {
    let of = |action| match str::strip_prefix(action, "clone(") {
        Some(inner) => outputs(inner.strip_suffix(')').unwrap_or(inner)),
        None => vec![action],
    };
    let mut ports: Vec<&str> = split_actions(actions).into_iter().flat_map(of).collect();
    ports.retain(|a| a.bytes().all(|b| b.is_ascii_digit()));
    ports
}

/// A trace as its lines in any order and at any depth, with the outputs of its datapath actions
/// alone.
fn sorted_reports(text: &str) -> String {
    let text = sorted_outputs(text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    sorted_lines(&lines.join("\n"))
}

fn without_datapath_actions(text: &str) -> String {
    let kept = text.lines().filter(|l| !l.starts_with("Datapath actions: "));
    kept.map(|l| format!("{l}\n")).collect()
}

/// A table of addresses in which a bond is always called by its first member.
fn with_first_member(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("   22 ") {
        Some(rest) => format!("   21 {rest}"),
        None => line.to_owned(),
    };
    each_line(text, line)
}

/// Packet-ins without the hash of a select group.
fn without_hash(text: &str) -> String {
    const HASH: &str = "dp_hash: U32(";
    let mut parts = text.split(HASH);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + HASH + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

fn without_final(text: &str) -> String {
    let kept = text.lines().filter(|l| !l.starts_with("Final flow: "));
    kept.map(|l| format!("{l}\n")).collect()
}

/// A trace without options of Geneve in its final flow.
fn without_options(text: &str) -> String {
    let line = |line: &str| match line.starts_with("Final flow: ") {
        true => {
            let words = line.split(',').filter(|word| !word.starts_with("tun_metadata"));
            words.collect::<Vec<_>>().join(",")
        }
        false => line.to_owned(),
    };
    each_line(text, line)
}

/// Lines `PORT HEX` with the DEI of the first two VLAN headers in packets of tunnels clear.
fn without_inner_dei(text: &str) -> String {
    let line = |line: &str| {
        let Some((port, rest)) = line.split_once(' ') else { return line.to_owned() };
        let (digits, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        let byte =
            |at: usize| digits.get(2 * at..2 * at + 2).and_then(|b| u8::from_str_radix(b, 16).ok());
        let frame: Vec<u8> = (0..digits.len() / 2).map_while(byte).collect();
        let Some(inner) = crate::outer::inner(&frame) else { return line.to_owned() };
        let outer = digits.get(..2 * (frame.len() - inner.len())).unwrap_or_default();
        let inner = without_dei(&format!("{port} {}", crate::case::hex(inner)));
        format!("{port} {outer} {inner} {behind}")
    };
    each_line(text, line)
}

fn without_own_address(text: &str) -> String {
    const LEARNED: &str = "-> learned that aa:55:aa:55:00:00 is on port br1 in VLAN 0";
    let kept = text.lines().filter(|l| l.trim() != LEARNED);
    kept.map(|l| format!("{l}\n")).collect()
}

/// Lines of ports `NUMBER [RX PACKETS, BYTES, TX PACKETS, BYTES]` of Open vSwitch, with the sent ones
/// of tunnels as Slipswitch's where they are up to twice as many: packets without a known neighbour
/// count once.
fn counted_once(real: &str, ours: &str) -> String {
    let line = |(real, ours): (&str, &str)| {
        let numbers = |line: &str| -> Vec<u64> {
            let words = line.split(|c: char| !c.is_ascii_digit()).filter(|w| !w.is_empty());
            words.filter_map(|w| w.parse().ok()).collect()
        };
        let is_twice = match (&numbers(real)[..], &numbers(ours)[..]) {
            ([n @ 11..=14, a, b, twice, more], [m, c, d, once, bytes]) => {
                n == m && (a, b) == (c, d) && (once..=&(2 * once)).contains(&twice) && more >= bytes
            }
            _ => false,
        };
        (if is_twice { ours } else { real }).to_owned()
    };
    match real.lines().count() == ours.lines().count() {
        true => {
            let lines: Vec<String> = real.lines().zip(ours.lines()).map(line).collect();
            lines.join("\n") + if real.ends_with('\n') { "\n" } else { "" }
        }
        false => real.to_owned(),
    }
}

fn without_megaflow(text: &str) -> String {
    text.lines().filter(|l| !l.starts_with("Megaflow: ")).map(|l| format!("{l}\n")).collect()
}

/// The two as they are compared; counts which differences made them equal.
pub fn even(real: &Seen, ours: &Seen, counts: &mut [u64]) -> (String, String) {
    let (mut a, mut b) = (real.text.clone(), ours.text.clone());
    for (known, count) in KNOWN.iter().zip(counts) {
        if a == b {
            break;
        }
        let was = (a.clone(), b.clone());
        (a, b) = (known.even)(&real.of, a, b);
        if (&a, &b) != (&was.0, &was.1) {
            *count += 1;
        }
    }
    (a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_transport_ports_are_looked_over_alone() {
        let plain = "mod_tp_dst:5000,clone(mod_tp_src:1,output:2)";
        let udp = "set_field:5000->udp_dst,clone(set_field:1->tcp_src,output:2)";
        assert_eq!(without_protocols(udp), plain);
        assert_eq!(without_protocols(plain), plain);
        for other in ["set_field:5000/0xfff0->udp_dst", "set_field:5->nw_ttl", "set_field:1->reg0"]
        {
            assert_eq!(without_protocols(other), other);
        }
    }

    #[test]
    fn types_are_looked_over_beside_labels_alone() {
        let addresses = "505400000003505400000004";
        let frames =
            |kind: &str| format!("p2 {addresses}88a8000588480000\np5 {addresses}{kind}0007");
        assert_eq!(without_types(&frames("0800")), without_types(&frames("86dd")));
        assert_eq!(without_types(&frames("81000001b859")), without_types(&frames("8100000186dd")));
        assert_ne!(without_types(&frames("810000010800")), without_types(&frames("810000020800")));
        assert!(has_labels(&frames("0800")) && !has_labels(&format!("p5 {addresses}0800")));
        assert_eq!(without_types("nothing"), "nothing");
    }
}
