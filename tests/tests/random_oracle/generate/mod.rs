// SPDX-License-Identifier: Apache-2.0
//! Cases from seeds.

pub mod actions;
mod connections;
mod groups;
pub mod left_out;
pub mod matches;
mod multicast;
mod packets;
mod truncation;
pub mod tunnels;
mod world;

use crate::case::{Case, Megaflows, Step};
use flow::{Field, FieldValue};
use openflow::message::{FlowFlags, FlowMod, FlowModCommand, GROUP_ANY, TABLE_ALL};
use openflow::{PortNo, Version};

/// VLANs that frames, ports and flows have.
pub const VLANS: [u16; 6] = [0, 1, 5, 10, 20, 4095];
/// Groups are 1 to this.
pub const GROUPS: u32 = 4;
/// Frames that a case's flows are about.
const KNOWN: usize = 12;
/// One in this many cases tracks connections.
const TRACKING: usize = 4;
/// One in this many of the others has tunnels.
const TUNNELLING: usize = 4;
/// One in this many snoops multicast.
const SNOOPING: usize = 5;
/// One in this many has a bond.
const BONDING: usize = 6;

/// The state from which a case is generated.
pub struct Gen {
    rng: fastrand::Rng,
    /// Frames of the case, each with the number of the port where it arrives.
    known: Vec<(u32, Vec<u8>)>,
    priorities: u16,
    /// The case's connections; none where it tracks none.
    conversations: Vec<connections::Conversation>,
    /// The case translates addresses of connections.
    translates: bool,
    /// The case's tunnel ports.
    tunnels: Vec<tunnels::Port>,
    /// br0 has a bond.
    bonds: bool,
    /// br0 snoops multicast.
    snoops: bool,
    /// There is a router of multicast.
    has_router: bool,
}

