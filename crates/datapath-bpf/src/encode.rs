// SPDX-License-Identifier: Apache-2.0
//! Encodes actions as the cells of a `struct program`, and finds the hooks that can run them. No
//! state, no system call.
//!
//! A program edits the packet itself, and only `clone_redirect` at tc makes a copy. To keep the
//! contract of [`Action`] on copies, the encoder takes only lists that need no copy except for
//! plain outputs. Nested lists stand last, or hold nothing but outputs. XDP copies the packet in
//! its final state, so outputs to several ports must stand last, one after the other.
//!
//! Headers of a tunnel cannot be taken off again, so a copy of the packet in a tunnel is the last one:
//! outputs that follow it in the list are written before it.
//!
//! The sender of a packet that is too long for a tunnel gets a report that quotes the packet as it arrived. So
//! a list that changes the packet before it pushes headers begins with a check of the length.
//!
//! A packet that is looked up again at XDP may have to go on to tc, where processing starts again.
//! So a list that looks the packet up again has only actions there that can be done twice or undone
//! (`bpf/undo.h`).

use datapath::{ACTION_DEPTH_LIMIT, Action, DropReason, PortNo, Refusal, Set, Userdata};

use crate::attachment::HookSet;
use crate::layout::{
    CELLS_TOTAL, FLOW_NO_GSO, FLOW_POP, FLOW_PRECHECK, HeaderOp, MAX_METERS, MAX_PORTS, NO_PORT,
    OUTPUT_BOND, OUTPUT_UP, Op, PUSH_OF_BARE, SET_PORTS, TUNNEL_BARE, TunnelHeader,
};
use crate::settings::{FEATURE_BOND, FEATURE_LAYERS, FEATURE_MPLS, FEATURE_PUSH, FEATURE_TUNNEL};

mod cells;
pub(crate) mod ct;

use cells::Cells;
pub use cells::Traits;
pub(crate) use cells::{
    MOST_INSTRUCTIONS, headers_of, instruction_cells, is_program, renumber_headers,
};

/// VLAN headers that may be pushed before labels come or go: with those that were looked through
/// there is room for no more (`bpf/edit_mpls.h`).
const MOST_PUSHED: usize = 2;

/// Bytes of an Ethernet header.
const ETHERNET: i32 = 14;

/// Ethernet type of a label stack with an Ethernet frame below (RFC 3032 has none; ovs-actions(7), `decap`).
pub(crate) const ETHERTYPE_TEB: u16 = 0x6558;

/// The effect of a flow on its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// One output, without other actions.
    Output(PortNo),
    /// Drop, counted under this reason.
    Drop(DropReason),
    /// A program of cells. It numbers the headers of tunnels by their places in
    /// [`Encoded::headers`].
    Program(Box<[u64; CELLS_TOTAL]>),
    /// `tnl_pop` to this port.
    Pop(PortNo),
}

/// Actions in their encoded form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The effect of the actions.
    pub effect: Effect,
    /// Hooks that can run the actions; never empty.
    pub hooks: HookSet,
    /// Bits of `slot.flags`: `FLOW_*`.
    pub flags: u8,
    /// Features that a lookup program needs for the flow: `FEATURE_*` bits.
    pub features: u32,
    /// Upper bound of the tail calls that the program takes; 0: there is no program.
    pub instructions: u32,
    /// Ports that the actions send to.
    pub ports: Vec<PortNo>,
    /// Bonds that the actions send to.
    pub bonds: Vec<u32>,
    /// Headers of tunnels that the program pushes, each once.
    pub headers: Vec<TunnelHeader>,
    /// Samples that the program takes, in the order of their numbers.
    pub samples: Vec<Userdata>,
    /// The properties of the program.
    pub traits: Traits,
}

impl Encoded {
    /// Returns the values of `slot.output`, `slot_detail.reason` and `slot_detail.tunnel`.
    pub(crate) fn effect_in_slot(&self) -> (u32, u32, u32) {
        match self.effect {
            Effect::Output(port) => (port.0, 0, 0),
            Effect::Drop(reason) => (NO_PORT, reason as u32, 0),
            Effect::Program(_) => (NO_PORT, 0, 0),
            Effect::Pop(port) => (NO_PORT, 0, port.0),
        }
    }
}

