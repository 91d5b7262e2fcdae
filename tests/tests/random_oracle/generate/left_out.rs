// SPDX-License-Identifier: Apache-2.0
//! Steps that no case has, with the reason: Slipswitch differs from Open vSwitch on purpose there,
//! and one such step changes the results of all later ones.

use super::packets;
use super::truncation::Resized;
use crate::case::{Step, lowers_timeouts};
use flow::Field;
use openflow::Action;
use openflow::message::{Body, FlowMod, GroupMod, Message};

/// A kind of steps that is left out.
pub struct LeftOut {
    /// Its name.
    pub name: &'static str,
    /// The reason for leaving the kind out.
    pub reason: &'static str,
    /// True for steps of that kind.
    of: fn(&Facts, &Step) -> bool,
}

/// Properties of a case's steps.
struct Facts {
    /// MPLS headers come or go.
    mpls: bool,
    /// Labels may change.
    labels: bool,
    /// IPv4 addresses may change.
    ipv4: bool,
    /// Fields of transport headers may change.
    transport: bool,
    /// Timeouts are lowered when a connection ends.
    fin_timeout: bool,
    /// Packets are truncated.
    truncates: bool,
    /// Ports are protected from each other.
    protected: bool,
    /// Packets are branched on by their length.
    branches: bool,
    /// Tables are gone to with an action set.
    set_waits: bool,
    /// Where headers have come or gone.
    resized: Resized,
    /// VLAN headers that a frame may get.
    pushes: usize,
    /// VLAN headers that a switch looks at.
    vlan_limit: usize,
    /// The lengths that `check_pkt_larger` compares with.
    lengths: Vec<usize>,
    /// Connections are tracked.
    tracks: bool,
    /// Packets go into tunnels.
    tunnels: bool,
}

/// VLAN headers that a key has room for.
const ROOM: usize = flow::VLANS;

/// Bytes of headers that come and go before a length is compared, as a rule.
const CHANGES: usize = 8;

/// A frame longer than this may be too long for a port, with the headers that it gets.
const LONG: usize = 1500;

