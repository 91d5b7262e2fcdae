// SPDX-License-Identifier: Apache-2.0
//! `ct(...)` and the `nat(...)` inside it: values, bytes (NXAST_CT, NXAST_NAT) and the rules for what
//! may be in one. ovs-actions(7), "The ct action".

use super::Action;
use super::nicira::NestedList;
use super::operand::ofs_nbits;
use crate::OfError;
use crate::nxm::{encode_header, pull_header};
use crate::wire::{Put, Reader};
use flow::Subfield;
use std::net::{Ipv4Addr, Ipv6Addr};

/// `ct(...)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ct {
    /// Makes the connection known.
    pub commit: bool,
    /// Ends a connection that was begun from the other side; only with `commit`.
    pub force: bool,
    /// The zone.
    pub zone: CtZone,
    /// The table where a copy of the packet goes on; `None` without a copy.
    pub table: Option<u8>,
    /// Port of the protocol whose helper follows the connection: [`Ct::FTP`], [`Ct::TFTP`], or 0 for
    /// none.
    pub alg: u16,
    /// The actions on the connection: `nat`, and sets of its mark and label.
    pub actions: Vec<Action>,
}

/// Zone of a [`Ct`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CtZone {
    /// The number itself.
    Number(u16),
    /// 16 bits of a field.
    Field(Subfield),
}

/// `nat` and `nat(...)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nat {
    /// The side of a new connection that changes; `None` applies what the connection has.
    pub side: Option<NatSide>,
    /// Addresses to choose from.
    pub addresses: NatAddresses,
    /// First and last port to choose from; `None` for all.
    pub ports: Option<(u16, u16)>,
    /// The choice survives a restart of the switch.
    pub persistent: bool,
    /// The choice of the port is a hash; not with `random`.
    pub hash: bool,
    /// The choice of the port is random.
    pub random: bool,
}

impl Nat {
    /// `nat` without arguments: applies the translation that the connection has.
    pub const EXISTING: Nat = Nat {
        side: None,
        addresses: NatAddresses::Any,
        ports: None,
        persistent: false,
        hash: false,
        random: false,
    };
}

/// Side of a [`Nat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatSide {
    /// The source changes: `nat(src)`.
    Source,
    /// The destination changes: `nat(dst)`.
    Destination,
}

/// First and last address of a [`Nat`]; equal for a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatAddresses {
    /// No range.
    Any,
    /// IPv4 addresses, the first not above the last.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6 addresses, the first not above the last.
    V6(Ipv6Addr, Ipv6Addr),
}

// Flags of NXAST_CT.
const COMMIT: u16 = 1;
const FORCE: u16 = 2;
/// Table of NXAST_CT that means none.
const NO_TABLE: u8 = u8::MAX;

// Flags of NXAST_NAT.
const SOURCE: u16 = 1;
const DESTINATION: u16 = 2;
const PERSISTENT: u16 = 4;
const HASH: u16 = 8;
const RANDOM: u16 = 16;

// Ranges of NXAST_NAT that are there.
const V4_MIN: u16 = 1;
const V4_MAX: u16 = 2;
const V6_MIN: u16 = 4;
const V6_MAX: u16 = 8;
const PORT_MIN: u16 = 16;
const PORT_MAX: u16 = 32;

/// An error of what a [`Ct`] holds, for texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misplaced {
    /// An action that no `ct` may hold.
    Action(&'static str),
    /// A set of a field that is not the connection's.
    Field(&'static str),
}

impl std::fmt::Display for Misplaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Misplaced::Action(name) => {
                write!(f, "ct action doesn't support nested action {name}")
            }
            Misplaced::Field(name) => {
                write!(f, "ct action doesn't support nested modification of {name}")
            }
        }
    }
}

/// Checks that `actions` may be in a `ct`: `nat`, and sets of the connection's fields.
pub(crate) fn verify(actions: &[Action]) -> Result<(), Misplaced> {
    actions.iter().try_for_each(|action| match action {
        Action::Nat(_) => Ok(()),
        Action::SetField { field, .. } | Action::Move { dst: Subfield { field, .. }, .. } => {
            if field.is_set_by_ct() {
                Ok(())
            } else {
                Err(Misplaced::Field(field.name()))
            }
        }
        other => Err(Misplaced::Action(other.keyword())),
    })
}

impl Ct {
    /// `alg=ftp`.
    pub const FTP: u16 = 21;
    /// `alg=tftp`.
    pub const TFTP: u16 = 69;

    /// True unless it changes a connection without `commit`, or has `force` without it.
    pub(crate) fn has_its_commit(&self) -> bool {
        let is_plain_nat = |a: &Action| matches!(a, Action::Nat(Nat { side: None, .. }));
        let commits = match self.actions.as_slice() {
            [] => false,
            [only] => !is_plain_nat(only),
            _ => true,
        };
        self.commit || !(commits || self.force)
    }
}

