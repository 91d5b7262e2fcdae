// SPDX-License-Identifier: Apache-2.0
//! Cells: `op | length << 8 | a << 16 | b << 32`, then operands in memory order.

use datapath::{Masked, PushedNsh, Refusal, Set};

use super::{ETHERTYPE_TEB, ct};
use crate::layout::{
    CELLS, CELLS_TOTAL, CT_OP_FORCE, CT_OP_LABEL, CT_OP_MARK, FLOW_BOND, FLOW_CHAIN,
    FLOW_CHAIN_END, HeaderOp, MAX_METERS, MAX_PORTS, OUTPUT_BOND, OUTPUT_UP, Op, TUNNEL_BYTES,
    TUNNEL_HEADERS,
};

/// Largest number of instructions of one flow. Each is a tail call, and a packet may make 33 of
/// them. A packet that is looked up again goes to the daemon when too few are left
/// (`bpf/lookup.h`).
pub(crate) const MOST_INSTRUCTIONS: usize = 20;

/// Bytes of the longest Network Service Header that programs push (`bpf/nsh.h`).
const NSH_PUSHED: usize = 64;
/// Bytes of an Ethernet header.
const ETHERNET: u8 = 14;

/// A program being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    cells: Vec<u64>,
    instructions: usize,
}

/// A branch that has yet to land.
#[derive(Debug)]
pub(crate) struct Branch(usize);

/// A cell of bytes as they are in memory; the rest is zero.
fn cell(parts: &[&[u8]]) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(parts.iter().copied().flatten()) {
        *to = *from;
    }
    u64::from_ne_bytes(bytes)
}

/// Two addresses of 6 bytes in two cells, as in a key.
fn pair(first: &[u8; 6], second: &[u8; 6]) -> [u64; 2] {
    let [a, b, rest @ ..] = second;
    [cell(&[first, &[*a, *b]]), cell(&[rest])]
}

/// 16 bytes in two cells.
fn wide(address: &[u8; 16]) -> [u64; 2] {
    let (high, low) = address.split_at(8);
    [cell(&[high]), cell(&[low])]
}

/// Value and mask of two 16-bit fields in network order.
fn shorts(first: &Masked<u16>, second: &Masked<u16>) -> u64 {
    cell(&[
        &first.value.to_be_bytes(),
        &first.mask.to_be_bytes(),
        &second.value.to_be_bytes(),
        &second.mask.to_be_bytes(),
    ])
}

/// Value and mask of a 32-bit field in network order.
fn long(field: &Masked<u32>) -> u64 {
    cell(&[&field.value.to_be_bytes(), &field.mask.to_be_bytes()])
}

/// Value and mask of two bytes.
fn octets(first: &Masked<u8>, second: &Masked<u8>) -> [u8; 4] {
    [first.value, first.mask, second.value, second.mask]
}

impl Cells {
    /// Adds an instruction.
    ///
    /// # Errors
    ///
    /// Refuses when the program has no room for the cells, or has [`MOST_INSTRUCTIONS`].
    pub(crate) fn op(&mut self, op: Op, a: u16, b: u32, operands: &[u64]) -> Result<(), Refusal> {
        let length = 1 + operands.len();
        self.instructions += calls(op);
        if self.cells.len() + length > CELLS || self.instructions > MOST_INSTRUCTIONS {
            return Err(Refusal::UnsupportedAction);
        }
        let first = op as u64 | (length as u64) << 8 | u64::from(a) << 16 | u64::from(b) << 32;
        self.cells.push(first);
        self.cells.extend_from_slice(operands);
        Ok(())
    }

    /// Adds an [`Op::Header`].
    ///
    /// # Errors
    ///
    /// Refuses when there is no room, as [`Cells::op`] does.
    pub(crate) fn header(&mut self, op: HeaderOp, b: u32, operands: &[u64]) -> Result<(), Refusal> {
        self.op(Op::Header, op as u16 | (operands.len() as u16) << 8, b, operands) // few cells
    }

    /// Adds the push of a Network Service Header.
    ///
    /// # Errors
    ///
    /// Refuses a header that is longer than programs push, and when there is no room.
    pub(crate) fn push_nsh(&mut self, nsh: &PushedNsh) -> Result<u8, Refusal> {
        let bytes = nsh.bytes(nsh.fields.np).filter(|bytes| bytes.len() <= NSH_PUSHED);
        let bytes = bytes.ok_or(Refusal::UnsupportedAction)?;
        let operands: Vec<u64> = bytes.chunks(8).map(|chunk| cell(&[chunk])).collect();
        self.header(HeaderOp::PushNsh, bytes.len() as u32, &operands)?; // at most NSH_PUSHED
        Ok(bytes.len() as u8)
    }