/// All of them.
pub const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        name: "labels on frames with a length",
        reason: "OVS writes an Ethernet type into the length",
        of: |facts, step| facts.mpls && frame(step).is_some_and(packets::has_length),
    },
    LeftOut {
        name: "stacks of labels without an end",
        reason: "OVS counts labels that are cut off, and writes where there are none",
        of: |facts, step| {
            (facts.mpls || facts.labels) && frame(step).is_some_and(packets::has_endless_labels)
        },
    },
    LeftOut {
        name: "addresses of later fragments",
        reason: "OVS corrects a checksum of TCP or UDP where a later fragment has its payload",
        of: |facts, step| facts.ipv4 && frame(step).is_some_and(packets::is_later_fragment),
    },
    LeftOut {
        name: "fields of transport headers that are cut off",
        reason: "Slipswitch drops a frame on which not all can be done, as openvswitch.ko does; \
                 OVS in userspace sends it with the rest of the changes",
        of: |facts, step| facts.transport && frame(step).is_some_and(packets::is_cut_off),
    },
    LeftOut {
        name: "a third VLAN header",
        reason: "OVS loses the innermost of three, Slipswitch keeps all",
        of: |facts, step| {
            let tags = frame(step).map_or(0, |f| packets::tags(f, facts.vlan_limit));
            facts.pushes > 0 && tags + facts.pushes > ROOM
        },
    },
    LeftOut {
        name: "ARP of operation 255",
        reason: "OVS takes it for a mask, and loses what its megaflow counts",
        of: |_, step| frame(step).is_some_and(packets::has_operation_255),
    },
    LeftOut {
        name: "neighbour messages where there is fin_timeout",
        reason: "OVS keeps the type of their options where a packet of TCP has its flags, and takes \
                 some for FIN",
        of: |facts, step| {
            facts.fin_timeout && frame(step).is_some_and(packets::is_neighbour_message)
        },
    },
    LeftOut {
        name: "learned flows with fin_timeout that their own packet meets",
        reason: "the packet of a FIN may change the flow that it meets: OVS then lowers the timeouts of \
                 the flow as it was, Slipswitch those that go on",
        of: |_, step| flow_of(step).is_some_and(|flow| learns_what_it_meets(&flow)),
    },
    LeftOut {
        name: "traces through check_pkt_larger",
        reason: "OVS sends the packet that is traced, though a trace sends nothing",
        of: |facts, step| facts.branches && matches!(step, Step::Trace { .. }),
    },
    LeftOut {
        name: "branches and buckets with labels popped while an action set waits",
        reason: "OVS runs the action set for a longer packet twice, and for the packet of a bucket \
                 that comes back, too",
        of: |facts, step| {
            let branch = |a: &Action| matches!(a, Action::CheckPktLarger { .. });
            let pop = |a: &Action| matches!(a, Action::PopMpls { .. });
            facts.set_waits
                && match step {
                    Step::Group { .. } => any_action(step, &pop),
                    step => any_action(step, &branch),
                }
        },
    },
    LeftOut {
        name: "truncated packets where headers come and go",
        reason: "OVS says how much to send before it changes the packet, so that what headers are \
                 longer or shorter then is more or less than was asked for; here it is what was asked \
                 for",
        of: |facts, step| facts.resized.truncated_by(step),
    },
    LeftOut {
        name: "results of check_pkt_larger in headers",
        reason: "OVS leaves the bit out of the mask of what it sets, and the packet as it was",
        of: |_, step| {
            let in_header = |a: &Action| match a {
                Action::CheckPktLarger { dst, .. } => {
                    !dst.field.is_register() && dst.field != Field::Metadata
                }
                _ => false,
            };
            any_action(step, &in_header)
        },
    },
    LeftOut {
        name: "groups that may lead to themselves",
        reason: "Slipswitch refuses a circle (OFPGMFC_LOOP), OVS runs in it to its limit",
        of: |_, step| matches!(step, Step::Group { change, .. } if leads_back(change)),
    },
    LeftOut {
        name: "bundle_load by what is not there",
        reason: "OVS takes one by hash fields or an algorithm that it does not know, and ends at \
                 the first packet",
        of: |_, step| match step {
            Step::Message { bytes, .. } => has_odd_bundle_load(bytes),
            _ => false,
        },
    },
    LeftOut {
        name: "actions for OVS's own tests",
        reason: "OVS takes debug_slow and debug_recirc, and encodes them as no controller can read",
        of: |_, step| match step {
            Step::Message { bytes, .. } => has_debug_action(bytes),
            _ => false,
        },
    },
    LeftOut {
        name: "matches of what is not there yet",
        reason: "a damaged message may match any tunnel or connection, which OVS takes",
        of: |_, step| match step {
            Step::Message { version, bytes, .. } => matches_what_is_not_there(*version, bytes),
            _ => false,
        },
    },
    LeftOut {
        name: "fragments where connections are tracked",
        reason: "OVS keeps them beyond the packet and beyond the case, and sends them with later ones; \
                 what becomes of them is for tests/tests/oracle",
        of: |facts, step| facts.tracks && frame(step).is_some_and(packets::is_fragment),
    },
    LeftOut {
        name: "SCTP where connections are tracked",
        reason: "here its ports are tracked, as in versions of OVS from 3.3 on; 3.1 tracks addresses",
        of: |facts, step| facts.tracks && frame(step).is_some_and(packets::is_sctp),
    },
    LeftOut {
        name: "MPLS without a label",
        reason: "OVS cannot read the key of its megaflow, and loses what that counts",
        of: |_, step| frame(step).is_some_and(packets::is_without_label),
    },
    LeftOut {
        name: "long frames that are truncated",
        reason: "after a frame that is too long OVS's dummies lose the packet's other frames to the \
                 port",
        of: |facts, step| facts.truncates && frame(step).is_some_and(|f| f.len() > LONG),
    },
    LeftOut {
        name: "truncated packets between protected ports",
        reason: "OVS sends nothing to the port, and truncates what it sends next",
        of: |facts, step| {
            facts.protected && any_action(step, &|a| matches!(a, Action::OutputTrunc { .. }))
        },
    },
    LeftOut {
        name: "labels and classes that are too large",
        reason: "OVS takes labels of more than 20 bits and classes of more than 3, and encodes them \
                 as no controller can read",
        of: |_, step| match step {
            Step::Message { bytes, .. } => has_large_label(bytes),
            _ => false,
        },
    },
    LeftOut {
        name: "labels that are popped next to tunnels",
        reason: "OVS looks such a packet up again, so that the bridge under the tunnel counts it without \
                 the labels; here its length when it came in counts",
        of: |facts, step| {
            facts.tunnels && any_action(step, &|a| matches!(a, Action::PopMpls { .. }))
        },
    },
    LeftOut {
        name: "wrong lengths of UDP in packets of tunnels",
        reason: "OVS takes a packet whose length in UDP is longer than the packet",
        of: |_, step| frame(step).is_some_and(crate::outer::has_wrong_length),
    },
    LeftOut {
        name: "bytes after packets of tunnels",
        reason: "OVS adds them to the checksum of UDP or GRE, which is then wrong, and drops the packet",
        of: |_, step| frame(step).is_some_and(crate::outer::has_trailer),
    },
    LeftOut {
        name: "lengths of frames with a VLAN header",
        reason: "OVS's userspace datapath counts that header in check_pkt_larger, against its \
                 manual and openvswitch.ko",
        of: |facts, step| {
            let changes = if facts.pushes > 0 || facts.mpls { CHANGES } else { 0 };
            let differs = |f: &[u8], n: usize| {
                let tags = packets::tags(f, ROOM) + facts.pushes;
                tags > 0 && f.len() + changes > n && f.len() <= n + 4 * tags + changes
            };
            frame(step).is_some_and(|f| facts.lengths.iter().any(|n| differs(f, *n)))
        },
    },
];