/// The header that a packet begins with, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// An Ethernet header.
    Ethernet,
    /// Another header: the packet has no Ethernet header.
    Bare,
    /// The packet decides.
    Unknown,
}

/// Encodes `actions` for packets with an Ethernet header, as [`encode_from`] does.
///
/// # Errors
///
/// Those of [`encode_from`].
pub fn encode(actions: &[Action]) -> Result<Encoded, Refusal> {
    encode_from(actions, Front::Ethernet)
}

/// Encodes `actions` for packets that begin with this header.
///
/// # Errors
///
/// Returns `UnsupportedAction` for a list that no hook can run as [`Action`] requires, `CtPlace`,
/// `CtHelper`, `TunnelPlace` or `TunnelHeader` when that is because of a `ct` or a tunnel, and
/// `PortNotHere` for a port number that the tables do not have.
pub fn encode_from(actions: &[Action], front: Front) -> Result<Encoded, Refusal> {
    let whole = |effect, ports| Encoded {
        effect,
        hooks: HookSet::all(),
        flags: 0,
        features: 0,
        instructions: 0,
        ports,
        bonds: Vec::new(),
        headers: Vec::new(),
        samples: Vec::new(),
        traits: Traits::default(),
    };
    match actions {
        [] => return Ok(whole(Effect::Drop(DropReason::Flow), Vec::new())),
        [Action::Drop(reason)] => return Ok(whole(Effect::Drop(*reason), Vec::new())),
        [Action::Output(port)] => {
            check_port(*port)?;
            return Ok(whole(Effect::Output(*port), vec![*port]));
        }
        // The port has no device: packets are not sent to it.
        [Action::TunnelPop(port)] => {
            check_port(*port)?;
            let pop = whole(Effect::Pop(*port), Vec::new());
            return Ok(Encoded { flags: FLOW_POP, features: FEATURE_TUNNEL, ..pop });
        }
        _ => {}
    }
    let mut writer = Writer {
        cells: Cells::default(),
        hooks: HookSet::all(),
        flags: 0,
        features: FEATURE_LAYERS,
        ports: Vec::new(),
        bonds: Vec::new(),
        headers: Vec::new(),
        samples: Vec::new(),
        label_popped: false,
        pushed: 0,
        copies: None,
        copying: false,
        lasting: false,
        front,
        loses_ethernet: false,
        changed: false,
        grown: 0,
        room: None,
    };
    if changes_before_push(actions, &mut false) {
        writer.cells.op(Op::TunRoom, 0, 0, &[])?;
        writer.room = Some(u32::MAX);
    }
    writer.list(actions, 0)?;
    if let Some(most) = writer.room {
        writer.cells.set_room(most);
    }
    let instructions = writer.cells.instructions();
    let cells = std::mem::take(&mut writer.cells).finish().ok_or(Refusal::UnsupportedAction)?;
    let traits = Traits::of(&cells);
    if traits.again && writer.lasting {
        writer.only_tc();
    }
    if traits.needs_precheck() {
        writer.flags |= FLOW_PRECHECK;
    }
    writer.flags |= traits.chain | traits.bond;
    if traits.bond != 0 {
        writer.features |= FEATURE_BOND;
    }
    if traits.pushes {
        writer.features |= FEATURE_PUSH;
    }
    if writer.hooks.is_empty() {
        return Err(Refusal::UnsupportedAction);
    }
    Ok(Encoded {
        effect: Effect::Program(cells),
        hooks: writer.hooks,
        flags: writer.flags,
        features: writer.features,
        instructions,
        ports: writer.ports,
        bonds: writer.bonds,
        headers: writer.headers,
        samples: writer.samples,
        traits,
    })
}