    /// Adds the push of an Ethernet header.
    ///
    /// # Errors
    ///
    /// Refuses when there is no room, as [`Cells::op`] does.
    pub(crate) fn push_eth(&mut self, src: &[u8; 6], dst: &[u8; 6]) -> Result<(), Refusal> {
        self.header(HeaderOp::PushEth, 0, &pair(dst, src))
    }

    /// Writes the bytes of the longest frame into the first instruction, an [`Op::TunRoom`].
    pub(crate) fn set_room(&mut self, most: u32) {
        if let Some(cell) = self.cells.first_mut() {
            *cell |= u64::from(most) << 32;
        }
    }

    /// Marks that only `outputs` outputs to different ports follow. The mark does not count as an
    /// instruction: at one hook it ends the program, at the other it is passed over. Returns false
    /// when there is no room.
    pub(crate) fn copies(&mut self, outputs: usize) -> bool {
        if self.cells.len() + 1 + outputs > CELLS {
            return false;
        }
        self.cells.push(Op::Copies as u64 | 1 << 8);
        true
    }

    /// Returns the number of instructions so far.
    pub(crate) fn instructions(&self) -> u32 {
        self.instructions as u32 // at most MOST_INSTRUCTIONS
    }

    /// Adds an instruction that may skip the cells that are written until [`Cells::land`].
    ///
    /// # Errors
    ///
    /// Refuses when there is no room, as [`Cells::op`] does.
    pub(crate) fn branch(&mut self, op: Op, b: u32) -> Result<Branch, Refusal> {
        self.op(op, 0, b, &[])?;
        Ok(Branch(self.cells.len() - 1))
    }

    /// Makes the branch skip to the next instruction.
    pub(crate) fn land(&mut self, branch: Branch) {
        let skipped = (self.cells.len() - branch.0 - 1) as u64; // fewer than CELLS
        if let Some(cell) = self.cells.get_mut(branch.0) {
            *cell |= skipped << 16;
        }
    }

    /// Returns the whole program; `None`: it is too long.
    pub(crate) fn finish(self) -> Option<Box<[u64; CELLS_TOTAL]>> {
        let mut all = Box::new([0; CELLS_TOTAL]);
        all.get_mut(..self.cells.len())?.copy_from_slice(&self.cells);
        Some(all)
    }