/// Takes them from `steps`; how many of each kind there were.
pub fn leave_out(steps: &mut Vec<Step>) -> Vec<u64> {
    let mut pushes = tunnels(steps);
    steps.retain(|step| {
        pushes += pushes_of(step);
        pushes <= ROOM || pushes_of(step) == 0
    });
    let facts = Facts::of(steps);
    let mut counts = vec![0; LEFT_OUT.len()];
    steps.retain(|step| {
        let inner = inside(step);
        let is_of = |kind: &LeftOut| {
            let of_inner = inner.as_ref().is_some_and(|inner| (kind.of)(&facts, inner));
            of_inner || (kind.of)(&facts, step)
        };
        let kind = LEFT_OUT.iter().position(is_of);
        kind.and_then(|k| counts.get_mut(k)).map(|count| *count += 1).is_none()
    });
    counts
}

/// True when nothing of `steps` is to be left out, as when they were made smaller.
pub fn admits(steps: &[Step]) -> bool {
    let mut left = steps.to_vec();
    leave_out(&mut left);
    left.len() == steps.len()
}

impl Facts {
    fn of(steps: &[Step]) -> Facts {
        let text: String = steps.iter().map(text_of).collect();
        let any = |words: &[&str]| words.iter().any(|w| text.contains(w));
        let fields = any(&["SetField", "Move", "StackPop", "Learn(", "Message {"]);
        let limit = if any(&["vlan-limit=0", "vlan-limit=2"]) { ROOM } else { 1 };
        // By a rule that looks twice into tables another may push twice.
        let times = if steps.iter().any(|step| looks_into_tables(step) > 1) { 2 } else { 1 };
        Facts {
            mpls: any(&["PushMpls", "PopMpls", "Message {"]),
            labels: fields || any(&["SetMpls", "DecMpls"]),
            ipv4: fields || any(&["SetIpv4"]),
            fin_timeout: lowers_timeouts(steps),
            truncates: any(&["OutputTrunc"]),
            protected: any(&["protected=true"]),
            branches: any(&["CheckPktLarger"]),
            set_waits: steps.iter().any(goes_on_with_a_set)
                || steps.iter().any(branches_after_tables)
                    && any_step(steps, &|a| matches!(a, Action::WriteActions(_))),
            resized: Resized::of(steps),
            transport: fields || any(&["SetL4"]),
            pushes: match times * steps.iter().map(pushes_of).sum::<usize>() {
                0 => tunnels(steps),
                pushes => tunnels(steps) + pushes + tags_between(steps),
            },
            vlan_limit: limit,
            lengths: lengths(&text),
            tracks: any(&["Ct(Ct {"]),
            tunnels: steps.iter().any(|step| matches!(step, Step::Underlay(_))),
        }
    }
}