fn check_port(port: PortNo) -> Result<(), Refusal> {
    if port.0 < MAX_PORTS { Ok(()) } else { Err(Refusal::PortNotHere) }
}

struct Writer {
    cells: Cells,
    hooks: HookSet,
    flags: u8,
    features: u32,
    ports: Vec<PortNo>,
    bonds: Vec<u32>,
    headers: Vec<TunnelHeader>,
    samples: Vec<Userdata>,
    /// The packet's type after the pop is known only at the next lookup.
    label_popped: bool,
    /// VLAN headers pushed, in all branches together.
    pushed: usize,
    /// Ports that copies go to at XDP.
    copies: Option<Vec<PortNo>>,
    /// The outputs to these ports are being written.
    copying: bool,
    /// An action was written that can be neither done twice nor undone.
    lasting: bool,
    /// The header that the packet begins with, in the branch that is being written.
    front: Front,
    /// The push of a tunnel's header follows, which takes off the Ethernet header, too.
    loses_ethernet: bool,
    /// The packet was changed and has no outer headers yet, in the branch that is being written.
    changed: bool,
    /// Bytes by which the frame is longer than it was at the beginning, in that branch.
    grown: i32,
    /// Bytes of the longest frame that fits each path, before the list changes it. `None`: the list has
    /// no check.
    room: Option<u32>,
}

/// Returns the ports of a list that contains only outputs.
fn outputs(actions: &[Action], depth: usize) -> Option<Vec<PortNo>> {
    let mut ports = Vec::new();
    for action in actions {
        match action {
            Action::Output(port) => ports.push(*port),
            Action::Sample { probability: 0, .. } => {}
            Action::Clone(nested) | Action::Sample { probability: u32::MAX, actions: nested }
                if depth < ACTION_DEPTH_LIMIT =>
            {
                ports.extend(outputs(nested, depth + 1)?);
            }
            _ => return None,
        }
    }
    Some(ports)
}

type Done = Result<(), Refusal>;
const REFUSED: Done = Err(Refusal::UnsupportedAction);

impl Writer {
    /// Writes a list that ends the flow: no action follows it.
    fn list(&mut self, actions: &[Action], depth: usize) -> Done {
        if depth > ACTION_DEPTH_LIMIT {
            return REFUSED;
        }
        let ordered = with_tunnel_last(actions, depth);
        let actions = ordered.as_deref().unwrap_or(actions);
        for (i, action) in actions.iter().enumerate() {
            let rest = actions.get(i + 1..).unwrap_or_default();
            if rest.is_empty() {
                return self.last(action, depth);
            }
            self.begin_copies(actions.get(i..).unwrap_or_default(), depth);
            self.amid(action, rest, depth)?;
        }
        self.cells.op(Op::End, 0, 0, &[])
    }

    /// Marks the place from which the program has only outputs to several ports left. A program has
    /// one set of ports.
    fn begin_copies(&mut self, left: &[Action], depth: usize) {
        if self.copying || !self.hooks.contains(HookSet::XDP) || self.front != Front::Ethernet {
            return;
        }
        let Some(mut ports) = outputs(left, depth) else { return };
        let count = ports.len();
        ports.sort_unstable();
        ports.dedup();
        // The ingress port comes in, too.
        if count < 2 || ports.len() < count || count >= SET_PORTS {
            return;
        }
        if self.copies.as_ref().is_none_or(|held| *held == ports) && self.cells.copies(count) {
            self.copies = Some(ports);
            self.copying = true;
        }
    }