    /// Adds an instruction that sets header fields.
    ///
    /// # Errors
    ///
    /// Refuses when there is no room, as [`Cells::op`] does.
    pub(crate) fn set(&mut self, set: &Set) -> Result<(), Refusal> {
        match set {
            Set::Ethernet { src, dst } => {
                let [v0, v1] = pair(&dst.value, &src.value);
                let [m0, m1] = pair(&dst.mask, &src.mask);
                self.op(Op::SetEth, 0, 0, &[v0, v1, m0, m1])
            }
            Set::Ipv4 { src, dst, tos, ttl } => {
                let value = cell(&[&src.value, &dst.value]);
                let mask = cell(&[&src.mask, &dst.mask]);
                self.op(Op::SetIpv4, 0, 0, &[value, mask, cell(&[&octets(tos, ttl)])])
            }
            Set::Ipv6 { src, dst, label, tclass, hlimit } => {
                let [s0, s1] = wide(&src.value);
                let [s2, s3] = wide(&src.mask);
                let [d0, d1] = wide(&dst.value);
                let [d2, d3] = wide(&dst.mask);
                let rest = cell(&[&octets(tclass, hlimit)]);
                self.op(Op::SetIpv6, 0, 0, &[s0, s1, s2, s3, d0, d1, d2, d3, long(label), rest])
            }
            Set::Tcp { src, dst } => self.op(Op::SetTcp, 0, 0, &[shorts(src, dst)]),
            Set::Udp { src, dst } => self.op(Op::SetUdp, 0, 0, &[shorts(src, dst)]),
            Set::Sctp { src, dst } => self.op(Op::SetSctp, 0, 0, &[shorts(src, dst)]),
            Set::Icmp { kind, code, v6 } => {
                let b = u32::from_ne_bytes(octets(kind, code));
                self.op(Op::SetIcmp, u16::from(*v6), b, &[])
            }
            Set::Arp { op, spa, tpa, sha, tha } => {
                let value = cell(&[&spa.value, &tpa.value]);
                let mask = cell(&[&spa.mask, &tpa.mask]);
                let [v0, v1] = pair(&sha.value, &tha.value);
                let [m0, m1] = pair(&sha.mask, &tha.mask);
                self.op(Op::SetArp, op.value, op.mask.into(), &[value, mask, v0, v1, m0, m1])
            }
            Set::Nd { target, sll, tll } => {
                let [v0, v1] = wide(&target.value);
                let [m0, m1] = wide(&target.mask);
                let link = |m: &[u8; 6]| cell(&[m]);
                let (s, t) = (sll, tll);
                let operands =
                    [v0, v1, m0, m1, link(&s.value), link(&s.mask), link(&t.value), link(&t.mask)];
                self.op(Op::SetNd, 0, 0, &operands)
            }
            Set::NdExtensions { reserved, options_type } => {
                let a = u16::from(options_type.value) | u16::from(options_type.mask) << 8;
                self.op(Op::SetNdExt, a, 0, &[long(reserved)])
            }
            Set::Nsh { flags, ttl, path, context } => {
                let mut operands = vec![cell(&[&octets(flags, ttl)]), long(path)];
                if context.iter().any(|word| word.mask != 0) {
                    operands.extend(context.iter().map(long));
                }
                self.header(HeaderOp::SetNsh, 0, &operands)
            }
            Set::Mpls(entry) => self.op(Op::SetMpls, 0, 0, &[long(entry)]),
            Set::Priority(priority) => self.op(Op::SetPriority, 0, *priority, &[]),
            Set::Mark(m) => {
                self.op(Op::SetMark, 0, 0, &[u64::from(m.value) | u64::from(m.mask) << 32])
            }
        }
    }
}

/// Returns the number of tail calls that an instruction takes.
const fn calls(op: Op) -> usize {
    match op {
        Op::Copies => 0,
        Op::Ct => 3,
        Op::TunPush | Op::TunRoom => 2,
        _ => 1,
    }
}

/// Returns the number of cells that an instruction takes with its operands; `a` is its field.
const fn length(op: Op, a: u16) -> usize {
    match op {
        Op::End
        | Op::Output
        | Op::Drop
        | Op::PushVlan
        | Op::PopVlan
        | Op::SetIcmp
        | Op::PushMpls
        | Op::PopMpls
        | Op::SetPriority
        | Op::Recirc
        | Op::Hash
        | Op::Trunc
        | Op::Sample
        | Op::Meter
        | Op::CheckLen
        | Op::Copies
        | Op::CtClear
        | Op::TunRoom => 1,
        Op::SetTcp
        | Op::SetUdp
        | Op::SetSctp
        | Op::SetNdExt
        | Op::SetMpls
        | Op::SetMark
        | Op::TunPush => 2,
        Op::SetIpv4 => 4,
        Op::SetEth => 5,
        Op::SetArp => 7,
        Op::SetNd => 9,
        Op::SetIpv6 => 11,
        Op::Ct => 1 + ct::operands(a),
        Op::Header => 1 + (a >> 8) as usize,
    }
}

/// Returns the operation of an instruction's first cell, and the number of cells that it takes with
/// its operands. `None`: no operation has this number.
pub(crate) fn instruction_cells(first: u64) -> Option<(Op, usize)> {
    let op = *Op::ALL.get((first & 0xff) as usize)?;
    Some((op, length(op, (first >> 16) as u16)))
}

/// Returns the places of the instructions that push headers of tunnels. Total.
fn pushes(cells: &[u64; CELLS_TOTAL]) -> impl Iterator<Item = usize> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let (op, length) = instruction_cells(*cells.get(at)?)?;
            at += length;
            if op == Op::TunPush {
                return Some(at - length);
            }
        }
    })
}

/// Returns the number and the length of each header that a program pushes. Total.
pub(crate) fn headers_of(cells: &[u64; CELLS_TOTAL]) -> impl Iterator<Item = (u32, u16)> {
    let first = move |at: usize| cells.get(at).copied().unwrap_or_default();
    pushes(cells).map(move |at| ((first(at) >> 32) as u32, (first(at) >> 16) as u16))
}