/// True when there is a `bundle_load` of which Open vSwitch forgets what is wrong: its algorithm,
/// hash fields, number of members or their kind.
fn has_odd_bundle_load(message: &[u8]) -> bool {
    /// Vendor and subtype.
    const HEAD: [u8; 6] = [0, 0, 0x23, 0x20, 0, 13];
    const ALGORITHMS: u16 = 2;
    const HASH_FIELDS: u16 = 7;
    const MAX_MEMBERS: u16 = 2048;
    const OF_PORTS: [u8; 4] = [0, 0, 0, 2];
    message.windows(HEAD.len() + 12).any(|action| {
        let Some(&[a0, a1, f0, f1, _, _, k0, k1, k2, k3, n0, n1]) =
            action.strip_prefix(&HEAD).and_then(|rest| rest.first_chunk())
        else {
            return false;
        };
        u16::from_be_bytes([a0, a1]) >= ALGORITHMS
            || u16::from_be_bytes([f0, f1]) >= HASH_FIELDS
            || u16::from_be_bytes([n0, n1]) > MAX_MEMBERS
            || [k0, k1, k2, k3] != OF_PORTS
    })
}

/// True when there may be an action of Nicira's that only tests of Open vSwitch use.
fn has_debug_action(message: &[u8]) -> bool {
    /// Vendor, and the subtypes.
    const NICIRA: [u8; 4] = [0, 0, 0x23, 0x20];
    const SUBTYPES: [[u8; 2]; 2] = [[0, 254], [0, 255]];
    message.windows(NICIRA.len() + 2).any(|action| {
        let subtype = action.strip_prefix(&NICIRA).and_then(|rest| rest.first_chunk());
        subtype.is_some_and(|subtype| SUBTYPES.contains(subtype))
    })
}

/// True for a message that Slipswitch refuses for a field, where there may be one of tunnels or
/// connections.
fn matches_what_is_not_there(version: openflow::Version, message: &[u8]) -> bool {
    let refused = Message::decode(message, &crate::case::protocol(version)).err();
    let of_field = refused.is_some_and(|e| e.error == openflow::OfError::OFPBMC_BAD_FIELD);
    // Nicira's class, then the field and the bit for a mask.
    let is_such = |header: &[u8]| match header {
        [0, 1, field] => matches!(field >> 1, 16 | 31 | 32 | 38..=110 | 119..=124),
        _ => false,
    };
    of_field && message.windows(3).any(is_such)
}

/// True when there may be an action that sets an MPLS label or traffic class to more than there is
/// room for, Nicira's or OpenFlow 1.1's.
fn has_large_label(message: &[u8]) -> bool {
    /// The bytes before a label, and before a class.
    const LABEL: [&[u8]; 2] = [&[0, 0, 0x23, 0x20, 0, 30, 0, 0], &[0, 13, 0, 8]];
    const CLASS: [&[u8]; 2] = [&[0, 0, 0x23, 0x20, 0, 31], &[0, 14, 0, 8]];
    let follows = |head: &[u8], is_large: &dyn Fn(&[u8; 4]) -> bool| {
        message.windows(head.len() + 4).any(|window| {
            let value = window.strip_prefix(head).and_then(|rest| rest.first_chunk());
            value.is_some_and(is_large)
        })
    };
    LABEL.iter().any(|head| follows(head, &|label| u32::from_be_bytes(*label) >> 20 != 0))
        || CLASS.iter().any(|head| follows(head, &|[class, ..]| class >> 3 != 0))
}

/// VLAN headers that a frame may get at ports.
fn tunnels(steps: &[Step]) -> usize {
    usize::from(format!("{steps:?}").contains("dot1q-tunnel"))
}

/// VLAN headers that a frame may get at ports before another bridge pushes some.
fn tags_between(steps: &[Step]) -> usize {
    let text = format!("{steps:?}");
    usize::from(text.contains("patch") && text.contains("tag="))
}

fn pushes_of(step: &Step) -> usize {
    let text = text_of(step);
    // From OpenFlow 1.1 on the second is written as a push and a set.
    ["PushVlan {", "push_if_missing: true"].iter().map(|w| text.matches(w).count()).sum()
}

