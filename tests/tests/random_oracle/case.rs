// SPDX-License-Identifier: Apache-2.0
//! One generated case: what is done to both switches, step by step, and its text as a script in
//! the language of the scenarios (see `Scenario` in the harness).

use flow::text::no_names;
use openflow::frame::HEADER_SIZE;
use openflow::message::{
    Body, FlowFlags, FlowFormat, FlowMod, FlowModCommand, GroupCommand, GroupMod, Message,
    Protocol, TlvTableMod, bucket,
};
use openflow::text::format_actions;
use openflow::{Action, Version};
use std::fmt::Write;

/// One step of a case.
#[derive(Clone, Debug)]
pub enum Step {
    /// Arguments of `ovs-vsctl`. Those at the start of a case that do not begin with `--` are one call.
    Configure(String),
    /// A change of a bridge's flow tables.
    Flow { bridge: &'static str, version: Version, change: Box<FlowMod> },
    /// A change of a bridge's groups.
    Group { bridge: &'static str, version: Version, change: Box<GroupMod> },
    /// A change of a bridge's mappings of tunnel options.
    Options { bridge: &'static str, version: Version, change: TlvTableMod },
    /// An OpenFlow message that may be damaged; its transaction id is set when it is sent.
    Message { bridge: &'static str, version: Version, bytes: Vec<u8> },
    /// A frame arrives on a port.
    Packet { port: &'static str, frame: Vec<u8> },
    /// Milliseconds go by.
    Warp(u32),
    /// A frame is traced, without effect.
    Trace { bridge: &'static str, port: u32, frame: Vec<u8> },
    /// Commands of `ovs-appctl` that make the underlay of tunnels.
    Underlay(Vec<String>),
    /// A command of `ovs-appctl`, whose answer is compared.
    Command(Vec<String>),
}

/// The treatment of megaflows that packets make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Megaflows {
    /// There are none, as `flow-limit` is zero: each packet is translated.
    None,
    /// They are installed, and removed after each packet.
    Purged,
    /// They live on from packet to packet, and are not revalidated between them. Not for tables
    /// that change by packets: which megaflow such a packet meets depends on masks.
    Live,
}

/// A list of steps for a switch as each scenario starts with: see `Scenario`.
#[derive(Clone, Debug)]
pub struct Case {
    /// The treatment of megaflows during the case.
    pub megaflows: Megaflows,
    /// One step of a case.
    pub steps: Vec<Step>,
    /// How many steps of each kind of `LEFT_OUT` it might have had.
    pub left_out: Vec<u64>,
}

/// How messages of this version are written here.
pub fn protocol(version: Version) -> Protocol {
    Protocol { flow_format: FlowFormat::Nxm, flow_mod_table_id: true, ..Protocol::new(version) }
}

impl Step {
    /// The bridge that the step's message is for, and its version; `None` for other steps.
    pub fn receiver(&self) -> Option<(&'static str, Version)> {
        match self {
            Step::Flow { bridge, version, .. }
            | Step::Group { bridge, version, .. }
            | Step::Options { bridge, version, .. }
            | Step::Message { bridge, version, .. } => Some((bridge, *version)),
            _ => None,
        }
    }

    /// The arguments of `ovs-vsctl` that make bridges and ports; `None` for other steps.
    pub fn making(&self) -> Option<&str> {
        match self {
            Step::Configure(arguments) if !arguments.starts_with("--") => Some(arguments),
            _ => None,
        }
    }

    /// The kind of the step, in the plural.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Configure(_) => "settings",
            Step::Packet { .. } => "packets",
            Step::Warp(_) => "warps",
            Step::Trace { .. } => "traces",
            Step::Underlay(_) | Step::Command(_) => "commands",
            Step::Flow { .. }
            | Step::Group { .. }
            | Step::Options { .. }
            | Step::Message { .. } => "messages",
        }
    }

    /// The OpenFlow message of the step with this transaction id, `None` for other steps and for
    /// what the version cannot say.
    pub fn message(&self, xid: u32) -> Option<Vec<u8>> {
        let (version, body) = match self {
            Step::Flow { version, change, .. } => (*version, Body::FlowMod(change.clone())),
            Step::Group { version, change, .. } => (*version, Body::GroupMod((**change).clone())),
            Step::Options { version, change, .. } => (*version, Body::TlvTableMod(change.clone())),
            Step::Message { bytes, .. } => {
                let mut bytes = bytes.clone();
                if let Some(place) = bytes.get_mut(4..HEADER_SIZE) {
                    place.copy_from_slice(&xid.to_be_bytes());
                }
                return Some(bytes);
            }
            _ => return None,
        };
        Message { xid, body }.encode(&protocol(version)).ok()
    }
}

/// True when packets may lower timeouts so far that a rule's time is up while the clock stands.
pub fn lowers_timeouts(steps: &[Step]) -> bool {
    let text = format!("{steps:?}");
    ["FinTimeout", "fin_idle_timeout: 2", "Message {"].iter().any(|word| text.contains(word))
}

impl Case {
    /// True when packets may go from one bridge to the other.
    pub fn joins_bridges(&self) -> bool {
        self.steps.iter().any(|s| matches!(s, Step::Configure(c) if c.contains("type=patch")))
    }

    /// True when packets may go into tunnels and come out of them.
    pub fn has_tunnels(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Underlay(_)))
    }

    /// True when there is a bond.
    pub fn has_bond(&self) -> bool {
        self.steps.iter().any(|s| matches!(s, Step::Configure(c) if c.starts_with("add-bond")))
    }

    /// True when controllers may get flow-removed messages.
    pub fn tells(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Flow { change, .. } => {
                let learns = |a: &Action| matches!(a, Action::Learn(l) if l.send_flow_removed);
                change.flags.contains(FlowFlags::SEND_FLOW_REM) || change.actions.iter().any(learns)
            }
            Step::Message { .. } => true,
            _ => false,
        })
    }

    /// The case as a script for `scenarios!`. A step that the language cannot express is a comment.
    pub fn script(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "        # megaflows: {:?}", self.megaflows);
        for step in &self.steps {
            let _ = writeln!(out, "        {}", line(step));
            if matches!(step, Step::Packet { .. }) && self.megaflows != Megaflows::Live {
                out += "        appctl revalidator/purge\n";
            }
        }
        if self.megaflows == Megaflows::Live {
            out += "        appctl revalidator/purge\n";
        }
        out += "        for p in p1 p2 p3 p4 p5 p6 q1 q2; do echo $p; od -An -v -tx1 -j24 $p-tx.pcap; done\n";
        out + "        ofctl dump-flows br0\n"
    }
}