/// Gives the headers that a program pushes other numbers. `None`: `number` returned that for one.
pub(crate) fn renumber_headers(
    cells: &[u64; CELLS_TOTAL],
    mut number: impl FnMut(u32) -> Option<u32>,
) -> Option<Box<[u64; CELLS_TOTAL]>> {
    let mut all = Box::new(*cells);
    for at in pushes(cells) {
        let cell = all.get_mut(at)?;
        *cell = *cell & 0xffff_ffff | u64::from(number((*cell >> 32) as u32)?) << 32;
    }
    Some(all)
}

/// Returns true when [`super::encode`] may have written `cells`: known instructions of the right
/// length, branches that land on instructions, everything that runs ends. Total.
pub(crate) fn is_program(cells: &[u64; CELLS_TOTAL]) -> bool {
    let mut starts = [false; CELLS];
    let mut targets = Vec::new();
    let (mut at, mut count) = (0, 0);
    let mut ended = false;
    // Instructions follow each other until one that ends the list and after which no list starts.
    loop {
        let open = targets.iter().any(|target| *target >= at);
        if ended && !open {
            break;
        }
        let (Some(start), Some(first)) = (starts.get_mut(at), cells.get(at)) else {
            return false;
        };
        *start = true;
        let Some((op, length)) = instruction_cells(*first) else {
            return false;
        };
        count += calls(op);
        let (stated, a, b) = ((first >> 8) & 0xff, (first >> 16) as u16, (first >> 32) as u32);
        if stated != length as u64 || count > MOST_INSTRUCTIONS {
            return false;
        }
        let fits = match op {
            Op::Output if b & OUTPUT_UP != 0 => a == 0 && b & OUTPUT_BOND == 0,
            Op::Output => b & !OUTPUT_BOND < MAX_PORTS && a <= 1,
            Op::Meter => b < MAX_METERS,
            Op::Header => is_header(a, b),
            Op::TunPush => b < TUNNEL_HEADERS && usize::from(a) <= TUNNEL_BYTES,
            Op::Sample | Op::CheckLen => {
                targets.push(at + 1 + usize::from(a));
                true
            }
            _ => true,
        };
        if !fits {
            return false;
        }
        ended = matches!(op, Op::End | Op::Drop | Op::Recirc) || (op == Op::Output && a == 1);
        at += length;
    }
    at <= CELLS && targets.iter().all(|target| starts.get(*target) == Some(&true))
}

/// Returns true for the fields of an [`Op::Header`] that has the right operands.
fn is_header(a: u16, b: u32) -> bool {
    let [op, operands] = a.to_le_bytes();
    match HeaderOp::ALL.get(usize::from(op)) {
        Some(HeaderOp::SetNsh) => operands == 2 || operands == 6,
        Some(HeaderOp::PushNsh) => {
            (b as usize) <= NSH_PUSHED && b.is_multiple_of(4) && b.div_ceil(8) == operands.into()
        }
        Some(HeaderOp::PopNsh | HeaderOp::PopEth) => operands == 0,
        Some(HeaderOp::PushEth) => operands == 2,
        Some(HeaderOp::AddMpls) => operands == 1,
        None => false,
    }
}

/// Returns the part that a program may have in a chain of lookups (`bpf/chain.h`). Its edits are those
/// whose result the headers in a key of a chain show. The metadata of connections follows from the flows and
/// the connections, also where it is cleared.
fn chain_flag(cells: &[u64; CELLS_TOTAL]) -> u8 {
    let (mut at, mut tracks) = (0, 0);
    while let Some(first) = cells.get(at) {
        let Some((op, length)) = instruction_cells(*first) else { return 0 };
        let a = (first >> 16) as u16;
        match op {
            Op::SetEth | Op::SetIpv4 | Op::SetTcp | Op::SetUdp | Op::TunRoom | Op::CtClear => {}
            Op::Ct if a & (CT_OP_FORCE | CT_OP_MARK | CT_OP_LABEL) == 0 => tracks += 1,
            Op::Recirc if tracks == 1 => return FLOW_CHAIN,
            // A result has one port.
            Op::Output if first >> 63 != 0 => return 0,
            Op::Output if tracks == 0 && a == 1 => return FLOW_CHAIN_END,
            Op::TunPush if tracks == 0 => return FLOW_CHAIN_END,
            _ => return 0,
        }
        at += length;
    }
    0
}