/// The packet in the tunnel's packet of a step, as a step.
fn inside(step: &Step) -> Option<Step> {
    let mut step = step.clone();
    match &mut step {
        Step::Packet { frame, .. } | Step::Trace { frame, .. } => {
            *frame = crate::outer::inner(frame)?.to_vec();
        }
        _ => return None,
    }
    Some(step)
}

fn frame(step: &Step) -> Option<&[u8]> {
    match step {
        Step::Packet { frame, .. } | Step::Trace { frame, .. } => Some(frame),
        _ => None,
    }
}

/// True when a rule goes to another table with something in its action set.
fn goes_on_with_a_set(step: &Step) -> bool {
    flow_of(step).is_some_and(|flow| {
        let has = |of: fn(&Action) -> bool| flow.actions.iter().any(of);
        has(|a| matches!(a, Action::WriteActions(_))) && has(|a| matches!(a, Action::GotoTable(_)))
    })
}

/// True when a rule looks into tables, which may write an action set, and then branches.
fn branches_after_tables(step: &Step) -> bool {
    flow_of(step).is_some_and(|flow| {
        let mut rest = flow.actions.iter().skip_while(|a| !is_look(a));
        rest.any(|a| matches!(a, Action::CheckPktLarger { .. }))
    })
}

/// How often a rule looks into tables.
fn looks_into_tables(step: &Step) -> usize {
    flow_of(step).map_or(0, |flow| flow.actions.iter().filter(|a| is_look(a)).count())
}

fn is_look(action: &Action) -> bool {
    let is_table = |port: &openflow::PortNo| *port == openflow::PortNo::TABLE;
    matches!(action, Action::Resubmit { .. })
        || matches!(action, Action::Output { port, .. } if is_table(port))
}

fn any_step(steps: &[Step], of: &dyn Fn(&Action) -> bool) -> bool {
    steps.iter().any(|step| {
        any_action(step, of) || flow_of(step).is_some_and(|flow| flow.actions.iter().any(of))
    })
}

/// True when a packet that learns may go on to the flow that it has learned, and lower its
/// timeouts.
fn learns_what_it_meets(flow: &FlowMod) -> bool {
    let lowers = |learn: &openflow::action::Learn| {
        (learn.fin_idle_timeout, learn.fin_hard_timeout) != (0, 0) && learn.table > flow.table_id
    };
    flow.actions.iter().any(|a| matches!(a, Action::Learn(learn) if lowers(learn)))
}

/// True when an action of the step, at any depth, is one of those.
fn any_action(step: &Step, of: &dyn Fn(&Action) -> bool) -> bool {
    fn among(actions: &[Action], of: &dyn Fn(&Action) -> bool) -> bool {
        actions.iter().any(|action| match action {
            Action::Clone(inner) | Action::WriteActions(inner) => among(inner, of),
            action => of(action),
        })
    }
    match step {
        Step::Group { change, .. } => change.buckets.iter().any(|b| among(&b.actions, of)),
        step => flow_of(step).is_some_and(|flow| among(&flow.actions, of)),
    }
}

/// The content of a step as text, decoded if it is a message that can be decoded.
fn text_of(step: &Step) -> String {
    let read = match step {
        Step::Message { version, bytes, .. } => {
            Message::decode(bytes, &crate::case::protocol(*version)).ok()
        }
        _ => None,
    };
    format!("{step:?} {read:?}")
}

/// The change of a flow table that a step is, if it is one, or a damaged one that can be read.
fn flow_of(step: &Step) -> Option<Box<FlowMod>> {
    match step {
        Step::Flow { change, .. } => Some(change.clone()),
        Step::Message { version, bytes, .. } => {
            match Message::decode(bytes, &crate::case::protocol(*version)).ok()?.body {
                Body::FlowMod(flow) => Some(flow),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The lengths that `check_pkt_larger` compares with, from the text of steps.
fn lengths(text: &str) -> Vec<usize> {
    let behind = text.split("CheckPktLarger { len: ").skip(1);
    behind.filter_map(|rest| rest.split(',').next()?.parse().ok()).collect()
}

/// Groups that lead to higher ones only cannot lead back.
fn leads_back(change: &GroupMod) -> bool {
    let back = |a: &Action| matches!(a, Action::Group(id) if *id <= change.group_id);
    change.buckets.iter().any(|b| b.actions.iter().any(back))
}