    /// The last action of a list ends the program.
    fn last(&mut self, action: &Action, depth: usize) -> Done {
        match action {
            Action::Output(port) => self.output(*port, true),
            Action::LbOutput(id) => self.output_to_bond(*id, true),
            Action::Drop(reason) => self.cells.op(Op::Drop, 0, *reason as u32, &[]),
            Action::Recirc(id) => self.cells.op(Op::Recirc, 0, *id, &[]),
            Action::Clone(nested) => self.list(nested, depth + 1),
            Action::Sample { probability, actions } => self.sample(*probability, actions, depth),
            Action::CheckPktLen { len, greater, not_greater } => {
                let branch = self.cells.branch(Op::CheckLen, u32::from(*len))?;
                let (label_popped, changed) = (self.label_popped, self.changed);
                let (grown, front) = (self.grown, self.front);
                self.list(not_greater, depth + 1)?;
                self.cells.land(branch);
                (self.label_popped, self.changed, self.grown) = (label_popped, changed, grown);
                self.front = front;
                self.copying = false;
                self.list(greater, depth + 1)
            }
            // Nothing follows that it could have an effect on.
            Action::Trunc(_) => self.cells.op(Op::End, 0, 0, &[]),
            other => {
                self.edit(other)?;
                self.cells.op(Op::End, 0, 0, &[])
            }
        }
    }

    /// Writes an action that others follow.
    fn amid(&mut self, action: &Action, rest: &[Action], depth: usize) -> Done {
        match action {
            // One instruction does both, if no label came off.
            Action::PopEth if begins_with_push(rest) && self.front != Front::Bare => {
                self.loses_ethernet = true;
                if self.label_popped { REFUSED } else { Ok(()) }
            }
            Action::Output(port) => self.output(*port, false),
            Action::LbOutput(id) => self.output_to_bond(*id, false),
            Action::Clone(_) if is_tunnelled(action) => Err(Refusal::TunnelPlace),
            Action::Clone(nested) => self.copies(nested, depth + 1),
            Action::Sample { probability: 0, .. } => Ok(()),
            Action::Sample { probability: u32::MAX, actions } => self.copies(actions, depth + 1),
            Action::Sample { probability, actions } => {
                self.some_copies(*probability, actions, depth + 1)
            }
            Action::CheckPktLen { greater, not_greater, .. } if greater == not_greater => {
                self.copies(greater, depth + 1)
            }
            Action::Trunc(len) => match rest {
                [Action::Output(_) | Action::LbOutput(_)] => self.trunc(*len),
                _ => REFUSED,
            },
            Action::CheckPktLen { .. } if tracks(action) => Err(Refusal::CtPlace),
            Action::Drop(_) | Action::Recirc(_) | Action::CheckPktLen { .. } => REFUSED,
            other => self.edit(other),
        }
    }

    /// Writes a nested list of outputs like the outputs themselves.
    fn copies(&mut self, nested: &[Action], depth: usize) -> Done {
        if depth > ACTION_DEPTH_LIMIT {
            return REFUSED;
        }
        nested.iter().try_for_each(|action| match action {
            Action::Output(port) => self.output(*port, false),
            Action::LbOutput(id) => self.output_to_bond(*id, false),
            Action::Userspace(userdata) => self.up(userdata),
            Action::Clone(inner) => self.copies(inner, depth + 1),
            other if tracks(other) => Err(Refusal::CtPlace),
            _ => REFUSED,
        })
    }

    /// The same for some packets. It leaves the packet as it was, so that the list may go on.
    fn some_copies(&mut self, probability: u32, nested: &[Action], depth: usize) -> Done {
        self.lasting = true;
        let branch = self.cells.branch(Op::Sample, probability)?;
        self.copies(nested, depth)?;
        self.cells.land(branch);
        Ok(())
    }

    fn sample(&mut self, probability: u32, nested: &[Action], depth: usize) -> Done {
        match probability {
            0 => self.cells.op(Op::End, 0, 0, &[]),
            u32::MAX => self.list(nested, depth + 1),
            _ => {
                self.lasting = true;
                let branch = self.cells.branch(Op::Sample, probability)?;
                self.list(nested, depth + 1)?;
                self.cells.land(branch);
                self.cells.op(Op::End, 0, 0, &[])
            }
        }
    }

    fn output(&mut self, port: PortNo, last: bool) -> Done {
        check_port(port)?;
        self.ports.push(port);
        if !last && !self.copying {
            self.only_tc();
        }
        self.cells.op(Op::Output, last.into(), port.0, &[])
    }