fn line(step: &Step) -> String {
    match step {
        Step::Configure(arguments) => format!("vsctl {arguments}"),
        Step::Flow { bridge, version, change } => {
            format!("ofctl {} {}", dash_o(*version), flow_text(bridge, change))
        }
        Step::Group { bridge, version, change } => {
            format!("ofctl {} {}", dash_o(*version), group_text(bridge, change))
        }
        Step::Options { bridge, version, change } => {
            let maps = change.mappings.iter().map(|m| {
                format!(
                    "{{class={:#x},type={},len={}}}->tun_metadata{}",
                    m.class, m.kind, m.len, m.index
                )
            });
            let maps = maps.collect::<Vec<_>>().join(",");
            format!("ofctl {} add-tlv-map {bridge} '{maps}'", dash_o(*version))
        }
        Step::Message { bridge, version, bytes } => {
            format!("# {version} message to {bridge}: {}", hex(bytes))
        }
        Step::Packet { port, frame } => format!("receive {port} {}", hex(frame)),
        Step::Warp(ms) => format!("appctl time/warp {ms}"),
        Step::Trace { bridge, port, frame } => {
            format!("appctl ofproto/trace {bridge} in_port={port} {}", hex(frame))
        }
        Step::Underlay(lines) => format!("appctl {}", lines.join("\n        appctl ")),
        Step::Command(words) => format!("appctl {}", words.join(" ")),
    }
}