impl Gen {
    /// The numbers that follow from `seed`.
    pub fn new(seed: u64) -> Gen {
        let rng = fastrand::Rng::with_seed(seed);
        let (known, conversations, tunnels) = (Vec::new(), Vec::new(), Vec::new());
        Gen {
            rng,
            known,
            priorities: 0,
            conversations,
            translates: false,
            tunnels,
            bonds: false,
            snoops: false,
            has_router: false,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.usize(..n.max(1))
    }

    fn small(&mut self, n: u32) -> u32 {
        self.rng.u32(..n.max(1))
    }

    fn bool(&mut self) -> bool {
        self.rng.bool()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn byte(&mut self) -> u8 {
        self.rng.u8(..)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.byte()).collect()
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn ttl(&mut self) -> u8 {
        self.pick(&[64, 64, 64, 255, 2, 1, 0])
    }

    /// A priority that no other flow has: which of two equal flows that overlap is found is not
    /// specified.
    fn priority(&mut self) -> u16 {
        self.priorities += 1;
        self.pick(&[1, 100, 32768, 60000]) + self.priorities
    }

    fn l4_port(&mut self) -> u16 {
        self.pick(&[0, 53, 80, 443, 5000, 0xffff])
    }

    /// A tag's priority, CFI and VLAN.
    fn tci(&mut self) -> u16 {
        let cfi = u16::from(self.one_in(6)) << 12;
        let pcp = if self.bool() { 0 } else { self.small(8) as u16 };
        pcp << 13 | cfi | self.pick(&VLANS)
    }

    fn group(&mut self) -> u32 {
        1 + self.small(GROUPS)
    }

    /// A port in an action: mostly one that is there.
    fn of_port(&mut self) -> PortNo {
        match self.below(24) {
            0 => PortNo::IN_PORT,
            1 => PortNo::FLOOD,
            2 => PortNo::ALL,
            3 => PortNo::LOCAL,
            4 | 5 => PortNo::NORMAL,
            6 => self.pick(&[
                PortNo::CONTROLLER,
                PortNo::TABLE,
                PortNo::NONE,
                PortNo(9),
                PortNo(0),
                PortNo(0xfeff),
                PortNo(0xff00),
            ]),
            7 | 8 if !self.tunnels.is_empty() => tunnels::number(self),
            7 | 8 if self.bonds => PortNo(self.pick(&crate::wire::MEMBERS)),
            7 | 8 => PortNo(10),
            _ => PortNo(1 + self.small(4)),
        }
    }

    /// A value for a field, from the few that frames have, or any.
    fn value(&mut self, field: Field) -> FieldValue {
        let value = match self.below(4) {
            0 => self.rng.u128(..),
            1 => self.pick(&[0, 1, 2, 5, 64, 0xffff_ffff]),
            _ => {
                let (port, frame) = self.known_frame();
                field.load(&flow::extract::key_of(&frame, port))
            }
        };
        value & field.all_ones()
    }

    /// A mask, mostly a prefix.
    fn mask(&mut self, field: Field) -> FieldValue {
        let all = field.all_ones();
        let bits = u32::from(field.bits());
        match self.below(4) {
            0 => self.rng.u128(..) & all,
            1 => 1 << self.small(bits),
            _ => all & !((1u128 << self.small(bits)) - 1),
        }
    }

    /// A frame of the case and its port.
    fn known_frame(&mut self) -> (u32, Vec<u8>) {
        let n = self.below(self.known.len());
        self.known.get(n).cloned().unwrap_or((1, vec![0; 14]))
    }
}

/// The case of a seed.
pub fn case(seed: u64, packets: usize) -> Case {
    let mut g = Gen::new(seed);
    for _ in 0..KNOWN {
        let frame = packets::frame(&mut g);
        let port = 1 + g.small(4);
        g.known.push((port, frame));
    }
    if g.one_in(TRACKING) {
        g.conversations = connections::conversations(&mut g);
        g.translates = g.below(3) != 0;
    }
    let tunnels = g.conversations.is_empty() && g.one_in(TUNNELLING);
    let mut steps = if tunnels { tunnels::steps(&mut g) } else { Vec::new() };
    world::add(&mut g, &mut steps);
    let bridges: &[&'static str] =
        if steps.iter().any(|s| matches!(s, Step::Configure(c) if c.starts_with("add-br"))) {
            &["br0", "br0", "br1"]
        } else {
            &["br0"]
        };
    let version = g.pick(&[Version::V10, Version::V13, Version::V13, Version::V14, Version::V15]);
    for _ in 0..g.below(8) {
        let change = Box::new(groups::group_mod(&mut g));
        let version = if version == Version::V10 { Version::V13 } else { version };
        steps.push(Step::Group { bridge: g.pick(bridges), version, change });
    }
    if tunnels {
        steps.extend(tunnels::tables(&mut g, version));
    }
    for bridge in ["br0", "br1"] {
        if bridges.contains(&bridge) && !(tunnels && g.bool()) {
            tables(&mut g, bridge, version, &mut steps);
        }
    }
    // OVS floods multicast to the ports of mirrors, too.
    if g.one_in(6) && !g.snoops {
        steps.push(world::mirror(&mut g));
    }
    let lives = !tunnels && !steps.iter().any(learns) && g.bool();
    events(&mut g, bridges, version, packets, &mut steps);
    let left_out = left_out::leave_out(&mut steps);
    // Steps between packets may learn, too.
    let megaflows = match lives && !steps.iter().any(learns) {
        true => Megaflows::Live,
        false if g.one_in(8) => Megaflows::Purged,
        false => Megaflows::None,
    };
    Case { megaflows, steps, left_out }
}

/// True when packets may change the switch's tables by the step, or its connections.
fn learns(step: &Step) -> bool {
    let text = format!("{step:?}");
    text.contains("Learn(")
        || text.contains("Ct(Ct {")
        || text.contains("PortNo(4294967290)")
        || matches!(step, Step::Configure(c) if c.contains("standalone") || c.contains("snooping"))
        || matches!(step, Step::Message { .. })
}

/// Flows, a few of which are wrong.
fn tables(g: &mut Gen, bridge: &'static str, version: Version, steps: &mut Vec<Step>) {
    if g.one_in(3) {
        // Something that carries frames in any case.
        let to = openflow::Action::Output { port: PortNo::NORMAL, max_len: 0 };
        let change = Box::new(FlowMod::add(1, flow::Match::ANY, &[to]));
        steps.push(Step::Flow { bridge, version, change });
    }
    if !g.conversations.is_empty() {
        for _ in 0..6 + g.below(10) {
            let change = Box::new(connections::flow_mod(g));
            steps.push(Step::Flow { bridge, version, change });
        }
    }
    for _ in 0..1 + g.below(14) {
        let change = Box::new(flow_mod(g));
        let step = Step::Flow { bridge, version, change };
        if g.one_in(40)
            && let Some(bytes) = step.message(0)
        {
            steps.push(Step::Message { bridge, version, bytes: damaged(g, bytes) });
        } else {
            steps.push(step);
        }
    }
}

/// A message with a wrong byte after its header.
fn damaged(g: &mut Gen, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..1 + g.below(2) {
        let at = 8 + g.below(bytes.len().saturating_sub(8));
        let new = if g.bool() { g.byte() } else { g.pick(&[0, 1, 0xff]) };
        if let Some(byte) = bytes.get_mut(at) {
            *byte = new;
        }
    }
    bytes
}

fn flow_mod(g: &mut Gen) -> FlowMod {
    let wrong = g.one_in(12);
    let table =
        if g.one_in(60) { g.pick(&[253, 254, TABLE_ALL]) } else { g.pick(&[0, 0, 0, 1, 1, 2, 3]) };
    let matching = matches::matching(g, wrong);
    let any = wrong && g.bool();
    let actions = actions::list(g, table, any);
    let priority = g.priority();
    let mut f = FlowMod::add(priority, matching, &actions);
    f.table_id = table;
    if g.one_in(10) {
        use FlowModCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
        f.command = g.pick(&[Add, Modify, ModifyStrict, Delete, DeleteStrict]);
        if g.bool() {
            (f.cookie, f.cookie_mask) = (1, 1);
        }
        if matches!(f.command, Delete | DeleteStrict) {
            f.actions = Vec::new().into();
            if g.one_in(4) {
                f.out_port = g.of_port();
            }
            if g.one_in(4) {
                f.out_group = g.group();
            }
        }
        if matches!(f.command, Modify | Delete) {
            f.priority = 0;
        }
    }
    if f.command == FlowModCommand::Add {
        f.new_cookie = g.pick(&[0, 0, 1, 2, 0xffff]);
        f.idle_timeout = g.pick(&[0, 0, 0, 0, 5, 60]);
        f.hard_timeout = g.pick(&[0, 0, 0, 0, 8]);
    } else if f.cookie_mask == 0 {
        f.new_cookie = u64::MAX;
    }
    if f.command != FlowModCommand::Delete && f.command != FlowModCommand::DeleteStrict {
        f.out_group = GROUP_ANY;
        if g.one_in(6) {
            f.flags = FlowFlags::from_bits_truncate(1 << g.small(5));
        }
    }
    f
}

/// Packets, and what happens between them.
fn events(
    g: &mut Gen,
    bridges: &[&'static str],
    version: Version,
    packets: usize,
    steps: &mut Vec<Step>,
) {
    // A trace in OVS learns members and routers of multicast.
    let traced = g.bool() && !g.snoops;
    for _ in 0..packets {
        let frame = if g.bool() { g.known_frame().1 } else { packets::frame(g) };
        let port = if bridges.len() > 1 {
            g.pick(&crate::wire::PORTS[..6])
        } else {
            g.pick(&crate::wire::PORTS[..4])
        };
        let (port, frame) = match !g.tunnels.is_empty() && g.bool() {
            true => tunnels::packet(g),
            false if g.snoops && g.bool() => multicast::packet(g),
            false if g.bonds && g.one_in(4) => (g.pick(&crate::wire::PORTS[6..]), frame),
            false => conversed(g).unwrap_or((port, frame)),
        };
        match g.below(60) {
            0 => steps.push(Step::Warp(1000 * g.pick(&[1, 2, 6, 20]))),
            1 => {
                let change = Box::new(flow_mod(g));
                steps.push(Step::Flow { bridge: g.pick(bridges), version, change });
            }
            2 => {
                let version = if version == Version::V10 { Version::V13 } else { version };
                let change = Box::new(groups::group_mod(g));
                steps.push(Step::Group { bridge: g.pick(bridges), version, change });
            }
            3 => {
                let bridge = g.pick(bridges);
                let command = if g.bool() { "fdb/flush" } else { "fdb/show" };
                let words = vec![command.to_owned(), bridge.to_owned()];
                steps.push(Step::Command(words));
            }
            4 if !g.conversations.is_empty() => {
                steps.push(Step::Command(vec!["dpctl/dump-conntrack".to_owned()]));
            }
            5..=12 if traced => steps.push(Step::Trace {
                bridge: "br0",
                port: 1 + g.small(4),
                frame: frame.clone(),
            }),
            _ => {}
        }
        steps.push(Step::Packet { port, frame });
    }
}

/// Mostly a packet of one of the case's conversations, if it has any.
fn conversed(g: &mut Gen) -> Option<(&'static str, Vec<u8>)> {
    if g.conversations.is_empty() || g.one_in(8) {
        return None;
    }
    let n = g.below(g.conversations.len());
    let mut conversation = g.conversations.get(n)?.clone();
    let (port, frame) = connections::packet(g, &mut conversation);
    *g.conversations.get_mut(n)? = conversation;
    let name = crate::wire::PORTS.get(port as usize - 1)?;
    Some((name, frame))
}