    fn output_to_bond(&mut self, id: u32, last: bool) -> Done {
        if id >= MAX_PORTS {
            return Err(Refusal::Bond);
        }
        if self.label_popped {
            return REFUSED; // the hash needs the packet's layers
        }
        self.bonds.push(id);
        if !last {
            self.only_tc();
        }
        self.cells.op(Op::Output, last.into(), id | OUTPUT_BOND, &[])
    }

    /// tc cannot finish an unfinished checksum before it cuts the packet.
    fn trunc(&mut self, len: u32) -> Done {
        self.hooks &= HookSet::XDP;
        self.flags |= FLOW_NO_GSO;
        self.cells.op(Op::Trunc, 0, len, &[])
    }

    fn only_tc(&mut self) {
        self.hooks &= HookSet::TC;
    }

    fn edit(&mut self, action: &Action) -> Done {
        // Labels are first in a packet without an Ethernet header.
        let is_first = self.front == Front::Bare
            && matches!(action, Action::PushMpls { .. } | Action::PopMpls { .. });
        if self.label_popped && goes_by_layers(action) && !is_first {
            return REFUSED;
        }
        self.changed |= changes(action);
        self.grown += match action {
            Action::PushVlan { .. } | Action::PushMpls { .. } => 4,
            Action::AddMpls { .. } => 4 + ETHERNET,
            Action::PopVlan | Action::PopMpls { .. } => -4,
            _ => 0,
        };
        match action {
            Action::PushVlan { tpid, tci } => {
                if !matches!(tpid, 0x8100 | 0x88a8) {
                    return REFUSED;
                }
                self.pushed += 1;
                let tci = tci & !flow::VLAN_CFI;
                self.cells.op(Op::PushVlan, *tpid, tci.into(), &[])
            }
            Action::PopVlan => self.cells.op(Op::PopVlan, 0, 0, &[]),
            Action::PushMpls { lse, ethertype } => {
                if !matches!(ethertype, 0x8847 | 0x8848) || self.pushed > MOST_PUSHED {
                    return REFUSED;
                }
                self.mpls();
                self.cells.op(Op::PushMpls, *ethertype, *lse, &[])
            }
            Action::PopMpls { ethertype: ETHERTYPE_TEB } if self.front == Front::Bare => {
                self.label_popped = true;
                self.front = Front::Ethernet;
                self.cells.op(Op::PopMpls, ETHERTYPE_TEB, 0, &[])
            }
            Action::PopMpls { .. } if self.pushed > MOST_PUSHED => REFUSED,
            Action::PopMpls { ethertype } => {
                self.mpls();
                self.label_popped = true;
                self.cells.op(Op::PopMpls, *ethertype, 0, &[])
            }
            Action::Hash { symmetric, basis } => {
                self.cells.op(Op::Hash, u16::from(*symmetric), *basis, &[])
            }
            Action::Meter(id) if *id < MAX_METERS => {
                self.lasting = true;
                self.cells.op(Op::Meter, 0, *id, &[])
            }
            Action::Set(set) => self.set(set),
            // The daemon parses a packet that goes up again, to the limit of VLAN headers.
            Action::Ct(_) if self.pushed > 0 => Err(Refusal::CtPlace),
            Action::Ct(request) => {
                let ct::Encoded { a, b, operands } = ct::encode(request)?;
                self.cells.op(Op::Ct, a, b, &operands)
            }
            Action::CtClear => self.cells.op(Op::CtClear, 0, 0, &[]),
            Action::Userspace(userdata) => self.up(userdata),
            Action::TunnelPush { header, tunnel_port, out_port } => {
                let header = TunnelHeader::new(header).ok_or(Refusal::TunnelHeader)?;
                let lost = self.loses_ethernet;
                let has_none = lost || self.front == Front::Bare;
                if self.front != Front::Unknown && has_none != (header.flags & TUNNEL_BARE != 0) {
                    return REFUSED;
                }
                self.loses_ethernet = false;
                self.front = Front::Ethernet;
                let of_bare = header.flags & TUNNEL_BARE != 0 && !lost;
                let flag = if of_bare { PUSH_OF_BARE } else { 0 };
                let both = u64::from(tunnel_port.0 | flag) | u64::from(out_port.0) << 32;
                self.push_header(header, both)
            }
            Action::PushEth { src, dst } => {
                self.front = Front::Ethernet;
                self.cells.push_eth(src, dst)
            }
            Action::PopEth => {
                self.front = Front::Bare;
                self.cells.header(HeaderOp::PopEth, 0, &[])
            }
            Action::PushNsh(nsh) => {
                self.before_front();
                let bytes = self.cells.push_nsh(nsh)?;
                self.grown += ETHERNET + i32::from(bytes);
                Ok(())
            }
            Action::PopNsh => {
                self.front = Front::Unknown;
                self.label_popped = true;
                self.cells.header(HeaderOp::PopNsh, 0, &[])
            }
            Action::AddMpls { lse, ethertype } if matches!(ethertype, 0x8847 | 0x8848) => {
                self.before_front();
                self.features |= FEATURE_MPLS;
                self.cells.header(HeaderOp::AddMpls, *lse, &[u64::from(*ethertype)])
            }
            _ => REFUSED,
        }
    }