fn dash_o(version: Version) -> String {
    match version {
        Version::V10 => String::new(),
        v => format!("-O OpenFlow1{}", v.wire() - 1),
    }
}

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

fn flow_text(bridge: &str, f: &FlowMod) -> String {
    let adds = matches!(
        f.command,
        FlowModCommand::Add | FlowModCommand::Modify | FlowModCommand::ModifyStrict
    );
    let (command, strict) = match f.command {
        FlowModCommand::Add => ("add-flow", ""),
        FlowModCommand::Modify => ("mod-flows", ""),
        FlowModCommand::ModifyStrict => ("mod-flows", "--strict "),
        FlowModCommand::Delete => ("del-flows", ""),
        FlowModCommand::DeleteStrict => ("del-flows", "--strict "),
    };
    let mut words = Vec::new();
    if f.table_id != openflow::message::TABLE_ALL {
        words.push(format!("table={}", f.table_id));
    }
    if f.command == FlowModCommand::Add || !strict.is_empty() {
        words.push(format!("priority={}", f.priority));
    }
    if f.new_cookie != 0 && adds {
        words.push(format!("cookie={:#x}", f.new_cookie));
    }
    if f.cookie_mask != 0 {
        words.push(format!("cookie={:#x}/{:#x}", f.cookie, f.cookie_mask));
    }
    for (name, seconds) in [("idle_timeout", f.idle_timeout), ("hard_timeout", f.hard_timeout)] {
        if seconds != 0 {
            words.push(format!("{name}={seconds}"));
        }
    }
    for (flag, name) in [
        (FlowFlags::SEND_FLOW_REM, "send_flow_rem"),
        (FlowFlags::CHECK_OVERLAP, "check_overlap"),
        (FlowFlags::RESET_COUNTS, "reset_counts"),
        (FlowFlags::NO_PACKET_COUNTS, "no_packet_counts"),
        (FlowFlags::NO_BYTE_COUNTS, "no_byte_counts"),
    ] {
        if f.flags.contains(flag) {
            words.push(name.to_owned());
        }
    }
    let matching = flow::text::format_match(&f.matching, &no_names);
    if !matching.is_empty() {
        words.push(matching);
    }
    if adds {
        words.push(format!("actions={}", format_actions(&f.actions, &no_names)));
    }
    format!("{strict}{command} {bridge} '{}'", words.join(","))
}

fn group_text(bridge: &str, g: &GroupMod) -> String {
    let command = match g.command {
        GroupCommand::Add => "add-group",
        GroupCommand::Modify => "mod-group",
        GroupCommand::AddOrModify => "--may-create mod-group",
        GroupCommand::Delete => "del-groups",
        GroupCommand::InsertBucket => "insert-buckets",
        GroupCommand::RemoveBucket => "remove-buckets",
    };
    let mut text = format!("group_id={}", g.group_id);
    if matches!(g.command, GroupCommand::InsertBucket | GroupCommand::RemoveBucket) {
        let place = match g.command_bucket_id {
            bucket::FIRST => "first".to_owned(),
            bucket::LAST => "last".to_owned(),
            bucket::ALL => "all".to_owned(),
            n => n.to_string(),
        };
        let _ = write!(text, ",command_bucket_id={place}");
    }
    if matches!(g.command, GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify) {
        let kind = ["all", "select", "indirect", "ff"];
        let _ = write!(text, ",type={}", kind.get(g.kind as usize).unwrap_or(&"?"));
    }
    for b in &g.buckets {
        let _ = write!(text, ",bucket=bucket_id:{}", b.id);
        if b.weight != 0 {
            let _ = write!(text, ",weight:{}", b.weight);
        }
        if b.watch_port != openflow::PortNo::NONE {
            let _ = write!(text, ",watch_port:{}", b.watch_port);
        }
        if b.watch_group != openflow::message::GROUP_ANY {
            let _ = write!(text, ",watch_group:{}", b.watch_group);
        }
        let _ = write!(text, ",actions={}", format_actions(&b.actions, &no_names));
    }
    format!("{command} {bridge} '{text}'")
}