/// Reads an NXAST_CT from its flags on.
pub(super) fn decode(r: &mut Reader, nested: NestedList<'_>) -> Result<Ct, OfError> {
    let bad = OfError::OFPBAC_BAD_ARGUMENT;
    let flags = r.u16()?;
    let mut header = Reader::new(r.bytes(4)?, OfError::OFPBMC_BAD_FIELD);
    let number = r.u16()?;
    let zone = if header.peek() == [0; 4] {
        CtZone::Number(number)
    } else {
        let field = pull_header(&mut header).map_err(|_| OfError::OFPBAC_BAD_SET_TYPE)?;
        match ofs_nbits(field, number)? {
            part if part.bits == 16 => CtZone::Field(part),
            _ => return Err(OfError::OFPBAC_BAD_SET_LEN),
        }
    };
    let table = r.u8()?;
    r.skip(3)?;
    let ct = Ct {
        commit: flags & COMMIT != 0,
        force: flags & FORCE != 0,
        zone,
        table: (table != NO_TABLE).then_some(table),
        alg: r.u16()?,
        actions: nested(r.peek())?,
    };
    verify(&ct.actions).map_err(|_| bad)?;
    if ct.has_its_commit() { Ok(ct) } else { Err(bad) }
}

/// Reads an NXAST_NAT from its padding on.
pub(super) fn decode_nat(r: &mut Reader) -> Result<Nat, OfError> {
    let bad = OfError::OFPBAC_BAD_ARGUMENT;
    r.skip(2)?;
    let (flags, present) = (r.u16()?, r.u16()?);
    let all = SOURCE | DESTINATION | PERSISTENT | HASH | RANDOM;
    let both = |a: u16, b: u16| flags & a != 0 && flags & b != 0;
    if flags & !all != 0 || both(SOURCE, DESTINATION) || both(HASH, RANDOM) {
        return Err(bad);
    }
    let has = |bit: u16| present & bit != 0;
    if has(V4_MAX) && !has(V4_MIN)
        || has(V6_MAX) && !has(V6_MIN)
        || has(PORT_MAX) && !has(PORT_MIN)
        || has(V4_MIN) && has(V6_MIN)
        || has(PORT_MIN) && !has(V4_MIN) && !has(V6_MIN)
    {
        return Err(bad);
    }
    let mut ranges = Reader::new(r.peek(), bad);
    let addresses = if has(V4_MIN) {
        let min = Ipv4Addr::from(ranges.u32()?);
        let max = if has(V4_MAX) { Ipv4Addr::from(ranges.u32()?) } else { min };
        if min.is_unspecified() || max < min {
            return Err(bad);
        }
        NatAddresses::V4(min, max)
    } else if has(V6_MIN) {
        let mut address = || Some(Ipv6Addr::from(*ranges.bytes(16).ok()?.first_chunk::<16>()?));
        let min = address().ok_or(bad)?;
        let max = if has(V6_MAX) { address().ok_or(bad)? } else { min };
        if min.is_unspecified() || max < min {
            return Err(bad);
        }
        NatAddresses::V6(min, max)
    } else {
        NatAddresses::Any
    };
    let ports = if has(PORT_MIN) {
        let min = ranges.u16()?;
        let max = if has(PORT_MAX) { ranges.u16()? } else { min };
        if min == 0 || max < min {
            return Err(bad);
        }
        Some((min, max))
    } else {
        None
    };
    let side = match flags & (SOURCE | DESTINATION) {
        SOURCE => Some(NatSide::Source),
        DESTINATION => Some(NatSide::Destination),
        _ => None,
    };
    Ok(Nat {
        side,
        addresses,
        ports,
        persistent: flags & PERSISTENT != 0,
        hash: flags & HASH != 0,
        random: flags & RANDOM != 0,
    })
}

/// Writes an NXAST_CT after its subtype. `nested` writes the actions in it.
pub(super) fn encode(ct: &Ct, out: &mut Vec<u8>, nested: impl FnOnce(&mut Vec<u8>)) {
    let flag = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
    out.put_u16(flag(ct.commit, COMMIT) | flag(ct.force, FORCE));
    match ct.zone {
        CtZone::Number(number) => {
            out.put_u32(0);
            out.put_u16(number);
        }
        CtZone::Field(part) => {
            encode_header(part.field, false, 0, out);
            out.put_u16(super::encode::ofs_nbits(part));
        }
    }
    out.put_u8(ct.table.unwrap_or(NO_TABLE));
    out.put_zeros(3);
    out.put_u16(ct.alg);
    nested(out);
}

/// Writes an NXAST_NAT after its subtype.
pub(super) fn encode_nat(nat: &Nat, out: &mut Vec<u8>) {
    let mut flags = match nat.side {
        Some(NatSide::Source) => SOURCE,
        Some(NatSide::Destination) => DESTINATION,
        None => 0,
    };
    for (is_set, bit) in [(nat.persistent, PERSISTENT), (nat.hash, HASH), (nat.random, RANDOM)] {
        flags |= if is_set { bit } else { 0 };
    }
    out.put_zeros(2);
    out.put_u16(flags);
    let present = out.len();
    out.put_u16(0);
    let mut has = 0;
    match nat.addresses {
        NatAddresses::Any => {}
        NatAddresses::V4(min, max) => {
            has |= V4_MIN;
            out.put_u32(min.into());
            if max != min {
                has |= V4_MAX;
                out.put_u32(max.into());
            }
        }
        NatAddresses::V6(min, max) => {
            has |= V6_MIN;
            out.extend_from_slice(&min.octets());
            if max != min {
                has |= V6_MAX;
                out.extend_from_slice(&max.octets());
            }
        }
    }
    if let Some((min, max)) = nat.ports {
        has |= PORT_MIN;
        out.put_u16(min);
        if max != min {
            has |= PORT_MAX;
            out.put_u16(max);
        }
    }
    out.set_u16(present, has);
}