    /// Notes that a header comes in front of the packet, whose layers are then below it.
    fn before_front(&mut self) {
        // Each segment gets a header of its own.
        self.flags |= FLOW_NO_GSO;
        self.front = Front::Bare;
        self.label_popped = false;
        self.pushed = 0;
    }

    /// Writes a sample: a copy of the packet goes up, and the packet goes on.
    fn up(&mut self, userdata: &Userdata) -> Done {
        if !userdata.is_sample() {
            return REFUSED;
        }
        // The daemon would read the labels of a packet that is known to have none.
        if self.label_popped {
            return REFUSED;
        }
        if !self.headers.is_empty() {
            return Err(Refusal::TunnelPlace);
        }
        self.only_tc(); // XDP makes no copy for the daemon
        self.lasting = true;
        let number = self.samples.len() as u32; // few instructions
        self.samples.push(userdata.clone());
        self.cells.op(Op::Output, 0, number | OUTPUT_UP, &[])
    }

    fn push_header(&mut self, header: TunnelHeader, ports: u64) -> Done {
        self.pushed = 0; // tags of the outer packet
        if self.changed {
            self.limit(&header);
        }
        self.changed = false; // reports are about inner packets
        let at = self.headers.iter().position(|held| *held == header);
        let at = at.unwrap_or_else(|| {
            self.headers.push(header);
            self.headers.len() - 1
        });
        self.cells.op(Op::TunPush, header.length, at as u32, &[ports]) // few instructions
    }

    /// Makes the packet fit the path of a header.
    fn limit(&mut self, header: &TunnelHeader) {
        let (Some(room), 1..) = (&mut self.room, header.path_mtu) else { return };
        let lost = if header.flags & TUNNEL_BARE != 0 { 14 } else { 0 };
        let added = i32::from(header.length) - 14 - lost + self.grown;
        let most = i32::from(header.path_mtu) - added;
        *room = (*room).min(u32::try_from(most).unwrap_or(0));
    }

    fn mpls(&mut self) {
        // Code that segments the packet later does not know the payload under a label.
        self.flags |= FLOW_NO_GSO;
        self.features |= FEATURE_MPLS;
    }

    fn set(&mut self, set: &Set) -> Done {
        match set {
            // Priority and mark belong to the skb.
            Set::Priority(_) | Set::Mark(_) => self.only_tc(),
            // Options are anywhere in a packet.
            Set::Nd { .. } | Set::NdExtensions { .. } => self.lasting = true,
            Set::Mpls(_) => self.mpls(),
            // The checksum of a whole packet is no sum.
            Set::Sctp { .. } => self.flags |= FLOW_NO_GSO,
            _ => {}
        }
        self.cells.set(set)
    }
}