/// Returns [`FLOW_BOND`] for a program that sends each packet to a bond and does nothing else.
fn bond_flag(cells: &[u64; CELLS_TOTAL]) -> u8 {
    let [first, ..] = cells;
    let is_last = (first >> 16) as u16 == 1;
    let to_bond = (first >> 32) as u32 & OUTPUT_BOND != 0;
    match instruction_cells(*first) {
        Some((Op::Output, _)) if is_last && to_bond => FLOW_BOND,
        _ => 0,
    }
}

/// Properties of a program's instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// An instruction concerns MPLS labels.
    pub mpls: bool,
    /// An instruction looks the packet up again, tracks its connection, pushes headers after other
    /// instructions, or has a header in front come or go: XDP may leave the packet after it was changed.
    pub again: bool,
    /// An instruction tracks the packet's connection.
    pub tracks: bool,
    /// [`FLOW_CHAIN`], [`FLOW_CHAIN_END`] or 0.
    pub chain: u8,
    /// The first instruction pushes the headers of a tunnel.
    pub pushes: bool,
    /// An instruction cuts the packet.
    pub cuts: bool,
    /// [`FLOW_BOND`](crate::layout::FLOW_BOND) or 0.
    pub bond: u8,
    /// Upper bound of the bytes that the instructions add to a frame.
    pub growth: u8,
    /// Ports that XDP sends copies to, sorted; `None`: no copies.
    pub copies: Option<Vec<u16>>,
}

impl Traits {
    /// Returns true when XDP must check the frame before it begins (FLOW_PRECHECK).
    pub(crate) fn needs_precheck(&self) -> bool {
        self.again || self.cuts || self.copies.is_some()
    }

    /// Returns the properties of a program (see [`is_program`]).
    pub(crate) fn of(cells: &[u64; CELLS_TOTAL]) -> Traits {
        let mut traits =
            Traits { chain: chain_flag(cells), bond: bond_flag(cells), ..Traits::default() };
        let mut copies = Vec::new();
        let mut copying = false;
        let mut at = 0;
        while let Some(first) = cells.get(at) {
            let Some((op, length)) = instruction_cells(*first) else { break };
            let is_first = at == 0;
            at += length;
            traits.mpls |= matches!(op, Op::SetMpls | Op::PushMpls | Op::PopMpls);
            // A packet that cannot have its headers at XDP is left, too.
            traits.again |= matches!(op, Op::Recirc | Op::Ct) || op == Op::TunPush && !is_first;
            // A frame below a label may be too short to be one: it is left.
            traits.again |= op == Op::PopMpls && (first >> 16) as u16 == ETHERTYPE_TEB;
            traits.pushes |= op == Op::TunPush && is_first;
            traits.tracks |= op == Op::Ct;
            traits.cuts |= op == Op::Trunc;
            if matches!(op, Op::PushVlan | Op::PushMpls) {
                traits.growth = traits.growth.saturating_add(4);
            }
            if op == Op::Header {
                let header = HeaderOp::ALL.get((first >> 16 & 0xff) as usize);
                // A packet that cannot have its header here is left, and counted where it goes on.
                traits.again |= header.is_some_and(|op| op.may_leave());
                traits.growth = traits.growth.saturating_add(match header {
                    Some(HeaderOp::PushNsh) => ETHERNET.saturating_add((first >> 32) as u8),
                    Some(HeaderOp::AddMpls) => ETHERNET + 4,
                    _ => 0,
                });
            }
            if op == Op::TunPush {
                let added = u8::try_from(first >> 16 & 0xffff).unwrap_or(u8::MAX);
                traits.growth = traits.growth.saturating_add(added);
            }
            if op == Op::Copies {
                copying = true;
                copies.clear();
            }
            if !copying {
                continue;
            }
            match op {
                Op::Copies => continue,
                Op::Output => copies.push((first >> 32) as u16), // below MAX_PORTS
                Op::End => {}
                _ => copies.clear(), // not ours: no set has no ports
            }
            if op == Op::Output && first >> 16 & 1 == 0 {
                continue;
            }
            copying = false;
            copies.sort_unstable();
            let is_other = traits.copies.as_ref().is_some_and(|held| *held != copies);
            traits.copies = Some(if is_other { Vec::new() } else { copies.clone() });
        }
        traits
    }
}