/// Returns true for a list that begins with the push of a tunnel's header, on a copy or not.
fn begins_with_push(list: &[Action]) -> bool {
    match list {
        [Action::TunnelPush { .. }, ..] => true,
        [Action::Clone(nested)] => begins_with_push(nested),
        _ => false,
    }
}

/// Returns true for a list of actions on a copy that puts the copy into a tunnel.
fn is_tunnelled(action: &Action) -> bool {
    let is_push = |nested: &Action| matches!(nested, Action::TunnelPush { .. });
    matches!(action, Action::Clone(nested) if nested.iter().any(|n| is_push(n) || is_tunnelled(n)))
}

/// Returns true for an action that changes the headers of a packet.
fn changes(action: &Action) -> bool {
    match action {
        Action::Set(Set::Priority(_) | Set::Mark(_)) => false,
        Action::Set(_)
        | Action::PushVlan { .. }
        | Action::PopVlan
        | Action::PushMpls { .. }
        | Action::PopMpls { .. }
        | Action::AddMpls { .. }
        | Action::PushNsh(_)
        | Action::PopNsh => true,
        Action::Ct(request) => request.nat.is_some(),
        Action::Output(_)
        | Action::LbOutput(_)
        | Action::Drop(_)
        | Action::Userspace(_)
        | Action::Recirc(_)
        | Action::Hash { .. }
        | Action::Trunc(_)
        | Action::Sample { .. }
        | Action::Clone(_)
        | Action::Meter(_)
        | Action::CheckPktLen { .. }
        | Action::CtClear
        | Action::TunnelPush { .. }
        | Action::TunnelPop(_)
        | Action::SetTunnel(_)
        | Action::PushEth { .. }
        | Action::PopEth => false,
    }
}

/// Returns true when a list pushes headers whose path has a limit onto a packet that it has changed.
/// `changed`: the packet was changed before; becomes true when the list changes it.
fn changes_before_push(actions: &[Action], changed: &mut bool) -> bool {
    actions.iter().any(|action| match action {
        Action::TunnelPush { header, .. } => *changed && header.path_mtu().is_some(),
        Action::Clone(nested) | Action::Sample { actions: nested, .. } => {
            changes_before_push(nested, &mut changed.clone())
        }
        Action::CheckPktLen { greater, not_greater, .. } => [greater, not_greater]
            .iter()
            .any(|nested| changes_before_push(nested, &mut changed.clone())),
        other => {
            *changed |= changes(other);
            false
        }
    })
}

/// Returns a list with its only copy in a tunnel last, if only outputs follow this copy. `None`: the
/// list stays as it is.
fn with_tunnel_last(actions: &[Action], depth: usize) -> Option<Vec<Action>> {
    let at = actions.iter().position(is_tunnelled)?;
    let (copy, rest) = actions.get(at..)?.split_first()?;
    if rest.is_empty() {
        return None;
    }
    outputs(rest, depth)?;
    let mut ordered = actions.get(..at)?.to_vec();
    ordered.extend_from_slice(rest);
    ordered.push(copy.clone());
    Some(ordered)
}

/// Returns true when an action, or one that is nested in it, concerns connections.
fn tracks(action: &Action) -> bool {
    match action {
        Action::Ct(_) | Action::CtClear => true,
        Action::Clone(nested) | Action::Sample { actions: nested, .. } => nested.iter().any(tracks),
        Action::CheckPktLen { greater, not_greater, .. } => {
            greater.iter().chain(not_greater).any(tracks)
        }
        _ => false,
    }
}

/// Returns true for actions that need the offsets of the packet's layers.
fn goes_by_layers(action: &Action) -> bool {
    !matches!(
        action,
        Action::Meter(_)
            | Action::CtClear
            | Action::PushEth { .. }
            | Action::PopEth
            | Action::PushNsh(_)
            | Action::PopNsh
            | Action::AddMpls { .. }
            | Action::Set(Set::Ethernet { .. } | Set::Priority(_) | Set::Mark(_))
    )
}

#[cfg(test)]
mod tests;
